//! Where in an archive something went wrong, for messages.

use crate::job::{Refusal, RefusalCode};
use crate::names::{printable, quoted};
use crate::refusal::refusal_within;
use std::cell::Cell;
use std::io;
use std::rc::Rc;

/// How far the archive was read, for messages.
pub(super) struct Place {
    /// Whether the last byte was read.
    pub(super) ended: Rc<Cell<bool>>,
    pub(super) at: At,
}

/// What was read last.
pub(super) enum At {
    Start,
    Member(Vec<u8>),
    After(Vec<u8>),
}

impl Place {
    pub(super) fn fault(&self, error: &io::Error) -> Refusal {
        if let Some(refusal) = refusal_within(error) {
            return refusal.clone();
        }
        if error.kind() == io::ErrorKind::UnexpectedEof || self.ended.get() {
            return self.cut_short(None).detail(error);
        }
        // The text can repeat bytes of a header.
        self.damaged(&printable(error.to_string().as_bytes()))
    }

    pub(super) fn cut_short(&self, of: Option<(u64, u64)>) -> Refusal {
        let mut message = format!("the archive is cut short {self}");
        if let Some((there, size)) = of {
            message.push_str(&format!(" ({there} of its {size} bytes are there)"));
        }
        Refusal::new(RefusalCode::TruncatedArchive, message)
    }

    pub(super) fn damaged(&self, cause: &str) -> Refusal {
        let message = format!("the archive is damaged {self}: {cause}");
        Refusal::new(RefusalCode::CorruptArchive, message)
    }

    pub(super) fn ambiguous(&self, cause: &str) -> Refusal {
        let message = format!("the archive can be read in two ways {self}: {cause}");
        Refusal::new(RefusalCode::AmbiguousArchive, message)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            At::Start => f.write_str("before its first member"),
            At::Member(name) => write!(f, "inside the member {}", quoted(name)),
            At::After(name) => write!(f, "after the member {}", quoted(name)),
        }
    }
}
