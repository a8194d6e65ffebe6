//! Raw bytes as an answer: their type by name, and headers that keep browsers from guessing.

use super::conditions;
use super::ranges::{self, Part};
use crate::environments::source_path::encode_into;
use crate::failure::{Code, Failure, Tried};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use tokio::io::AsyncReadExt;
use tokio_util::io::ReaderStream;

/// How much of a file is read at once.
const READ_BYTES: usize = 256 << 10;

/// The media type of a file by the end of its name.
#[must_use]
pub fn media_type(path: &str) -> &'static str {
    let end = path.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    match end.as_deref() {
        Some("txt" | "md" | "py" | "sh" | "rs" | "toml" | "log" | "cfg" | "ini" | "ts") => {
            "text/plain; charset=utf-8"
        }
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("csv") => "text/csv; charset=utf-8",
        Some("js" | "mjs" | "cjs") => "text/javascript; charset=utf-8",
        Some("json") => "application/json",
        Some("yaml" | "yml") => "application/yaml",
        Some("xml") => "application/xml",
        Some("pdf") => "application/pdf",
        Some("zip") => "application/zip",
        Some("gz" | "tgz") => "application/gzip",
        Some("tar") => "application/x-tar",
        Some("png") => "image/png",
        Some("jpg" | "jpeg") => "image/jpeg",
        Some("gif") => "image/gif",
        Some("webp") => "image/webp",
        Some("svg") => "image/svg+xml",
        Some("mp3") => "audio/mpeg",
        Some("wav") => "audio/wav",
        Some("mp4") => "video/mp4",
        Some("webm") => "video/webm",
        _ => "application/octet-stream",
    }
}

/// Whether a text is `type/subtype`, with parameters or without.
#[must_use]
pub fn is_media_type(text: &str) -> bool {
    let token = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "!#$&-^_.+".contains(c);
        !part.is_empty() && part.chars().all(fits)
    };
    let kind = text.split(';').next().unwrap_or_default().trim();
    let parts = kind.split_once('/').is_some_and(|(one, other)| token(one) && token(other));
    parts && text.len() <= 127 && text.chars().all(|c| c.is_ascii_graphic() || c == ' ')
}

/// A file that is sent: its length when it was opened, and what is known of it.
#[derive(Debug)]
pub(super) struct Download {
    pub(super) file: File,
    pub(super) bytes: u64,
    pub(super) path: String,
    /// A strong tag of what is in it, quoted.
    pub(super) etag: Option<String>,
}

impl Download {
    /// Sends the file or the part that is asked for. It is cut or ends early when the file changes
    /// meanwhile; the client sees that by the length.
    ///
    /// # Errors
    /// [`Code::RangeNotSatisfiable`] when the part lies behind the end.
    pub(super) fn answer(
        mut self,
        method: &Method,
        headers: &HeaderMap,
    ) -> Result<Response, Failure> {
        if let Some(etag) = self.etag.as_deref().filter(|etag| conditions::is_known(headers, etag))
        {
            return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, plain(etag))]).into_response());
        }
        // RFC 9110 knows ranges of GET only: HEAD tells about the whole.
        let part = match *method {
            Method::GET => ranges::part(headers, self.bytes, self.etag.as_deref()),
            _ => Part::Whole,
        };
        let mut response = match part {
            Part::Whole => self.send(0, self.bytes)?,
            Part::Bytes(first, last) => {
                let range = format!("bytes {first}-{last}/{}", self.bytes);
                let mut response = self.send(first, last - first + 1)?;
                *response.status_mut() = StatusCode::PARTIAL_CONTENT;
                response.headers_mut().insert(header::CONTENT_RANGE, plain(&range));
                response
            }
            Part::Beyond => return Ok(self.beyond()),
        };
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(&self.path)));
        fields.insert(header::CONTENT_DISPOSITION, disposition(&self.path));
        fields.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(etag) = &self.etag {
            fields.insert(header::ETAG, plain(etag));
        }
        Ok(response)
    }

    fn send(&mut self, from: u64, bytes: u64) -> Result<Response, Failure> {
        self.file.seek(SeekFrom::Start(from)).tried("reading the file")?;
        let file = self.file.try_clone().tried("reading the file")?;
        let reader = tokio::fs::File::from_std(file).take(bytes);
        let body = Body::from_stream(ReaderStream::with_capacity(reader, READ_BYTES));
        let mut response = body.into_response();
        response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
        Ok(response)
    }

    fn beyond(&self) -> Response {
        let failure =
            Failure::new(Code::RangeNotSatisfiable, "the range lies behind the end of the file");
        let mut response = failure.into_response();
        let range = plain(&format!("bytes */{}", self.bytes));
        response.headers_mut().insert(header::CONTENT_RANGE, range);
        response
    }
}

fn plain(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("digits and plain ASCII")
}

/// Browsers save the file instead of running what is in it, under its own name: RFC 6266.
fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
    let simple: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    let mut value = format!("attachment; filename=\"{simple}\"");
    if simple != name {
        value.push_str("; filename*=UTF-8''");
        encode_into(&mut value, name.as_bytes());
    }
    HeaderValue::from_str(&value).expect("plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_cannot_end_the_header() {
        let value = disposition("a/x\"\r\nset-cookie: y\u{fc}.png");
        assert_eq!(
            value,
            "attachment; filename=\"x___set-cookie_ y_.png\"; \
             filename*=UTF-8''x%22%0D%0Aset-cookie%3A%20y%C3%BC.png"
        );
    }

    #[test]
    fn types_are_known_by_the_end_of_the_name() {
        assert_eq!(media_type("a/b.PNG"), "image/png");
        assert_eq!(media_type("Makefile"), "application/octet-stream");
    }
}
