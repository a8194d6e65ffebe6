//! Names that are safe to use as one path component, and the uid blocks of sessions.
//!
//! Every name that reaches the warden is one of these types. A value that exists has passed its
//! `parse`, also when it came over a socket: deserialisation goes through `parse` too.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Why a string is not a name of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {reason}")]
pub struct NameError {
    /// What the string should have been, such as `environment id`.
    pub kind: &'static str,
    /// What is wrong with it.
    pub reason: &'static str,
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Takes the string if it is a name of this kind.
            ///
            /// # Errors
            /// Says what is wrong with the string; the string itself is not repeated.
            pub fn parse(text: &str) -> Result<Self, NameError> {
                $check(text).map_err(|reason| NameError { kind: $kind, reason })?;
                Ok(Self(text.to_owned()))
            }

            /// The name as it is written.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The last component of an environment's mount point, `/env/<slug>`.
    ///
    /// 1 to 63 characters of `a-z 0-9 . _ -`, the first a letter or digit, never `..`.
    Slug, "slug", check_slug
);
name!(
    /// An environment: `henv_` and 32 lower-case hexadecimal digits.
    EnvironmentId, "environment id", check_environment
);
name!(
    /// A session: `hsess` and 32 lower-case hexadecimal digits.
    SessionId, "session id", check_session
);
name!(
    /// What the installed dependencies of a version depend on: 64 lower-case hexadecimal digits.
    DependencyKey, "dependency key", check_key
);

fn check_slug(text: &str) -> Result<(), &'static str> {
    let bytes = text.as_bytes();
    match bytes.first() {
        None => return Err("is empty"),
        Some(first) if !first.is_ascii_lowercase() && !first.is_ascii_digit() => {
            return Err("does not begin with a lower-case letter or a digit");
        }
        Some(_) => {}
    }
    if bytes.len() > 63 {
        return Err("is longer than 63 characters");
    }
    if !bytes.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(b)) {
        return Err("has a character other than a-z, 0-9, '.', '_' and '-'");
    }
    if text.contains("..") {
        return Err("contains '..'");
    }
    Ok(())
}

fn check_environment(text: &str) -> Result<(), &'static str> {
    check_hex(text.strip_prefix("henv_").ok_or("does not begin with 'henv_'")?, 32)
}

fn check_session(text: &str) -> Result<(), &'static str> {
    check_hex(text.strip_prefix("hsess").ok_or("does not begin with 'hsess'")?, 32)
}

fn check_key(text: &str) -> Result<(), &'static str> {
    check_hex(text, 64)
}

fn check_hex(text: &str, digits: usize) -> Result<(), &'static str> {
    if text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        Ok(())
    } else {
        Err("has not the right number of lower-case hexadecimal digits")
    }
}

/// A version of an environment, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionNumber(pub std::num::NonZeroU32);

impl VersionNumber {
    /// The version with this number, if it is not 0.
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        std::num::NonZeroU32::new(number).map(Self)
    }
}

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One command of a session, counted from 1 over the life of the session's isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CommandId(pub u32);

impl fmt::Display for CommandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ids in a block: a block is 65,536 wide and starts at a multiple of 65,536.
pub const BLOCK_SIZE: u32 = 65_536;

/// The first uid of the range hangar uses where the operator names no other: 0x7000_0000.
///
/// It lies above what `/etc/subuid` and systemd hand out and below 2^31, so that programs that
/// keep a uid in a signed integer still work.
pub const DEFAULT_RANGE_BASE: u32 = 1_879_048_192;

/// The user every command of a session runs as, inside the session.
pub const AGENT_UID: u32 = 1000;

/// Inside a session, the owner of the frozen trees; no process ever has this id.
pub const STORE_UID_INSIDE: u32 = 65_530;

/// Inside a build, the owner of the source; no process ever has this id.
pub const SOURCE_UID_INSIDE: u32 = 65_531;

/// How many ids of its block a session can use for its own processes and files.
///
/// The ids from here to the end of the block stand for the owners of what is mounted read-only.
pub const SESSION_IDS: u32 = 65_530;

/// The fixed host ids of hangar's own processes and files: block 0 of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first id of the range, a multiple of [`BLOCK_SIZE`].
    pub base: u32,
}

impl Range {
    /// The range that begins here. Block 0 is hangar's own and another one is a session's; all
    /// stay below 2^31.
    ///
    /// # Errors
    /// When there is no room for that, or the base is not where a block begins.
    pub fn checked(base: u32) -> Result<Self, String> {
        if base == 0 || !base.is_multiple_of(BLOCK_SIZE) || base > (1 << 31) - 2 * BLOCK_SIZE {
            return Err(format!("{base} is no multiple of {BLOCK_SIZE} with room below 2^31"));
        }
        Ok(Self { base })
    }

    /// The API process and what lies below `DIR/api`.
    #[must_use]
    pub fn api(self) -> u32 {
        self.base + 1
    }

    /// The egress proxy.
    #[must_use]
    pub fn egress(self) -> u32 {
        self.base + 2
    }

    /// The owner of every frozen tree.
    #[must_use]
    pub fn store(self) -> u32 {
        self.base + 4
    }

    /// The block with this index; block 0 is hangar's own and belongs to no session.
    #[must_use]
    pub fn block(self, index: std::num::NonZeroU16) -> Block {
        Block { base: self.base + u32::from(index.get()) * BLOCK_SIZE }
    }
}

impl Default for Range {
    fn default() -> Self {
        Self { base: DEFAULT_RANGE_BASE }
    }
}

/// The host ids of one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Block {
    /// The host id that is 0 inside.
    pub base: u32,
}

impl Block {
    /// The host id of the session's commands and of the files they write.
    #[must_use]
    pub fn agent(self) -> u32 {
        self.base + AGENT_UID
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slugs_are_one_plain_component() {
        for good in ["a", "content-studio", "0x", "a.b_c-d", &"a".repeat(63)] {
            assert!(Slug::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(64);
        for bad in ["", ".", "..", "-a", ".a", "a/b", "a..b", "A", "a b", "a\0", "é", "%2e", &long]
        {
            assert!(Slug::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn deserialising_checks_too() {
        let bytes = postcard::to_allocvec("../../etc").unwrap();
        assert!(postcard::from_bytes::<Slug>(&bytes).is_err());
        assert!(postcard::from_bytes::<SessionId>(&bytes).is_err());
    }

    #[test]
    fn blocks_do_not_meet() {
        let range = Range::default();
        let first = range.block(std::num::NonZeroU16::MIN);
        assert_eq!(first.base, range.base + BLOCK_SIZE);
        assert_eq!(first.agent() - first.base, AGENT_UID);
        assert_eq!(range.base % BLOCK_SIZE, 0);
        // The last block still lies below 2^31.
        let last = range.block(std::num::NonZeroU16::new(4095).unwrap());
        assert!(last.base + (BLOCK_SIZE - 1) < 1 << 31);
    }
}
