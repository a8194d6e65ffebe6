//! Remove: deletes a tree that somebody else made, of any depth and with any modes.
//!
//! A recursion, or a descriptor for each level, ends at a few thousand levels, and a path at 4096
//! bytes; a build can go deeper. So beyond [`LEVELS_MAX`] levels a directory is first moved up to
//! the top of the tree that is being removed, and its turn comes there.

use crate::job::{Progress, Refusal, RefusalCode, RemoveOutcome};
use crate::names::quoted;
use crate::refusal::Attempt;
use crate::tree::{CONFINED, file_type, open_directory, stat_leaf};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags};
use rustix::fs::{Stat, chmodat, fchmod, fstat, openat2, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// As [`CONFINED`], but a mount may be entered.
const CONFINED_TO_MOUNT: ResolveFlags = CONFINED.difference(ResolveFlags::NO_XDEV);

/// Directories that are open at the same time.
const LEVELS_MAX: usize = 32;

/// Deletes `name` below `out`. When it is a mount, all that is in it is deleted and it stays,
/// empty.
///
/// Symlinks are deleted, not followed; a mount further down is refused, not entered.
///
/// # Errors
/// [`RefusalCode::NotFound`], [`RefusalCode::MountInTree`], or a failed call with the name it was
/// about. What has been deleted until then stays deleted.
pub fn remove(
    out: BorrowedFd<'_>,
    name: &CStr,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<RemoveOutcome, Refusal> {
    let at = || quoted(name.to_bytes());
    if matches!(name.to_bytes(), b"" | b"." | b"..") || name.to_bytes().contains(&b'/') {
        let message = format!("{} is not the name of one directory", at());
        return Err(Refusal::new(RefusalCode::InvalidOptions, message));
    }
    let found = match stat_leaf(out, name) {
        Ok(found) => found,
        Err(Errno::NOENT) => {
            return Err(Refusal::new(RefusalCode::NotFound, format!("there is no {}", at())));
        }
        Err(errno) => return Err(Refusal::call(&at(), "fstatat", errno)),
    };
    let mut removal = Removal { entries: 0, moved: 0, progress };
    if file_type(&found) != FileType::Directory {
        unlinkat(out, name, AtFlags::empty()).attempt(at, "unlinkat")?;
        return Ok(RemoveOutcome { entries: 1 });
    }
    // A mount cannot be deleted, and what it is mounted on may be read-only.
    let (top, is_mount) = match open_anyhow(out, name, &found, CONFINED) {
        Err(Errno::XDEV) => (open_anyhow(out, name, &found, CONFINED_TO_MOUNT), true),
        opened => (opened, false),
    };
    removal.empty(&top.attempt(at, "openat2")?)?;
    if !is_mount {
        unlinkat(out, name, AtFlags::REMOVEDIR).attempt(at, "unlinkat")?;
        removal.entries += 1;
    }
    Ok(RemoveOutcome { entries: removal.entries })
}

/// Opens a directory for reading, whatever its mode was, and makes sure that the owner can delete
/// in it.
fn open_anyhow(
    parent: impl AsFd,
    name: &CStr,
    found: &Stat,
    resolve: ResolveFlags,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || openat2(&parent, name, flags, Mode::empty(), resolve);
    let directory = match open() {
        Err(Errno::ACCESS) => {
            // There is no fchmod for what cannot be opened. Nothing else runs in this tree any
            // more; should the name have become a link all the same, the open below refuses it.
            chmodat(&parent, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        opened => opened?,
    };
    let opened = fstat(&directory)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) {
        return Err(Errno::STALE);
    }
    if opened.st_mode & 0o700 != 0o700 {
        // Who may not do this may still be allowed to delete; the call that deletes tells.
        let _ = fchmod(&directory, Mode::RWXU);
    }
    Ok(directory)
}

struct Removal<'a> {
    entries: u64,
    moved: u64,
    progress: &'a mut dyn FnMut(Progress) -> Result<(), Refusal>,
}

/// A directory that is being emptied.
struct Level {
    directory: OwnedFd,
    /// Its directories that are still there.
    below: Vec<CString>,
}

impl Removal<'_> {
    /// Deletes everything in a directory.
    fn empty(&mut self, top: &OwnedFd) -> Result<(), Refusal> {
        // Directories that were moved up are found in the next round.
        loop {
            let below = self.unlink_files(top)?;
            if below.is_empty() {
                return Ok(());
            }
            for name in below {
                self.remove_directory(top, name)?;
            }
        }
    }

    /// Deletes one directory below `top` with all that is in it.
    fn remove_directory(&mut self, top: &OwnedFd, name: CString) -> Result<(), Refusal> {
        let mut names = vec![name];
        let mut levels: Vec<Level> = Vec::new();
        while let Some(name) = names.last() {
            let parent = levels.last().map_or(top, |level| &level.directory);
            if levels.len() < names.len() {
                // Just come down to it.
                if levels.len() == LEVELS_MAX {
                    self.move_up(parent, name, top)?;
                    names.pop();
                } else {
                    levels.push(self.enter(parent, name)?);
                }
            } else if let Some(below) = levels.last_mut().and_then(|level| level.below.pop()) {
                names.push(below);
            } else {
                levels.pop();
                let parent = levels.last().map_or(top, |level| &level.directory);
                unlinkat(parent, name, AtFlags::REMOVEDIR)
                    .attempt(|| quoted(name.to_bytes()), "unlinkat")?;
                self.entries += 1;
                names.pop();
            }
        }
        Ok(())
    }

    fn enter(&mut self, parent: &OwnedFd, name: &CStr) -> Result<Level, Refusal> {
        let at = || quoted(name.to_bytes());
        let found = stat_leaf(parent, name).attempt(at, "fstatat")?;
        let directory = match open_anyhow(parent, name, &found, CONFINED) {
            Err(Errno::XDEV) => {
                let message = format!("the directory {} is a mount", at());
                return Err(Refusal::new(RefusalCode::MountInTree, message));
            }
            opened => opened.attempt(at, "openat2")?,
        };
        let below = self.unlink_files(&directory)?;
        Ok(Level { directory, below })
    }

    /// Deletes what is no directory; returns the names of those.
    fn unlink_files(&mut self, directory: &OwnedFd) -> Result<Vec<CString>, Refusal> {
        let mut below = Vec::new();
        let at = |name: &CStr| quoted(name.to_bytes());
        for entry in Dir::read_from(directory).attempt(|| at(c"."), "fdopendir")? {
            let entry = entry.attempt(|| at(c"."), "getdents64")?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            if is_directory(directory, &entry).attempt(|| at(name), "fstatat")? {
                below.push(name.to_owned());
                continue;
            }
            match unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => self.entries += 1,
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(Refusal::call(&at(name), "unlinkat", errno)),
            }
        }
        (self.progress)(Progress { entries: self.entries, bytes: 0 })?;
        Ok(below)
    }

    /// Moves a directory to the top of the tree, under a name that is free there.
    fn move_up(&mut self, parent: &OwnedFd, name: &CStr, top: &OwnedFd) -> Result<(), Refusal> {
        let at = || quoted(name.to_bytes());
        // A directory that moves gets another `..`, which takes the right to write in it.
        let found = stat_leaf(parent, name).attempt(at, "fstatat")?;
        drop(open_anyhow(parent, name, &found, CONFINED).attempt(at, "openat2")?);
        loop {
            self.moved += 1;
            let free = format!(".removing-{}", self.moved);
            match renameat_with(parent, name, top, free, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => {}
                moved => return moved.attempt(at, "renameat2"),
            }
        }
    }
}

fn is_directory(directory: &OwnedFd, entry: &rustix::fs::DirEntry) -> Result<bool, Errno> {
    match entry.file_type() {
        FileType::Directory => Ok(true),
        FileType::Unknown => match stat_leaf(directory, entry.file_name()) {
            Ok(found) => Ok(file_type(&found) == FileType::Directory),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno),
        },
        _ => Ok(false),
    }
}

/// [`remove`] for a name that is not a C string.
///
/// # Errors
/// As [`remove`].
pub fn remove_named(
    out: BorrowedFd<'_>,
    name: &str,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<RemoveOutcome, Refusal> {
    let name = CString::new(name).map_err(|_| {
        Refusal::new(RefusalCode::InvalidOptions, "a name of a directory has no NUL")
    })?;
    // The root itself is opened as every other directory is, so that a root that was handed over
    // as a path only (O_PATH) can be read.
    let out = open_directory(out, b"").attempt(|| "the root".to_owned(), "openat2")?;
    remove(out.as_fd(), &name, progress)
}
