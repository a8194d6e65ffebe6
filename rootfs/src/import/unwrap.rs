//! Moves what a wrapping directory holds one level up, when all of an archive has landed.

use super::materialise::{Materialiser, check_target};
use crate::job::{Refusal, SkipReason};
use crate::names::{printable, quoted};
use crate::refusal::Attempt;
use crate::tree::open_directory;
use rustix::fs::{AtFlags, Dir, FileType, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::BorrowedFd;

/// Whether there is nothing in a directory.
pub(super) fn is_empty(directory: BorrowedFd<'_>) -> Result<bool, Refusal> {
    let what = || "the root of the tree".to_owned();
    let own = open_directory(directory, b"").attempt(what, "openat2")?;
    for entry in Dir::read_from(own).attempt(what, "fdopendir")? {
        let entry = entry.attempt(what, "getdents64")?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Materialiser<'_> {
    /// Makes the content of the single directory at the top level the root, if there is one.
    pub(super) fn unwrap(&mut self) -> Result<(), Refusal> {
        let Some(wrapper) = self.roots.wrapper().map(<[u8]>::to_vec) else { return Ok(()) };
        self.outcome.wrapper_stripped = Some(printable(&wrapper));
        self.drop_what_is_beside()?;
        match move_up(self.out, &wrapper) {
            // Nothing of what it holds could land.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(Refusal::call(&quoted(&wrapper), "renameat", errno)),
        }
        self.shorten_paths(&wrapper);
        self.drop_links_that_lead_out_now()
    }

    /// Beside the wrapper there are only side files of macOS.
    fn drop_what_is_beside(&mut self) -> Result<(), Refusal> {
        let side_files = std::mem::take(&mut self.landed.side_files);
        let (below, beside): (Vec<_>, Vec<_>) =
            side_files.into_iter().partition(|path| path.contains(&b'/'));
        for path in beside {
            self.unlink(&path, FileType::RegularFile, SkipReason::ArchiverMetadata)?;
        }
        self.landed.side_files = below;
        Ok(())
    }

    fn shorten_paths(&mut self, wrapper: &[u8]) {
        let prefix = wrapper.len() + 1;
        let shorten = |path: &mut Vec<u8>| drop(path.drain(..prefix));
        self.landed.directories.retain(|(path, _)| path != wrapper);
        self.landed.directories.iter_mut().for_each(|(path, _)| shorten(path));
        self.landed.symlinks.iter_mut().for_each(shorten);
        self.landed.side_files.iter_mut().for_each(shorten);
    }

    /// A link that led to the wrapper from within now leads out of the root.
    fn drop_links_that_lead_out_now(&mut self) -> Result<(), Refusal> {
        let symlinks = std::mem::take(&mut self.landed.symlinks);
        for path in symlinks {
            match self.target_of(&path)? {
                Some(target) if check_target(&path, &target).is_err() => {
                    self.unlink(&path, FileType::Symlink, SkipReason::LinkOutside)?;
                }
                _ => self.landed.symlinks.push(path),
            }
        }
        Ok(())
    }

    /// What a link that landed points to; nothing when a later member took its place.
    fn target_of(&self, path: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        let (directory, name) = crate::tree::split(path);
        let parent = open_directory(self.out, directory).attempt(|| quoted(path), "openat2")?;
        match rustix::fs::readlinkat(&parent, &name, Vec::new()) {
            Ok(target) => Ok(Some(target.into_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => Ok(None),
            Err(errno) => Err(Refusal::call(&quoted(path), "readlinkat", errno)),
        }
    }
}

/// Moves everything in `out/wrapper` to `out` and removes the directory. It is called something
/// else first, because one of the names in it can be its own.
fn move_up(out: BorrowedFd<'_>, wrapper: &[u8]) -> Result<(), Errno> {
    let directory = open_directory(out, wrapper)?;
    let mut names: Vec<CString> = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    let aside = unused_name(&names);
    renameat(out, wrapper, out, &aside)?;
    for name in &names {
        renameat(&directory, name, out, name)?;
    }
    unlinkat(out, &aside, AtFlags::REMOVEDIR)
}

fn unused_name(names: &[CString]) -> CString {
    let mut number = 0u64;
    loop {
        let name = CString::new(format!(".unwrapping-{number}")).expect("it has no NUL");
        if !names.contains(&name) {
            return name;
        }
        number += 1;
    }
}
