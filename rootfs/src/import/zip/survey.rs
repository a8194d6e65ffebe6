//! All that is checked of a zip before its first member is given to anybody.

use super::data::is_readable;
use super::directory;
use super::entry::Entry;
use super::local;
use crate::import::member::Kind;
use crate::import::stream::check_ratio;
use crate::job::{ImportOptions, Limits, Refusal, RefusalCode};
use crate::names::{parts_of, quoted};
use std::collections::{HashMap, HashSet};
use std::fs::File;

/// Members that are named in one message.
const NAMED_MAX: usize = 5;

/// The members of a zip that can be read to its end: everything but the data was looked at.
///
/// # Errors
/// Members that are encrypted or compressed by what is not read, two members with one name,
/// members whose two descriptions differ or whose data overlaps, and budgets.
pub(super) fn survey(upload: &File, options: &ImportOptions) -> Result<Vec<Entry>, Refusal> {
    let (mut entries, end) = directory::read(upload, &options.limits)?;
    refuse_unreadable(&entries)?;
    // Two entries for the same member are one member; if their names differ, one of them is not
    // that of the member's header.
    let mut seen = HashSet::new();
    entries.retain(|entry| seen.insert((entry.header_at, entry.raw_name.clone())));
    refuse_same_names(&entries, &options.limits)?;
    for entry in &mut entries {
        entry.data_at = local::compare(upload, entry)?;
    }
    refuse_overlaps(&entries, end.directory_at)?;
    check_budget(upload, &entries, options)?;
    Ok(entries)
}

fn refuse_unreadable(entries: &[Entry]) -> Result<(), Refusal> {
    let unreadable = |entry: &&Entry| entry.is_encrypted() || !is_readable(entry.method);
    let all: Vec<&Entry> = entries.iter().filter(unreadable).collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut named: Vec<String> = all.iter().take(NAMED_MAX).map(|entry| why(entry)).collect();
    if all.len() > NAMED_MAX {
        named.push(format!("{} more are like that", all.len() - NAMED_MAX));
    }
    let message = format!("the zip cannot be read: {}", named.join("; "));
    Err(Refusal::new(RefusalCode::UnsupportedFormat, message))
}

fn why(entry: &Entry) -> String {
    if entry.is_encrypted() {
        return format!("{} is encrypted", quoted(&entry.name));
    }
    format!(
        "{} is compressed by method {} ({}), which is not read",
        quoted(&entry.name),
        entry.method,
        method_name(entry.method)
    )
}

fn method_name(method: u16) -> &'static str {
    match method {
        1 => "shrink",
        2..=5 => "reduce",
        6 => "implode",
        9 => "Deflate64",
        14 => "LZMA",
        95 => "xz",
        98 => "PPMd",
        99 => "AES",
        _ => "unknown",
    }
}

/// Readers take the first or the last of two members with one name. Directories have no bytes to
/// differ in.
fn refuse_same_names(entries: &[Entry], limits: &Limits) -> Result<(), Refusal> {
    let mut names: HashMap<Vec<u8>, usize> = HashMap::with_capacity(entries.len());
    for (at, entry) in entries.iter().enumerate() {
        if entry.kind() == Kind::Directory {
            continue;
        }
        // A name that does not land is none twice; one that is too long is refused in its turn.
        let Ok(parts) = parts_of(&entry.name, limits) else { continue };
        if let Some(before) = names.insert(parts.join(&b'/'), at) {
            let message = format!(
                "the zip can be read in two ways: members {} and {} are both called {}",
                before + 1,
                at + 1,
                quoted(&entry.name)
            );
            return Err(Refusal::new(RefusalCode::AmbiguousArchive, message));
        }
    }
    Ok(())
}

/// Data that is used twice makes a small zip unpack to anything.
fn refuse_overlaps(entries: &[Entry], directory_at: u64) -> Result<(), Refusal> {
    let mut spans: Vec<(u64, u64, &Entry)> = entries
        .iter()
        .map(|entry| (entry.header_at, entry.data_at.saturating_add(entry.packed), entry))
        .collect();
    spans.sort_unstable_by_key(|(begin, end, _)| (*begin, *end));
    let begins = spans.iter().skip(1).map(|(begin, ..)| *begin).chain([directory_at]);
    for ((_, end, entry), next) in spans.iter().zip(begins) {
        if *end > next {
            let message = format!(
                "the zip is damaged: the data of {} goes on where something else begins",
                quoted(&entry.name)
            );
            return Err(Refusal::new(RefusalCode::CorruptArchive, message));
        }
    }
    Ok(())
}

fn check_budget(upload: &File, entries: &[Entry], options: &ImportOptions) -> Result<(), Refusal> {
    let unpacked = entries.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    if unpacked > options.limits.bytes_max {
        let max = options.limits.bytes_max;
        let message = format!("the zip unpacks to {unpacked} bytes; {max} are allowed");
        return Err(Refusal::new(RefusalCode::TreeTooLarge, message).limit(max));
    }
    let length =
        upload.metadata().map_err(|error| crate::import::format::unreadable(&error))?.len();
    check_ratio(unpacked, length, options.ratio_max)
}
