//! What can only be done when every member has landed.

use super::materialise::Materialiser;
use crate::job::{ImportOutcome, Note, Refusal, SkipReason};
use crate::names::quoted;
use crate::refusal::Attempt;
use crate::tree::{self, Time, Walk, open_directory, split, stat_leaf};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, futimens, openat2, unlinkat};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::CString;

/// What landed and is to be looked at again.
#[derive(Debug, Default)]
pub(super) struct Landed {
    pub(super) directories: Vec<(Vec<u8>, Time)>,
    pub(super) symlinks: Vec<Vec<u8>>,
    /// Files that look like AppleDouble by name and content.
    pub(super) side_files: Vec<Vec<u8>>,
}

impl Materialiser<'_> {
    /// Drops links that lead out and side files of macOS, sets the times of directories, counts
    /// the tree and brings it to disk.
    pub(super) fn settle(mut self) -> Result<ImportOutcome, Refusal> {
        let landed = std::mem::take(&mut self.landed);
        for path in &landed.symlinks {
            self.drop_if_it_leads_out(path)?;
        }
        for path in &landed.side_files {
            self.drop_if_beside_its_file(path)?;
        }
        self.set_directory_times(landed.directories)?;
        self.count()?;
        rustix::fs::syncfs(self.out).attempt(|| "the imported tree".to_owned(), "syncfs")?;
        Ok(self.outcome)
    }

    /// Asks the kernel whether the link, followed with all links on the way, leaves the root.
    fn drop_if_it_leads_out(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        match openat2(self.out, path, flags, Mode::empty(), resolve) {
            Err(Errno::XDEV) => self.unlink(path, FileType::Symlink, SkipReason::LinkOutside),
            // It leads to something within, to nothing, or round in a circle.
            Ok(_) | Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => Ok(()),
            Err(Errno::NAMETOOLONG | Errno::ACCESS) => Ok(()),
            Err(errno) => Err(Refusal::call(&quoted(path), "openat2", errno)),
        }
    }

    /// `._name` is dropped when there is a `name`; a file somebody called so alone stays.
    fn drop_if_beside_its_file(&mut self, path: &[u8]) -> Result<(), Refusal> {
        let (directory, name) = split(path);
        let parent = open_directory(self.out, directory).attempt(|| quoted(path), "openat2")?;
        match rustix::fs::statat(&parent, &name.to_bytes()[2..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => self.unlink(path, FileType::RegularFile, SkipReason::ArchiverMetadata),
            Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Refusal::call(&quoted(path), "fstatat", errno)),
        }
    }

    /// Unlinks a leaf if it still is what it was when it landed; a later member can have taken its
    /// place.
    pub(super) fn unlink(
        &mut self,
        path: &[u8],
        kind: FileType,
        reason: SkipReason,
    ) -> Result<(), Refusal> {
        let (directory, name) = split(path);
        let parent = open_directory(self.out, directory).attempt(|| quoted(path), "openat2")?;
        let found = match stat_leaf(&parent, &name) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Refusal::call(&quoted(path), "fstatat", errno)),
        };
        if tree::file_type(&found) != kind {
            return Ok(());
        }
        unlinkat(&parent, &name, AtFlags::empty()).attempt(|| quoted(path), "unlinkat")?;
        self.outcome.written = self.outcome.written.saturating_sub(1);
        self.skip(path, reason);
        Ok(())
    }

    /// Sets the times of directories after all that is in them has been written, the last of
    /// several members for one directory last.
    fn set_directory_times(&self, directories: Vec<(Vec<u8>, Time)>) -> Result<(), Refusal> {
        for (path, mtime) in directories {
            let directory = open_directory(self.out, &path).attempt(|| quoted(&path), "openat2")?;
            futimens(&directory, &mtime.as_timestamps()).attempt(|| quoted(&path), "futimens")?;
        }
        Ok(())
    }

    /// Names that differ only by case, or are no UTF-8, cannot be unpacked everywhere.
    fn note_similar_names(&mut self, names: &[CString]) {
        let mut folded = HashSet::with_capacity(names.len());
        for name in names {
            let note = match name.to_str() {
                Ok(text) if folded.insert(text.to_lowercase()) => continue,
                Ok(_) => Note::NamesDifferOnlyByCase,
                Err(_) => Note::NamesNotUtf8,
            };
            *self.outcome.notes.entry(note).or_default() += 1;
        }
    }

    fn count(&mut self) -> Result<(), Refusal> {
        // What was there before counts too; only the new members have a limit.
        let limits = crate::job::Limits { entries_max: u64::MAX, ..*self.limits };
        let mut walk = Walk::new(self.out, &limits);
        while let Some(directory) = walk.next_directory()? {
            self.note_similar_names(&directory.names);
            for name in &directory.names {
                let path = || quoted(&directory.path_of(name));
                let found = stat_leaf(&directory.fd, name).attempt(path, "fstatat")?;
                match tree::file_type(&found) {
                    FileType::RegularFile => {
                        self.outcome.count += 1;
                        self.outcome.bytes += u64::try_from(found.st_size).unwrap_or(0);
                    }
                    FileType::Directory => walk.descend(directory.path_of(name)),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}
