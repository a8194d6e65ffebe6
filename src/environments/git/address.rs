//! Addresses and names of commits, as clients write them.

use crate::failure::{Code, Failure};

/// The longest address and the longest name.
const BYTES_MAX: usize = 2048;

/// Where a repository is: `https` or `http`, which go through the proxy of a session, and no
/// credential, which would be stored and shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// Takes an address as git would; what git could take for an option, a path or a program is
    /// refused.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] with the reason.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let refuse = |why: &str| {
            let message = format!("the repository's address {why}");
            Err(Failure::new(Code::EnvironmentInvalid, message).with_param("git.url"))
        };
        let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
        let Some(rest) = rest else {
            return refuse("begins neither with https:// nor with http://");
        };
        if text.len() > BYTES_MAX {
            return refuse("is too long");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return refuse("has a space, a control character or one that is not ASCII");
        }
        let authority = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
        if authority.contains('@') {
            return refuse("holds a credential; only public repositories are imported");
        }
        if authority.is_empty() || authority.starts_with('-') {
            return refuse("names no host");
        }
        Ok(Self(text.to_owned()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A branch, a tag or a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference(String);

impl Reference {
    /// Takes what git allows as a name of a reference.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] for anything else: nothing of it can be an option, a pattern
    /// or two names.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let part = |part: &str| {
            !part.is_empty()
                && !part.starts_with(['.', '-', '+'])
                && !part.ends_with(['.', '-'])
                && !part.ends_with(".lock")
        };
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"~^:?*[\\'\"".contains(&byte);
        let valid = text.len() <= BYTES_MAX
            && text.bytes().all(|byte| plain(byte) || byte >= 0x80)
            && text.split('/').all(part)
            && !text.contains("..")
            && !text.contains("@{")
            && text != "@";
        if valid {
            return Ok(Self(text.to_owned()));
        }
        let message = "the name of the branch, tag or commit is none";
        Err(Failure::new(Code::EnvironmentInvalid, message).with_param("git.ref"))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_web_addresses_are_taken() {
        for url in [
            "https://example.org/a/b.git",
            "http://198.51.100.7:8080/x",
            "https://[2001:db8::1]/x?y",
        ] {
            assert_eq!(Address::parse(url).unwrap().as_str(), url);
        }
        let long = format!("https://example.org/{}", "x".repeat(3000));
        for url in [
            "",
            "git@example.org:a/b.git",
            "ssh://git@example.org/a",
            "git://example.org/a",
            "file:///etc",
            "/etc",
            "ext::sh -c id",
            "HTTPS://example.org/a",
            "https://",
            "https:///x",
            "https://-oProxyCommand=id/x",
            "https://token@example.org/a",
            "https://user:word@example.org/a",
            "https://example.org/a b",
            "https://example.org/\u{fc}",
            "https://example.org/\n",
            "--upload-pack=id",
            &long,
        ] {
            assert_eq!(Address::parse(url).unwrap_err().code, Code::EnvironmentInvalid, "{url}");
        }
    }

    #[test]
    fn a_reference_is_one_name() {
        for name in
            ["main", "v1.0", "feature/x", "refs/tags/v1", "0123abc", "\u{fc}ber", "a@b", "HEAD"]
        {
            assert_eq!(Reference::parse(name).unwrap().as_str(), name);
        }
        for name in [
            "",
            "-x",
            "--upload-pack=id",
            "a b",
            "a..b",
            "a:b",
            "+a",
            "a^",
            "a~1",
            "a*",
            "a?",
            "[a]",
            "a\\b",
            "a//b",
            "/a",
            "a/",
            ".a",
            "a/.b",
            "a.lock",
            "a@{1}",
            "@",
            "a\n",
            "a\0",
            "$(id)'",
        ] {
            assert_eq!(
                Reference::parse(name).unwrap_err().code,
                Code::EnvironmentInvalid,
                "{name:?}"
            );
        }
    }
}
