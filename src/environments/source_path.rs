//! Paths of files in a source, as clients write them.

use crate::failure::{Code, Failure};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The longest path in bytes.
const PATH_BYTES_MAX: usize = 3072;
/// The longest name in bytes; Linux takes no longer one.
const NAME_BYTES_MAX: usize = 255;

/// A path below the root of a source: plain names, at least one.
///
/// Any byte but NUL and `/` can stand in a name: an import keeps names as they are, and whatever
/// is listed can be read, written and removed by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePath {
    path: OsString,
}

impl SourcePath {
    /// Takes a path that was decoded once.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] for what could name something else than a file or directory
    /// below the root. Nothing is cleaned up: what is odd is refused.
    pub fn parse(path: impl AsRef<OsStr>) -> Result<Self, Failure> {
        let path = path.as_ref();
        match objection(path.as_bytes()) {
            None => Ok(Self { path: path.to_owned() }),
            Some(why) => Err(invalid(why)),
        }
    }

    /// Takes a path as it stands in a URL and decodes it, once. An escaped `/` is a `/`, a `+` is
    /// a plus.
    ///
    /// # Errors
    /// As for [`SourcePath::parse`]; also when an escape is not complete.
    pub fn from_url(path: &str) -> Result<Self, Failure> {
        let bytes =
            decode(path.as_bytes()).ok_or_else(|| invalid("has a % that escapes nothing"))?;
        Self::parse(OsString::from_vec(bytes))
    }

    /// The names from the root down.
    pub fn names(&self) -> impl Iterator<Item = &OsStr> {
        self.path.as_bytes().split(|byte| *byte == b'/').map(OsStr::from_bytes)
    }

    /// The path of the directory it is in, unless that is the root, and its name in there.
    #[must_use]
    pub fn split(&self) -> (Option<&OsStr>, &OsStr) {
        let bytes = self.path.as_bytes();
        match bytes.iter().rposition(|byte| *byte == b'/') {
            None => (None, &self.path),
            Some(at) => {
                (Some(OsStr::from_bytes(&bytes[..at])), OsStr::from_bytes(&bytes[at + 1..]))
            }
        }
    }

    /// The path as the kernel takes it.
    #[must_use]
    pub fn as_os_str(&self) -> &OsStr {
        &self.path
    }

    /// The path as it is shown: what is no UTF-8 is replaced.
    #[must_use]
    pub fn shown(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }
}

/// Writes a path so that [`SourcePath::from_url`] reads it back, whatever its bytes.
pub fn encode_into(text: &mut String, path: &[u8]) {
    for &byte in path {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte));
            }
            _ => write!(text, "%{byte:02X}").expect("a string takes everything"),
        }
    }
}

/// Takes back the escapes of a URL; `None` when a `%` escapes nothing.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(match byte {
            b'%' => (digit(*rest.next()?)? << 4) | digit(*rest.next()?)?,
            _ => byte,
        });
    }
    Some(bytes)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn objection(path: &[u8]) -> Option<&'static str> {
    if path.is_empty() {
        return Some("is empty");
    }
    if path.len() > PATH_BYTES_MAX {
        return Some("is too long");
    }
    if path[0] == b'/' {
        return Some("is absolute");
    }
    if path.contains(&0) {
        return Some("has a NUL byte");
    }
    path.split(|byte| *byte == b'/').find_map(|name| match name {
        b"" => Some("has an empty part"),
        b"." | b".." => Some("leads out of the environment or nowhere"),
        name if name.len() > NAME_BYTES_MAX => Some("has a part that is too long"),
        _ => None,
    })
}

fn invalid(why: &str) -> Failure {
    Failure::new(Code::EnvironmentInvalid, format!("the path {why}")).with_param("path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_taken_as_they_are() {
        for path in ["a", "a/b.c", ".env", "a b/ü", "...", "a..b", "-rf", "x\\y", "a\nb", "..\\x"]
        {
            assert_eq!(SourcePath::parse(path).unwrap().shown(), path);
        }
    }

    #[test]
    fn everything_odd_is_refused_and_nothing_cleaned_up() {
        let long_name = "x".repeat(256);
        let long_path = "x/".repeat(1600) + "x";
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../escape.txt",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            &long_name,
            &long_path,
        ] {
            let failure = SourcePath::parse(path).unwrap_err();
            assert_eq!(failure.code, Code::EnvironmentInvalid, "{path:?}");
        }
    }

    #[test]
    fn a_url_is_decoded_exactly_once() {
        for (url, bytes) in [
            ("r%20n.txt", &b"r n.txt"[..]),
            ("r%2520n.txt", b"r%20n.txt"),
            ("dir%2Ffile", b"dir/file"),
            ("dir%252Ffile", b"dir%2Ffile"),
            ("%252e%252e", b"%2e%2e"),
            ("a+b", b"a+b"),
            ("a%2Bb", b"a+b"),
            ("%ff", b"\xff"),
        ] {
            assert_eq!(SourcePath::from_url(url).unwrap().as_os_str().as_bytes(), bytes, "{url}");
        }
        for url in ["50%", "50%2", "50%zz", "%2e%2e/x", "a/%2e%2e/b", "a%00", "%2fabs"] {
            assert!(SourcePath::from_url(url).is_err(), "{url}");
        }
    }

    #[test]
    fn what_is_listed_leads_back() {
        for path in [&b"a#b"[..], b"50%", b"q?", b"x\\y", b"new\nline", b"a b/c+d", b"\xe4\xff"] {
            let mut url = String::new();
            encode_into(&mut url, path);
            assert!(url.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(SourcePath::from_url(&url).unwrap().as_os_str().as_bytes(), path);
        }
    }

    #[test]
    fn the_last_name_is_told_from_the_directory() {
        let path = |text: &str| SourcePath::parse(text).unwrap();
        assert_eq!(path("a").split(), (None, OsStr::new("a")));
        assert_eq!(path("a/b/c").split(), (Some(OsStr::new("a/b")), OsStr::new("c")));
        assert_eq!(path("a/b").names().collect::<Vec<_>>(), ["a", "b"]);
    }
}
