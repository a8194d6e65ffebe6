//! Paths of files in a source, as clients write them.

use crate::failure::{Code, Failure};

/// The longest path in bytes.
const PATH_BYTES_MAX: usize = 1024;
/// The longest name in bytes; Linux takes no longer one.
const NAME_BYTES_MAX: usize = 255;

/// A path below the root of a source: plain names, at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePath {
    names: Vec<String>,
}

impl SourcePath {
    /// Takes a path that was decoded once.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] for what could name something else than a file or directory
    /// below the root. Nothing is cleaned up: what is odd is refused.
    pub fn parse(path: &str) -> Result<Self, Failure> {
        let refuse = |why: &str| {
            Err(Failure::new(Code::EnvironmentInvalid, format!("the path {why}"))
                .with_param("path"))
        };
        if path.is_empty() {
            return refuse("is empty");
        }
        if path.len() > PATH_BYTES_MAX {
            return refuse("is too long");
        }
        if path.starts_with('/') {
            return refuse("is absolute");
        }
        if path.contains('\\') || path.chars().any(char::is_control) {
            return refuse("has a backslash or a control character");
        }
        let names: Vec<String> = path.split('/').map(str::to_owned).collect();
        for name in &names {
            match name.as_str() {
                "" => return refuse("has an empty part"),
                "." | ".." => return refuse("leads out of the environment"),
                name if name.len() > NAME_BYTES_MAX => {
                    return refuse("has a part that is too long");
                }
                _ => {}
            }
        }
        Ok(Self { names })
    }

    /// The names from the root down.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The path as it was written.
    #[must_use]
    pub fn as_string(&self) -> String {
        self.names.join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_taken_as_they_are() {
        for path in ["a", "a/b.c", ".env", "a b/ü", "...", "a..b", "-rf"] {
            assert_eq!(SourcePath::parse(path).unwrap().as_string(), path);
        }
    }

    #[test]
    fn everything_odd_is_refused_and_nothing_cleaned_up() {
        let long_name = "x".repeat(256);
        let long_path = "x/".repeat(600) + "x";
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
            "a\\b",
            "..\\x",
            "a\0b",
            "a\nb",
            &long_name,
            &long_path,
        ] {
            let failure = SourcePath::parse(path).unwrap_err();
            assert_eq!(failure.code, Code::EnvironmentInvalid, "{path:?}");
        }
    }
}
