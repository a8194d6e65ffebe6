//! Compare: what two frozen trees differ in, from their manifests alone.

use crate::job::{CompareOptions, CompareOutcome, NodeShown, PathDifference, Refusal, RefusalCode};
use crate::manifest::{Entry, Manifest, Node, hex};
use crate::names::printable;
use crate::verify::read_manifest;
use std::cmp::Ordering;
use std::io::Write;
use std::os::fd::BorrowedFd;

/// Compares the manifests in `from` and `to` and writes each difference to `out`, one JSON object
/// ([`PathDifference`]) a line, in the order of the paths. Times are no difference: an installer
/// writes them anew in every build.
///
/// # Errors
/// [`RefusalCode::CorruptManifest`] when a manifest does not agree with itself; when `out` cannot
/// be written.
pub fn compare(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    out: &mut impl Write,
    options: &CompareOptions,
) -> Result<CompareOutcome, Refusal> {
    let (from, from_digest) = read_manifest(from)?;
    let (to, to_digest) = read_manifest(to)?;
    let mut outcome = CompareOutcome {
        from_root_digest: hex(&from_digest),
        to_root_digest: hex(&to_digest),
        ..CompareOutcome::default()
    };
    let mut listed = 0;
    for (before, after) in Pairs::new(&from, &to) {
        if !outcome.count(before, after) {
            continue;
        }
        if listed == options.listed_max {
            outcome.truncated = true;
            continue;
        }
        listed += 1;
        write(out, before, after)?;
    }
    out.flush().map_err(|error| cannot_write(&error))?;
    Ok(outcome)
}

impl CompareOutcome {
    /// Counts a path; `false` when there is no difference.
    fn count(&mut self, before: Option<&Entry>, after: Option<&Entry>) -> bool {
        let bytes = |entry: &Entry| match entry.node {
            Node::File { size, .. } => size,
            _ => 0,
        };
        match (before, after) {
            (Some(before), Some(after)) if before.node == after.node => {
                self.unchanged += 1;
                return false;
            }
            (Some(_), Some(_)) => self.changed += 1,
            (None, Some(_)) => self.added += 1,
            (Some(_), None) => self.removed += 1,
            (None, None) => return false,
        }
        self.bytes_before += before.map_or(0, bytes);
        self.bytes_after += after.map_or(0, bytes);
        true
    }
}

fn write(
    out: &mut impl Write,
    before: Option<&Entry>,
    after: Option<&Entry>,
) -> Result<(), Refusal> {
    let path = before.or(after).map_or(&b""[..], |entry| &entry.path);
    let difference = PathDifference {
        path: if path.is_empty() { ".".to_owned() } else { printable(path) },
        before: before.map(shown),
        after: after.map(shown),
    };
    let mut line = serde_json::to_vec(&difference).map_err(|error| cannot_write(&error))?;
    line.push(b'\n');
    out.write_all(&line).map_err(|error| cannot_write(&error))
}

fn shown(entry: &Entry) -> NodeShown {
    match &entry.node {
        Node::Directory { mode } => NodeShown::Directory { mode: format!("{mode:04o}") },
        Node::File { mode, size, digest } => NodeShown::File {
            mode: format!("{mode:04o}"),
            bytes: *size,
            digest: format!("blake3:{}", hex(digest)),
        },
        Node::Symlink { target } => NodeShown::Symlink { target: printable(target) },
    }
}

fn cannot_write(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(RefusalCode::Failed, "the differences could not be written").detail(error)
}

/// Two sorted lists, side by side.
struct Pairs<'a> {
    from: &'a [Entry],
    to: &'a [Entry],
}

impl<'a> Pairs<'a> {
    fn new(from: &'a Manifest, to: &'a Manifest) -> Self {
        Self { from: from.entries(), to: to.entries() }
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (Option<&'a Entry>, Option<&'a Entry>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.from.first(), self.to.first()) {
            (None, None) => return None,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(before), Some(after)) => before.path.cmp(&after.path),
        };
        let before = if order == Ordering::Greater { None } else { take_first(&mut self.from) };
        let after = if order == Ordering::Less { None } else { take_first(&mut self.to) };
        Some((before, after))
    }
}

fn take_first<'a>(list: &mut &'a [Entry]) -> Option<&'a Entry> {
    let (first, rest) = list.split_first()?;
    *list = rest;
    Some(first)
}
