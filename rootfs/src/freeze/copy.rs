//! Copies one file into a new inode and hashes it on the way.

use super::reference::References;
use super::{finish_inode, frozen_mode};
use crate::job::{Refusal, RefusalCode};
use crate::manifest::{Digest, Entry, Node};
use crate::names::quoted;
use crate::refusal::Attempt;
use crate::tree::{Directory, Time, open_file, stat_leaf, subject};
use rustix::fs::{Mode, OFlags, SeekFrom, Stat, fstat, ftruncate, ioctl_ficlone, openat, seek};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const BUFFER_BYTES: usize = 512 << 10;

/// A directory of the tree and the one that comes to be.
pub(super) struct Pair {
    pub(super) source: Directory,
    pub(super) target: OwnedFd,
}

/// One file to be frozen.
pub(super) struct Task {
    pub(super) pair: Arc<Pair>,
    pub(super) name: CString,
    pub(super) path: Vec<u8>,
    pub(super) found: Stat,
}

/// One file that is frozen.
pub(super) struct Frozen {
    pub(super) entry: Entry,
    /// Its size, when it was linked from a reference.
    pub(super) linked_bytes: Option<u64>,
}

/// Freezes files; shared by the threads that do.
pub(super) struct Copier<'a> {
    references: &'a References,
    /// Whether the file system may share blocks between files; false once it said no.
    can_clone: AtomicBool,
}

impl<'a> Copier<'a> {
    pub(super) fn new(references: &'a References) -> Self {
        Self { references, can_clone: AtomicBool::new(true) }
    }

    pub(super) fn buffer() -> Vec<u8> {
        vec![0; BUFFER_BYTES]
    }

    pub(super) fn freeze_file(&self, task: Task, buffer: &mut [u8]) -> Result<Frozen, Refusal> {
        let Task { pair, name, path, found } = &task;
        let source = open_source(&pair.source.fd, name, path, found)?;
        let mut candidates = self.references.candidates(path, found).peekable();
        if candidates.peek().is_some() {
            let digest = hash(&source, path, buffer)?;
            check_unchanged(&source, path, found)?;
            for candidate in candidates.filter(|candidate| candidate.digest == digest) {
                if candidate.link_into(path, &pair.target, name)? {
                    let linked_bytes = u64::try_from(found.st_size).ok();
                    let entry = candidate.entry.clone();
                    return Ok(Frozen { entry, linked_bytes });
                }
            }
            seek(&source, SeekFrom::Start(0)).attempt(|| subject(path), "lseek")?;
        }
        let copy = Copy { source, name, path, found };
        let entry = copy.make_in(&pair.target, &self.can_clone, buffer)?;
        Ok(Frozen { entry, linked_bytes: None })
    }
}

/// Copies the file `name` of one directory into another, without looking at references.
pub(super) fn copy_anew(
    directory: &OwnedFd,
    target: &OwnedFd,
    name: &CStr,
    path: &[u8],
) -> Result<Entry, Refusal> {
    let found = stat_leaf(directory, name).attempt(|| subject(path), "fstatat")?;
    let source = open_source(directory, name, path, &found)?;
    let copy = Copy { source, name, path, found: &found };
    copy.make_in(target, &AtomicBool::new(false), &mut Copier::buffer())
}

fn open_source(
    directory: &OwnedFd,
    name: &CStr,
    path: &[u8],
    found: &Stat,
) -> Result<OwnedFd, Refusal> {
    open_file(directory, name, found).map_err(|errno| match errno {
        Errno::STALE | Errno::NOENT | Errno::LOOP => changed(path),
        _ => Refusal::call(&subject(path), "openat2", errno),
    })
}

struct Copy<'a> {
    source: OwnedFd,
    name: &'a CStr,
    path: &'a [u8],
    found: &'a Stat,
}

