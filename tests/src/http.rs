//! The smallest HTTP/1.1 client: one request for each connection, over the local socket.

use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// An answer, with its body as it was meant.
#[derive(Debug)]
pub struct Answer {
    /// Such as 200.
    pub status: u16,
    /// Without transfer coding.
    pub body: Vec<u8>,
}

impl Answer {
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
    let mut stream = UnixStream::connect(socket).expect("the server listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: hangar\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("the request is taken");
    stream.write_all(body).expect("the body is taken");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the answer comes whole");
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("the head ends");
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let rest = &bytes[end + 4..];
    let chunked = head.lines().any(|line| line == "transfer-encoding: chunked");
    Answer { status, body: if chunked { unchunk(rest) } else { rest.to_vec() } }
}

/// Takes the chunks apart; a body that was cut off has no last chunk.
fn unchunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n").expect("a chunk has a length");
        let text = std::str::from_utf8(&rest[..end]).expect("a length is text");
        let length = usize::from_str_radix(text, 16).expect("a length is hexadecimal");
        if length == 0 {
            return body;
        }
        let chunk = &rest[end + 2..];
        body.extend_from_slice(&chunk[..length]);
        rest = &chunk[length + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_bodies_are_read() {
        let plain = parse(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}");
        assert_eq!((plain.status, plain.body.as_slice()), (404, &b"{}"[..]));
        let chunked =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).body, b"ab0123456789");
    }
}
