//! Reading a hostile tree by descriptor.
//!
//! Every name is resolved by the kernel below a directory that is already open: no symlink is
//! followed, no mount is entered, nothing above the root is reached, however the tree is made.
//! Directories are opened by their path from the root, one at a time, so that a walk needs few
//! descriptors at any depth.

use crate::job::{Limits, Refusal, RefusalCode};
use crate::names::{check_size, quoted};
use crate::refusal::Attempt;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, openat2, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How names are resolved: below the directory, through no symlink and into no mount.
pub const CONFINED: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// The time of last modification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Since 1970; negative before.
    pub seconds: i64,
    /// 0 to 999,999,999, always forward.
    pub nanoseconds: u32,
}

impl Time {
    /// As `stat` tells it.
    #[must_use]
    pub fn modified(stat: &Stat) -> Self {
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Self { seconds: stat.st_mtime, nanoseconds }
    }

    /// For `utimensat`: this as the time of last modification, the time of access left alone.
    #[must_use]
    pub fn as_timestamps(self) -> rustix::fs::Timestamps {
        let modified =
            rustix::fs::Timespec { tv_sec: self.seconds, tv_nsec: i64::from(self.nanoseconds) };
        let untouched = rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        rustix::fs::Timestamps { last_access: untouched, last_modification: modified }
    }
}

/// Opens a directory for reading by its path below `root`; the empty path is the root.
///
/// # Errors
/// `ELOOP` when a symlink is on the way or at the end, `EXDEV` when a mount is, `ENOTDIR` when
/// something else is.
pub fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { &b"."[..] } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(root, path, flags, Mode::empty(), CONFINED)
}

/// Opens a regular file for reading. What `found` tells must be what is opened.
///
/// Callers look at the type first, so that devices and pipes are never opened; `O_NONBLOCK` is
/// for what could take the file's place in between.
///
/// # Errors
/// `ESTALE` when something else was opened than `found`.
pub fn open_file(directory: impl AsFd, name: &CStr, found: &Stat) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(directory, name, flags, Mode::empty(), CONFINED)?;
    let opened = rustix::fs::fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (found.st_dev, found.st_ino) || !is_file(&opened) {
        return Err(Errno::STALE);
    }
    Ok(file)
}

/// `fstatat` that does not follow a symlink.
///
/// # Errors
/// As `fstatat`.
pub fn stat_leaf(directory: impl AsFd, name: &CStr) -> Result<Stat, Errno> {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// What an entry of a directory is.
#[must_use]
pub fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Whether it is a regular file.
#[must_use]
pub fn is_file(stat: &Stat) -> bool {
    file_type(stat) == FileType::RegularFile
}

/// The directory part and the name of a path.
///
/// # Panics
/// When the name has a NUL, which no path of a tree has.
#[must_use]
pub fn split(path: &[u8]) -> (&[u8], CString) {
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (&b""[..], path),
    };
    (directory, CString::new(name).expect("a path of a tree has no NUL"))
}

/// A path with one more name.
#[must_use]
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    let mut path = Vec::with_capacity(directory.len() + 1 + name.len());
    path.extend_from_slice(directory);
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

/// One directory of a walk, open, with the names in it.
#[derive(Debug)]
pub struct Directory {
    /// Relative to the root of the walk; empty for the root.
    pub path: Vec<u8>,
    /// Open for reading.
    pub fd: OwnedFd,
    /// Its entries, in the order of their bytes.
    pub names: Vec<CString>,
}

impl Directory {
    /// The path of an entry, relative to the root of the walk.
    #[must_use]
    pub fn path_of(&self, name: &CStr) -> Vec<u8> {
        join(&self.path, name.to_bytes())
    }
}

/// Walks a tree, one directory at a time, parents first.
///
/// The caller looks at the entries and says which directories come next ([`Walk::descend`]).
#[derive(Debug)]
pub struct Walk<'a> {
    root: BorrowedFd<'a>,
    limits: &'a Limits,
    pending: Vec<Vec<u8>>,
    entries: u64,
}

impl<'a> Walk<'a> {
    /// Begins with the root.
    #[must_use]
    pub fn new(root: BorrowedFd<'a>, limits: &'a Limits) -> Self {
        Self { root, limits, pending: vec![Vec::new()], entries: 0 }
    }

    /// Puts a directory on the list.
    pub fn descend(&mut self, path: Vec<u8>) {
        self.pending.push(path);
    }

    /// Opens and lists the next directory; nothing when there is none left.
    ///
    /// # Errors
    /// [`RefusalCode::TooManyEntries`], [`RefusalCode::PathTooLong`], [`RefusalCode::PathTooDeep`]
    /// beyond the limits, [`RefusalCode::MountInTree`], or a failed call.
    pub fn next_directory(&mut self) -> Result<Option<Directory>, Refusal> {
        let Some(path) = self.pending.pop() else { return Ok(None) };
        let fd = open_directory(self.root, &path).map_err(|errno| match errno {
            Errno::XDEV => Refusal::new(
                RefusalCode::MountInTree,
                format!("the directory {} is a mount", quoted(&path)),
            ),
            _ => Refusal::call(&subject(&path), "openat2", errno),
        })?;
        let names = self.list(&path, &fd)?;
        Ok(Some(Directory { path, fd, names }))
    }

    fn list(&mut self, path: &[u8], fd: &OwnedFd) -> Result<Vec<CString>, Refusal> {
        let mut names = Vec::new();
        for entry in Dir::read_from(fd).attempt(|| subject(path), "fdopendir")? {
            let entry = entry.attempt(|| subject(path), "getdents64")?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entries += 1;
            if self.entries > self.limits.entries_max {
                return Err(too_many_entries(self.limits));
            }
            self.check_path(path, name)?;
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn check_path(&self, directory: &[u8], name: &CStr) -> Result<(), Refusal> {
        let between = usize::from(!directory.is_empty());
        let bytes = directory.len() + between + name.count_bytes();
        let depth = 1 + between + directory.iter().filter(|byte| **byte == b'/').count();
        check_size(&join(directory, name.to_bytes()), bytes, depth, self.limits)
    }
}

/// The refusal of a tree or an archive with more entries than allowed.
#[must_use]
pub fn too_many_entries(limits: &Limits) -> Refusal {
    let message = format!("there are more than {} files and directories", limits.entries_max);
    Refusal::new(RefusalCode::TooManyEntries, message).limit(limits.entries_max)
}

/// How a path is named in a message.
#[must_use]
pub fn subject(path: &[u8]) -> String {
    if path.is_empty() { "the root of the tree".to_owned() } else { quoted(path) }
}
