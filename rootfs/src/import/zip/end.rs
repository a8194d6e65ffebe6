//! The end of a zip, which says where its directory is.

use super::fields::{read_at, u16_at, u32_at, u64_at};
use crate::import::format::unreadable;
use crate::job::{Refusal, RefusalCode};
use std::fs::File;

/// Where the central directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub(super) directory_at: u64,
    pub(super) directory_bytes: u64,
    /// How many entries it has.
    pub(super) entries: u64,
    /// The count has 16 bits only, and writers go on counting from 0.
    pub(super) wraps: bool,
}

const END_BYTES: usize = 22;
const LOCATOR_BYTES: u64 = 20;
const WIDE_END_BYTES: usize = 56;

/// Finds the end record: the one whose comment goes exactly to the last byte.
///
/// # Errors
/// When there is none, or more than one, or it contradicts its zip64 form.
pub(super) fn find(upload: &File) -> Result<End, Refusal> {
    let length = upload.metadata().map_err(|error| unreadable(&error))?.len();
    let tail_bytes = length.min((END_BYTES + usize::from(u16::MAX)) as u64);
    let tail_at = length - tail_bytes;
    let tail = usize::try_from(tail_bytes).expect("at most 64 KiB and some");
    let tail = read_at(upload, tail_at, tail).map_err(|error| unreadable(&error))?;
    let is_end = |at: &usize| {
        tail[*at..].starts_with(b"PK\x05\x06")
            && *at + END_BYTES + usize::from(u16_at(&tail, at + 20)) == tail.len()
    };
    let mut found = (0..tail.len().saturating_sub(END_BYTES - 1)).filter(is_end);
    let Some(at) = found.next() else {
        let message = "the zip is cut short: its directory, which is at the end, is missing";
        return Err(Refusal::new(RefusalCode::TruncatedArchive, message));
    };
    if found.next().is_some() {
        return Err(ambiguous("it has two ends"));
    }
    let record = &tail[at..at + END_BYTES];
    let narrow = End {
        entries: u64::from(u16_at(record, 10)),
        directory_bytes: u64::from(u32_at(record, 12)),
        directory_at: u64::from(u32_at(record, 16)),
        wraps: true,
    };
    if [4, 6].iter().any(|at| !matches!(u16_at(record, *at), 0 | u16::MAX)) {
        return Err(several_volumes());
    }
    let at = tail_at + at as u64;
    let (end, before) = match find_wide(upload, at)? {
        Some((wide, wide_at)) => (agree(narrow, wide)?, wide_at),
        None => (narrow, at),
    };
    match end.directory_at.checked_add(end.directory_bytes) {
        Some(behind) if behind <= before => Ok(end),
        _ => Err(damaged("its directory does not lie before its end")),
    }
}

/// The zip64 form of the end and where it is, when a locator is in front of the plain one.
fn find_wide(upload: &File, end_at: u64) -> Result<Option<(End, u64)>, Refusal> {
    let Some(locator_at) = end_at.checked_sub(LOCATOR_BYTES) else { return Ok(None) };
    let locator =
        read_at(upload, locator_at, LOCATOR_BYTES as usize).map_err(|error| unreadable(&error))?;
    if !locator.starts_with(b"PK\x06\x07") {
        return Ok(None);
    }
    if u32_at(&locator, 16) > 1 {
        return Err(several_volumes());
    }
    let at = u64_at(&locator, 8);
    let fits = at.checked_add(WIDE_END_BYTES as u64).is_some_and(|behind| behind <= locator_at);
    if !fits {
        return Err(damaged("the zip64 form of its end is missing"));
    }
    let record = read_at(upload, at, WIDE_END_BYTES).map_err(|error| unreadable(&error))?;
    if !record.starts_with(b"PK\x06\x06") {
        return Err(damaged("the zip64 form of its end is missing"));
    }
    let wide = End {
        entries: u64_at(&record, 32),
        directory_bytes: u64_at(&record, 40),
        directory_at: u64_at(&record, 48),
        wraps: false,
    };
    Ok(Some((wide, at)))
}

/// Both forms have to say the same, where the plain one can say it.
fn agree(narrow: End, wide: End) -> Result<End, Refusal> {
    let same = |narrow: u64, wide: u64, full: u64| narrow == full || narrow == wide;
    let full = u64::from(u32::MAX);
    let agree = same(narrow.entries, wide.entries, u64::from(u16::MAX))
        && same(narrow.directory_bytes, wide.directory_bytes, full)
        && same(narrow.directory_at, wide.directory_at, full);
    if agree { Ok(wide) } else { Err(ambiguous("the two forms of its end differ")) }
}

fn several_volumes() -> Refusal {
    let message = "the upload is a part of a zip archive in several volumes";
    Refusal::new(RefusalCode::UnsupportedFormat, message)
}

fn ambiguous(cause: &str) -> Refusal {
    let message = format!("the zip can be read in two ways: {cause}");
    Refusal::new(RefusalCode::AmbiguousArchive, message)
}

pub(super) fn damaged(cause: &str) -> Refusal {
    Refusal::new(RefusalCode::CorruptArchive, format!("the zip is damaged: {cause}"))
}
