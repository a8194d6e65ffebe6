//! Verify: whether a frozen tree is still what its manifest says, byte by byte.

use crate::crew::{self, FeedEnd, Tasks};
use crate::freeze::hash_file;
use crate::job::{Difference, Limits, MISMATCHES_MAX, Mismatch, Progress, Refusal, VerifyOutcome};
use crate::manifest::{Digest, Entry, Manifest, Node, hex};
use crate::names::printable;
use crate::refusal::Attempt;
use crate::tree::{self, CONFINED, Directory, Time, Walk, file_type, open_directory, stat_leaf};
use rustix::fs::{FileType, Mode, OFlags, Stat, openat2};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::BufReader;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Reads `tree` and `manifest` below `version` and compares them.
///
/// # Errors
/// [`crate::job::RefusalCode::CorruptManifest`] when the manifest does not agree with itself;
/// differences of the tree are no error.
pub fn verify(
    version: BorrowedFd<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<VerifyOutcome, Refusal> {
    let (manifest, digest) = read_manifest(version)?;
    let root = open_directory(version, b"tree").attempt(|| "the tree".to_owned(), "openat2")?;
    // A tree that grew beyond what can be frozen is a difference to be told, not a refusal.
    let limits = Limits::unlimited();
    let mut comparison = Comparison {
        walk: Walk::new(root.as_fd(), &limits),
        manifest: &manifest,
        seen: vec![false; manifest.entries().len()],
        differences: Vec::new(),
        done: Progress::default(),
    };
    let contents = crew::run(
        || vec![0; 512 << 10],
        |buffer, task| Ok(check_content(&task, buffer)),
        |tasks| comparison.hand_out(tasks, progress),
    )?;
    let files = contents.len() as u64;
    let bytes = comparison.done.bytes;
    let mut differences = comparison.finish();
    differences.extend(contents.into_iter().flatten());
    differences.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(VerifyOutcome {
        root_digest: hex(&digest),
        files,
        bytes,
        mismatch_count: differences.len() as u64,
        mismatches: differences.into_iter().take(MISMATCHES_MAX).map(shown).collect(),
    })
}

pub(crate) fn read_manifest(version: BorrowedFd<'_>) -> Result<(Manifest, Digest), Refusal> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat2(version, "manifest", flags, Mode::empty(), CONFINED)
        .attempt(|| "the manifest".to_owned(), "openat2")?;
    Manifest::read_from(&mut BufReader::with_capacity(256 << 10, File::from(file)))
}

type Found = (Box<[u8]>, Difference);

fn shown((path, what): Found) -> Mismatch {
    let path = if path.is_empty() { ".".to_owned() } else { printable(&path) };
    Mismatch { path, what }
}

/// A file whose content is to be compared.
struct Content {
    directory: Arc<Directory>,
    name: CString,
    stat: Stat,
    digest: Digest,
}

fn check_content(task: &Content, buffer: &mut [u8]) -> Option<Found> {
    let path = task.directory.path_of(&task.name);
    let read = tree::open_file(&task.directory.fd, &task.name, &task.stat)
        .attempt(|| tree::subject(&path), "openat2")
        .and_then(|file| hash_file(&file, &path, buffer));
    match read {
        Ok(digest) if digest == task.digest => None,
        Ok(_) => Some((path.into(), Difference::Content)),
        Err(_) => Some((path.into(), Difference::Unreadable)),
    }
}

struct Comparison<'a> {
    walk: Walk<'a>,
    manifest: &'a Manifest,
    seen: Vec<bool>,
    differences: Vec<Found>,
    done: Progress,
}

impl Comparison<'_> {
    fn hand_out(
        &mut self,
        tasks: &Tasks<'_, Content>,
        progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
    ) -> Result<(), FeedEnd> {
        while let Some(directory) = self.walk.next_directory()? {
            let directory = Arc::new(directory);
            if directory.path.is_empty() {
                let stat =
                    rustix::fs::fstat(&directory.fd).attempt(|| tree::subject(b""), "fstat")?;
                self.compare(&directory, c".", b"", stat);
            }
            for name in &directory.names {
                let path = directory.path_of(name);
                let stat =
                    stat_leaf(&directory.fd, name).attempt(|| tree::subject(&path), "fstatat")?;
                self.done.entries += 1;
                if let Some(content) = self.compare(&directory, name, &path, stat) {
                    self.done.bytes += u64::try_from(stat.st_size).unwrap_or(0);
                    tasks.give(content)?;
                }
            }
            progress(self.done)?;
        }
        Ok(())
    }

    /// Compares what is known without reading; a file whose content is to be read is returned.
    fn compare(
        &mut self,
        directory: &Arc<Directory>,
        name: &CStr,
        path: &[u8],
        stat: Stat,
    ) -> Option<Content> {
        let manifest = self.manifest;
        let Some(position) = manifest.position(path) else {
            self.differences.push((path.into(), Difference::Extra));
            return None;
        };
        self.seen[position] = true;
        let entry = &manifest.entries()[position];
        if Time::modified(&stat) != entry.mtime {
            self.differences.push((path.into(), Difference::Mtime));
        }
        match (&entry.node, file_type(&stat)) {
            (Node::Directory { mode }, FileType::Directory) => {
                self.compare_mode(path, *mode, &stat);
                if !path.is_empty() {
                    self.walk.descend(path.to_vec());
                }
                None
            }
            (Node::File { mode, size, digest }, FileType::RegularFile) => {
                self.compare_mode(path, *mode, &stat);
                if u64::try_from(stat.st_size) != Ok(*size) {
                    self.differences.push((path.into(), Difference::Content));
                    return None;
                }
                let (directory, name) = (directory.clone(), name.to_owned());
                Some(Content { directory, name, stat, digest: *digest })
            }
            (Node::Symlink { target }, FileType::Symlink) => {
                self.compare_target(directory, name, path, target);
                None
            }
            _ => {
                self.differences.push((path.into(), Difference::Type));
                None
            }
        }
    }

    fn compare_mode(&mut self, path: &[u8], mode: u32, stat: &Stat) {
        if stat.st_mode & 0o7777 != mode {
            self.differences.push((path.into(), Difference::Mode));
        }
    }

    fn compare_target(&mut self, directory: &Directory, name: &CStr, path: &[u8], target: &[u8]) {
        let what = match rustix::fs::readlinkat(&directory.fd, name, Vec::new()) {
            Ok(found) if found.to_bytes() == target => return,
            Ok(_) => Difference::LinkTarget,
            Err(_) => Difference::Unreadable,
        };
        self.differences.push((path.into(), what));
    }

    /// The differences without those of content, and with what was not seen.
    fn finish(mut self) -> Vec<Found> {
        let missing = |(entry, seen): (&Entry, &bool)| {
            (!seen).then(|| (entry.path.clone(), Difference::Missing))
        };
        let unseen = self.manifest.entries().iter().zip(&self.seen).filter_map(missing);
        self.differences.extend(unseen);
        self.differences
    }
}
