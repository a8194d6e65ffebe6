//! The directories that members of an archive go into.

use super::materialise::Fault;
use crate::job::{Refusal, RefusalCode, SkipReason};
use crate::names::quoted;
use crate::refusal::Attempt;
use crate::tree::{join, open_directory};
use rustix::fs::{Dir, Mode, mkdirat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Opens parents, and makes them where they are missing.
pub(super) struct Parents<'a> {
    out: BorrowedFd<'a>,
    /// That of the last member, since most have the same one as their neighbour. An import never
    /// removes a directory, so it stays what its path names.
    last: Option<(Vec<u8>, OwnedFd)>,
    /// Directories that were made because a member goes into them.
    pub(super) made: u64,
}

impl<'a> Parents<'a> {
    pub(super) fn new(out: BorrowedFd<'a>) -> Self {
        Self { out, last: None, made: 0 }
    }

    /// Opens the directory of the member that lands at `path`.
    pub(super) fn open(&mut self, directory: &[u8], path: &[u8]) -> Result<OwnedFd, Fault> {
        if let Some((_, parent)) = self.last.take_if(|(last, _)| last == directory) {
            return Ok(parent);
        }
        match open_directory(self.out, directory) {
            Ok(parent) => Ok(parent),
            Err(Errno::NOENT) => self.make(directory, path),
            Err(errno) => Err(self.fault(directory, path, errno)),
        }
    }

    /// Keeps the directory of a member open for the next one.
    pub(super) fn keep(&mut self, directory: &[u8], parent: OwnedFd) {
        self.last = Some((directory.to_vec(), parent));
    }

    fn make(&mut self, directory: &[u8], path: &[u8]) -> Result<OwnedFd, Fault> {
        let mut parent = open_directory(self.out, b"").attempt(|| quoted(path), "openat2")?;
        for part in directory.split(|byte| *byte == b'/') {
            match mkdirat(&parent, part, Mode::from_raw_mode(0o755)) {
                Ok(()) => self.made += 1,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(Refusal::call(&quoted(path), "mkdirat", errno).into()),
            }
            parent = open_directory(parent.as_fd(), part)
                .map_err(|errno| self.fault(directory, path, errno))?;
        }
        Ok(parent)
    }

    fn fault(&self, directory: &[u8], path: &[u8], errno: Errno) -> Fault {
        match errno {
            Errno::LOOP => SkipReason::ThroughSymlink.into(),
            Errno::NOTDIR => conflict(&self.file_above(directory), path).into(),
            Errno::XDEV => {
                let message = format!("{} would land on a mount", quoted(path));
                Refusal::new(RefusalCode::MountInTree, message).into()
            }
            _ => Refusal::call(&quoted(path), "openat2", errno).into(),
        }
    }

    /// The part of a path that is no directory.
    fn file_above(&self, directory: &[u8]) -> Vec<u8> {
        let mut path = Vec::new();
        for part in directory.split(|byte| *byte == b'/') {
            path = join(&path, part);
            if open_directory(self.out, &path).is_err_and(|errno| errno == Errno::NOTDIR) {
                break;
            }
        }
        path
    }
}

/// The refusal of a file whose name a directory has, with a name that is in it.
pub(super) fn directory_there(parent: &OwnedFd, name: &CStr, path: &[u8]) -> Refusal {
    let below = open_directory(parent.as_fd(), name.to_bytes()).and_then(|directory| {
        let mut names = Dir::read_from(&directory)?.filter_map(Result::ok);
        Ok(names.find(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")))
    });
    let mut refusal = conflict(path, path);
    // It is for the message only; a directory can be empty.
    if let Ok(Some(below)) = below {
        let below = quoted(&join(path, below.file_name().to_bytes()));
        refusal.message.push_str(&format!(": {below} is below it"));
    }
    refusal
}

/// The refusal of a name that is a file and a directory.
pub(super) fn conflict(file: &[u8], path: &[u8]) -> Refusal {
    let message = if file == path {
        format!("{} is a file and a directory", quoted(file))
    } else {
        format!("{} is a file, and {} would be below it", quoted(file), quoted(path))
    };
    Refusal::new(RefusalCode::NameConflict, message)
}
