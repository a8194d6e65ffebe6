//! The smallest HTTP/1.1 client: one request for each connection, over the local socket.

use serde_json::Value;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// An answer, with its body as it was meant.
#[derive(Debug)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    /// The status line and the fields, in lower case but for their values.
    pub head: String,
    /// Without transfer coding.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}

/// Asks, and reads the answer to its end.
///
/// # Panics
/// When nobody listens, or what comes is no HTTP.
#[must_use]
pub fn ask(socket: &Path, method: &str, path: &str, body: &[u8]) -> Answer {
    let body = Body { kind: "application/json", bytes: body };
    try_ask(socket, method, path, body).expect("the server answers")
}

/// What is sent along.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a> {
    /// The media type.
    pub kind: &'a str,
    /// The whole body.
    pub bytes: &'a [u8],
}

/// Asks a server that can go away meanwhile.
///
/// # Errors
/// When nobody listens, or the answer was cut off.
pub fn try_ask(socket: &Path, method: &str, path: &str, body: Body<'_>) -> io::Result<Answer> {
    exchange(UnixStream::connect(socket)?, method, path, &[("Content-Type", body.kind)], body.bytes)
}

/// Asks over a connection, with these fields beside the usual ones.
///
/// # Errors
/// When the answer was cut off.
pub fn exchange(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: hangar\r\nConnection: close\r\n");
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    // At once: a server that refuses by the head alone may not take the rest. One that refuses in
    // the middle has answered and closed before all was sent.
    let sent = stream.write_all(&[head.as_bytes(), body].concat());
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    // These two tell the length of a body that does not follow.
    let answer = match method == "HEAD" || bytes.starts_with(b"HTTP/1.1 304") {
        true => without_body(&bytes),
        false => parse(&bytes),
    };
    match answer {
        Some(answer) => Ok(answer),
        None => {
            sent?;
            read?;
            Err(io::Error::from(io::ErrorKind::UnexpectedEof))
        }
    }
}

fn without_body(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Answer { status, head, body: bytes[end + 4..].to_vec() })
}

/// The answer; `None` when it was cut off.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let Answer { status, head: told, body: rest } = without_body(bytes)?;
    let (head, rest) = (told.to_ascii_lowercase(), rest.as_slice());
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
    let body = match (field("transfer-encoding: "), field("content-length: ")) {
        (Some("chunked"), _) => unchunk(rest)?,
        (_, Some(length)) => rest.get(..length.parse().ok()?)?.to_vec(),
        _ => rest.to_vec(),
    };
    Some(Answer { status, head: told, body })
}

/// Takes the chunks apart; a body that was cut off has no last chunk.
fn unchunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        let length = usize::from_str_radix(text, 16).ok()?;
        if length == 0 {
            return Some(body);
        }
        let chunk = &rest[end + 2..];
        body.extend_from_slice(chunk.get(..length)?);
        rest = chunk.get(length + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_bodies_are_read() {
        let plain = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((plain.status, plain.body.as_slice()), (404, &b"{}"[..]));
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().body, b"ab0123456789");
        for end in 0..chunked.len() - 3 {
            assert!(parse(&chunked[..end]).is_none(), "cut off at {end}");
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{").is_none());
    }
}
