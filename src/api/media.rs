//! Raw bytes as an answer: their type by name, and headers that keep browsers from guessing.

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::fs::File;
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

/// Sends a file of this length. It is cut or ends early when the file changes meanwhile; the
/// client sees that by the length.
#[must_use]
pub fn file(file: File, bytes: u64, path: &str) -> Response {
    let reader = tokio::fs::File::from_std(file).take(bytes);
    let mut response =
        Body::from_stream(ReaderStream::with_capacity(reader, READ_BYTES)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_DISPOSITION, disposition(path));
    response
}

/// Browsers save the file instead of running what is in it.
fn disposition(path: &str) -> HeaderValue {
    let name = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || "._- ".contains(c);
    let name: String = name.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")).expect("plain ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_cannot_end_the_header() {
        let value = disposition("a/x\"\r\nset-cookie: y\u{fc}.png");
        assert_eq!(value, "attachment; filename=\"x___set-cookie_ y_.png\"");
    }

    #[test]
    fn types_are_known_by_the_end_of_the_name() {
        assert_eq!(media_type("a/b.PNG"), "image/png");
        assert_eq!(media_type("Makefile"), "application/octet-stream");
    }
}
