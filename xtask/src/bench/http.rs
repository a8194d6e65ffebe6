//! As much HTTP/1.1 as the benchmarks need, over a unix socket, without a client's own cost.

use crate::failure::{Failure, Step};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// A response whose body is read as it comes.
pub struct Response {
    reader: BufReader<UnixStream>,
    /// Of a chunked body: bytes left of the chunk that is being read.
    chunk: Option<u64>,
    /// Of any other body: bytes left; without a length it goes on to the end of the connection.
    left: u64,
}

/// Sends one request on a connection of its own and reads the head of the response.
///
/// # Errors
/// When the server is gone or answers with a status other than 200 to 299.
pub fn request(
    socket: &Path,
    method: &str,
    path: &str,
    json: Option<&str>,
) -> Result<Response, Failure> {
    let body = json.unwrap_or_default();
    let length = body.len() as u64;
    send(socket, (method, path), ("application/json", length), &mut body.as_bytes())
}

/// Sends a file as the body of a `POST`.
///
/// # Errors
/// As [`request`], and when the file cannot be read.
pub fn upload(socket: &Path, path: &str, file: &mut File) -> Result<Response, Failure> {
    let length = file.metadata().step(|| "looking at an upload".to_owned())?.len();
    send(socket, ("POST", path), ("application/octet-stream", length), file)
}

fn send(
    socket: &Path,
    (method, path): (&str, &str),
    (media_type, length): (&str, u64),
    body: &mut impl Read,
) -> Result<Response, Failure> {
    let told = || format!("{method} {path}");
    let mut stream = UnixStream::connect(socket).step(told)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).step(told)?;
    std::io::copy(body, &mut stream).step(told)?;
    let mut reader = BufReader::new(stream);
    let status = line(&mut reader).step(told)?;
    let mut response = Response { reader, chunk: None, left: u64::MAX };
    loop {
        let header = line(&mut response.reader).step(told)?.to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if header == "transfer-encoding: chunked" {
            response.chunk = Some(0);
        } else if let Some(length) = header.strip_prefix("content-length: ") {
            response.left = length.parse().step(told)?;
        }
    }
    if status.split(' ').nth(1).is_some_and(|code| code.starts_with('2')) {
        return Ok(response);
    }
    let mut body = String::new();
    response.read_to_string(&mut body).step(told)?;
    Err(Failure::new(format!("{} answered {status}: {body}", told())))
}

impl Response {
    /// The whole body as JSON.
    ///
    /// # Errors
    /// When the body ends early or is not JSON.
    pub fn json(self) -> Result<serde_json::Value, Failure> {
        serde_json::from_reader(self).step(|| "reading a body as JSON".to_owned())
    }
}

impl Read for Response {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.chunk == Some(0) {
            let mut size = line(&mut self.reader)?;
            if size.is_empty() {
                // The end of the chunk before.
                size = line(&mut self.reader)?;
            }
            let size = u64::from_str_radix(&size, 16).map_err(std::io::Error::other)?;
            if size == 0 {
                self.chunk = None;
                self.left = 0;
            } else {
                self.chunk = Some(size);
            }
        }
        let left = self.chunk.unwrap_or(self.left);
        let wanted = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let read = self.reader.read(&mut into[..wanted])?;
        let left = left - read as u64;
        match &mut self.chunk {
            Some(chunk) => *chunk = left,
            None => self.left = left,
        }
        Ok(read)
    }
}

fn line(reader: &mut impl BufRead) -> std::io::Result<String> {
    let mut text = String::new();
    reader.read_line(&mut text)?;
    Ok(text.trim_end().to_owned())
}