impl Copy<'_> {
    fn make_in(
        &self,
        directory: &OwnedFd,
        can_clone: &AtomicBool,
        buffer: &mut [u8],
    ) -> Result<Entry, Refusal> {
        let at = || subject(self.path);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let target =
            openat(directory, self.name, flags, Mode::RUSR | Mode::WUSR).attempt(at, "openat")?;
        let digest = if self.clone_blocks(&target, can_clone) {
            hash(&target, self.path, buffer)?
        } else {
            self.copy_bytes(&target, buffer)?
        };
        check_unchanged(&self.source, self.path, self.found)?;
        let mode = frozen_mode(self.found);
        finish_inode(&target, mode, Time::modified(self.found))
            .attempt(at, "fchmod or futimens")?;
        let made = fstat(&target).attempt(at, "fstat")?;
        if made.st_size != self.found.st_size {
            return Err(changed(self.path));
        }
        let size = u64::try_from(made.st_size).unwrap_or(0);
        Ok(Entry {
            path: self.path.into(),
            mtime: Time::modified(&made),
            node: Node::File { mode, size, digest },
        })
    }

    /// Shares the blocks with the new file where the file system can; a write to either then goes
    /// into blocks of its own.
    fn clone_blocks(&self, target: &OwnedFd, can_clone: &AtomicBool) -> bool {
        if self.found.st_size == 0 || !can_clone.load(Ordering::Relaxed) {
            return false;
        }
        // Whatever the reason is, the copy that follows meets it again if it is one for it too.
        let cloned = ioctl_ficlone(target, &self.source).is_ok();
        if !cloned {
            can_clone.store(false, Ordering::Relaxed);
        }
        cloned
    }

    fn copy_bytes(&self, target: &OwnedFd, buffer: &mut [u8]) -> Result<Digest, Refusal> {
        let at = || subject(self.path);
        let mut hasher = blake3::Hasher::new();
        let has_holes = self.found.st_blocks.saturating_mul(512) < self.found.st_size;
        let mut ends_in_hole = false;
        loop {
            let count = rustix::io::read(&self.source, &mut *buffer).attempt(at, "read")?;
            if count == 0 {
                break;
            }
            let bytes = &buffer[..count];
            hasher.update(bytes);
            ends_in_hole = has_holes && bytes.iter().all(|byte| *byte == 0);
            if ends_in_hole {
                let ahead = i64::try_from(count).unwrap_or(i64::MAX);
                seek(target, SeekFrom::Current(ahead)).attempt(at, "lseek")?;
            } else {
                write_all(target, bytes).attempt(at, "write")?;
            }
        }
        if ends_in_hole {
            let size = u64::try_from(self.found.st_size).unwrap_or(0);
            ftruncate(target, size).attempt(at, "ftruncate")?;
        }
        Ok(*hasher.finalize().as_bytes())
    }
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let written = rustix::io::write(file, bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// The digest of a file from its present position to its end.
pub(crate) fn hash(file: &OwnedFd, path: &[u8], buffer: &mut [u8]) -> Result<Digest, Refusal> {
    let mut hasher = blake3::Hasher::new();
    loop {
        match rustix::io::read(file, &mut *buffer).attempt(|| subject(path), "read")? {
            0 => return Ok(*hasher.finalize().as_bytes()),
            count => hasher.update(&buffer[..count]),
        };
    }
}

/// Nothing runs in a build that is frozen; if something does after all, this tells.
fn check_unchanged(file: &OwnedFd, path: &[u8], before: &Stat) -> Result<(), Refusal> {
    let after = fstat(file).attempt(|| subject(path), "fstat")?;
    let mark = |stat: &Stat| {
        (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
    };
    if mark(&after) == mark(before) { Ok(()) } else { Err(changed(path)) }
}

fn changed(path: &[u8]) -> Refusal {
    let message = format!("{} changed while it was read", quoted(path));
    Refusal::new(RefusalCode::ChangedWhileRead, message)
}
