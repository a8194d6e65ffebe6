//! `multipart/form-data`, one part after the other as it arrives: RFC 7578.
//!
//! At most one delimiter, one head of a part and one piece of the body are in memory.

use super::body;
use super::disposition;
use crate::failure::{Code, Failure};
use axum::body::{Body, BodyDataStream};
use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// RFC 2046 knows no longer boundary.
const BOUNDARY_BYTES_MAX: usize = 70;
/// The longest head of a part.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How much may come between parts, or be in parts that nobody reads.
const IGNORED_BYTES_MAX: usize = 1 << 20;

/// What the head of a part says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// The field of the form.
    pub(super) name: String,
    /// One plain name, for a file.
    pub(super) file_name: Option<String>,
    /// As it is written.
    pub(super) media_type: Option<String>,
}

/// A form that is read once, from its begin to its end.
#[derive(Debug)]
pub(super) struct Form {
    body: BodyDataStream,
    buffer: BytesMut,
    delimiter: Vec<u8>,
    ignored: usize,
    /// The body has more parts, as far as was read.
    open: bool,
}

impl Form {
    /// The form in a body of this content type.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] when it is no form.
    pub(super) fn new(content_type: Option<&str>, body: Body) -> Result<Self, Failure> {
        let boundary = content_type.and_then(disposition::boundary);
        let boundary = boundary.filter(|text| (1..=BOUNDARY_BYTES_MAX).contains(&text.len()));
        let boundary = boundary.ok_or_else(|| {
            Failure::new(Code::InvalidInput, "the body is no multipart/form-data with a boundary")
                .with_param("content-type")
        })?;
        Ok(Self {
            body: body.into_data_stream(),
            // The first delimiter has no line before it.
            buffer: BytesMut::from(&b"\r\n"[..]),
            delimiter: format!("\r\n--{boundary}").into_bytes(),
            ignored: 0,
            open: true,
        })
    }

    /// The next part; what is left of the one before is not read. `None` after the last.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] when the form is not well formed or was cut off.
    pub(super) async fn part(&mut self) -> Result<Option<Part>, Failure> {
        if !self.open {
            return Ok(None);
        }
        while let Some(chunk) = self.chunk().await? {
            self.ignored += chunk.len();
            if self.ignored > IGNORED_BYTES_MAX {
                return Err(malformed("has too much beside its file"));
            }
        }
        let _delimiter = self.buffer.split_to(self.delimiter.len());
        while self.buffer.len() < 2 {
            self.more().await?;
        }
        if self.buffer.starts_with(b"--") {
            self.open = false;
            return Ok(None);
        }
        let padding = self.until(b"\r\n").await?;
        if !padding.iter().all(|byte| b" \t".contains(byte)) {
            return Err(malformed("has a boundary that goes on"));
        }
        // The end of that line begins the empty line where a part has no head.
        self.buffer = joined(b"\r\n", &self.buffer);
        let head = self.until(b"\r\n\r\n").await?;
        disposition::part(&head).map(Some)
    }

    /// What comes next of the part; `None` at its end.
    ///
    /// # Errors
    /// [`Code::InvalidInput`] when the form was cut off.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            match memmem::find(&self.buffer, &self.delimiter) {
                Some(0) => return Ok(None),
                Some(at) => return Ok(Some(self.buffer.split_to(at).freeze())),
                None => {}
            }
            // The end of what is here can be the begin of the delimiter.
            let sure = self.buffer.len().saturating_sub(self.delimiter.len() - 1);
            if sure > 0 {
                return Ok(Some(self.buffer.split_to(sure).freeze()));
            }
            self.more().await?;
        }
    }

    /// Takes what comes before these bytes, and them.
    async fn until(&mut self, end: &[u8]) -> Result<Bytes, Failure> {
        loop {
            if let Some(at) = memmem::find(&self.buffer, end) {
                let found = self.buffer.split_to(at).freeze();
                let _end = self.buffer.split_to(end.len());
                return Ok(found);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(malformed("has a head of a part that is too long"));
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), Failure> {
        match body::next(&mut self.body).await? {
            Some(chunk) if self.buffer.is_empty() => self.buffer = BytesMut::from(chunk),
            Some(chunk) => self.buffer.extend_from_slice(&chunk),
            None => return Err(malformed("ends before its last boundary")),
        }
        Ok(())
    }
}

fn joined(first: &[u8], second: &[u8]) -> BytesMut {
    let mut both = BytesMut::with_capacity(first.len() + second.len());
    both.extend_from_slice(first);
    both.extend_from_slice(second);
    both
}

fn malformed(why: &str) -> Failure {
    Failure::new(Code::InvalidInput, format!("the form {why}")).with_param("body")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    /// Reads a form that arrives in pieces of this size.
    async fn read(text: &str, piece: usize) -> Result<Vec<(Part, Vec<u8>)>, Failure> {
        let pieces: Vec<_> = text.as_bytes().chunks(piece).map(<[u8]>::to_vec).collect();
        let pieces = pieces.into_iter().map(Ok::<_, std::io::Error>);
        let body = Body::from_stream(stream::iter(pieces));
        let mut form = Form::new(Some("multipart/form-data; boundary=b"), body)?;
        let mut parts = Vec::new();
        while let Some(part) = form.part().await? {
            let mut bytes = Vec::new();
            while let Some(chunk) = form.chunk().await? {
                bytes.extend_from_slice(&chunk);
            }
            parts.push((part, bytes));
        }
        Ok(parts)
    }

    const FORM: &str = "before\r\n--b \r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n\
                        x\r\n--b\r\nContent-Type: text/plain\r\n\
                        content-disposition: form-data; name=file; filename=\"a b.txt\"\r\n\r\n\
                        one\r\n--a\r\n-\r\n--b--\r\nafter";

    #[tokio::test]
    async fn a_form_is_the_same_however_it_is_cut_into_pieces() {
        for piece in 1..FORM.len() {
            let parts = read(FORM, piece).await.unwrap();
            assert_eq!(parts[0].0, Part { name: "purpose".into(), ..Part::default() });
            assert_eq!(parts[0].1, b"x");
            let file = Part {
                name: "file".into(),
                file_name: Some("a b.txt".into()),
                media_type: Some("text/plain".into()),
            };
            assert_eq!((&parts[1].0, &parts[1].1[..]), (&file, &b"one\r\n--a\r\n-"[..]));
            assert_eq!(parts.len(), 2);
        }
    }

    #[tokio::test]
    async fn a_form_that_is_cut_off_is_refused() {
        let whole = FORM.find("--b--").unwrap() + 5;
        for end in 0..whole {
            assert!(read(&FORM[..end], 7).await.is_err(), "{end}");
        }
        assert!(read(&FORM[..whole], 7).await.is_ok());
    }

    #[tokio::test]
    async fn what_nobody_reads_is_bounded() {
        let long = "x".repeat(HEAD_BYTES_MAX + 1);
        assert!(read(&format!("--b\r\nX: {long}"), 1000).await.is_err());
        let before = "x".repeat(IGNORED_BYTES_MAX + 1);
        assert!(read(&format!("{before}\r\n--b--"), 100_000).await.is_err());
        assert!(read("--bb\r\n\r\n--b--", 100).await.is_err(), "another boundary");
        for kind in ["text/plain", "multipart/form-data", "multipart/form-data; boundary=\"\""] {
            assert!(Form::new(Some(kind), Body::empty()).is_err(), "{kind}");
        }
    }
}
