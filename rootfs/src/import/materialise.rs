//! Writes members of an archive below a directory.
//!
//! Parents are opened by the kernel below the root, through no symlink; leaves are made
//! exclusively, after what had the name before was unlinked. So a link that came out of the
//! archive, or was there before, is never written through.

use super::member::{Data, Kind, Member};
use super::parents::{Parents, conflict, directory_there};
use super::settle::Landed;
use super::wrapper::{APPLE_DOUBLE, Roots, is_known_metadata};
use crate::job::{ImportOutcome, Limits, Progress, Refusal, RefusalCode, SkipReason, Skipped};
use crate::names::{NameFault, parts_of, printable, quoted};
use crate::refusal::Attempt;
use crate::tree::{self, open_directory, split, stat_leaf, too_many_entries};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fchmod, futimens, linkat, mkdirat, openat};
use rustix::fs::{SeekFrom, ftruncate, seek, symlinkat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

/// The most dropped members that are named in the outcome.
const EXAMPLES_MAX: usize = 20;

/// Why a member was not written.
pub(super) enum Fault {
    /// It is dropped and counted.
    Skip(SkipReason),
    /// The archive is refused.
    Refuse(Refusal),
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        Self::Refuse(refusal)
    }
}

impl From<SkipReason> for Fault {
    fn from(reason: SkipReason) -> Self {
        Self::Skip(reason)
    }
}

impl From<NameFault> for Fault {
    fn from(fault: NameFault) -> Self {
        match fault {
            NameFault::Skip(reason) => Self::Skip(reason),
            NameFault::Refuse(refusal) => Self::Refuse(refusal),
        }
    }
}

/// An import that is under way.
pub(super) struct Materialiser<'a> {
    pub(super) out: BorrowedFd<'a>,
    pub(super) limits: &'a Limits,
    wrapper: Option<Vec<u8>>,
    pub(super) roots: Roots,
    parents: Parents<'a>,
    /// What is to be looked at once everything landed.
    pub(super) landed: Landed,
    pub(super) outcome: ImportOutcome,
    entries: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

impl<'a> Materialiser<'a> {
    pub(super) fn new(out: BorrowedFd<'a>, limits: &'a Limits, wrapper: Option<Vec<u8>>) -> Self {
        let outcome = ImportOutcome {
            wrapper_stripped: wrapper.as_deref().map(printable),
            ..ImportOutcome::default()
        };
        Self {
            out,
            limits,
            wrapper,
            roots: Roots::default(),
            parents: Parents::new(out),
            landed: Landed::default(),
            outcome,
            entries: 0,
            bytes: 0,
            buffer: vec![0; 256 << 10],
        }
    }

    pub(super) fn progress(&self) -> Progress {
        Progress { entries: self.entries, bytes: self.bytes }
    }

    /// Writes one member, or drops and counts it.
    pub(super) fn land(&mut self, member: &Member, data: &mut Data<'_>) -> Result<(), Refusal> {
        self.entries += 1;
        match self.write(member, data) {
            Ok(()) => {}
            Err(Fault::Skip(reason)) => self.skip(&member.name, reason),
            Err(Fault::Refuse(refusal)) => return Err(refusal),
        }
        for note in &member.notes {
            *self.outcome.notes.entry(*note).or_default() += 1;
        }
        // A few long paths name many directories.
        if self.entries + self.parents.made > self.limits.entries_max {
            return Err(too_many_entries(self.limits));
        }
        Ok(())
    }

    pub(super) fn skip(&mut self, name: &[u8], reason: SkipReason) {
        self.outcome.skipped += 1;
        *self.outcome.skipped_reasons.entry(reason).or_default() += 1;
        if self.outcome.skipped_examples.len() < EXAMPLES_MAX {
            self.outcome.skipped_examples.push(Skipped { name: printable(name), reason });
        }
    }

    fn write(&mut self, member: &Member, data: &mut Data<'_>) -> Result<(), Fault> {
        match member.kind {
            Kind::Device => return Err(SkipReason::Device.into()),
            Kind::Fifo => return Err(SkipReason::Fifo.into()),
            Kind::Unknown => return Err(SkipReason::UnknownType.into()),
            Kind::File | Kind::Directory | Kind::Symlink | Kind::HardLink => {}
        }
        let path = self.path_of(&member.name, member.kind)?;
        if path.is_empty() {
            // The root itself; its mode is the caller's.
            return match member.kind {
                Kind::Directory => Ok(()),
                _ => Err(SkipReason::BadName.into()),
            };
        }
        if !may_be_side_file(&path, member.kind) {
            self.roots.see(&path, member.kind);
        }
        match member.kind {
            Kind::Directory => return self.make_directory(&path, member),
            Kind::Symlink => self.make_symlink(&path, member)?,
            Kind::HardLink => self.make_hard_link(&path, member)?,
            _ => self.make_file(&path, member, data)?,
        }
        self.outcome.written += 1;
        Ok(())
    }

    /// Where a name of the archive lands, relative to the root.
    fn path_of(&self, name: &[u8], kind: Kind) -> Result<Vec<u8>, Fault> {
        let parts = parts_of(name, self.limits)?;
        if is_known_metadata(&parts, kind) {
            return Err(SkipReason::ArchiverMetadata.into());
        }
        let parts = match (&self.wrapper, parts.split_first()) {
            (Some(wrapper), Some((first, below))) if first == wrapper => below,
            // Beside the wrapper only metadata was found.
            (Some(_), Some(_)) => return Err(SkipReason::ArchiverMetadata.into()),
            _ => &parts[..],
        };
        Ok(parts.join(&b'/'))
    }

    fn make_file(
        &mut self,
        path: &[u8],
        member: &Member,
        data: &mut Data<'_>,
    ) -> Result<(), Fault> {
        self.check_bytes(path, member.size)?;
        let (directory, name) = split(path);
        let parent = self.parents.open(directory, path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = replacing(&parent, &name, path, "openat", || {
            openat(&parent, &name, flags, Mode::RUSR | Mode::WUSR)
        })?;
        let begins = self.copy(path, data, &file)?;
        let mode = if member.executable { 0o755 } else { 0o644 };
        fchmod(&file, Mode::from_raw_mode(mode)).attempt(|| quoted(path), "fchmod")?;
        futimens(&file, &member.mtime.as_timestamps()).attempt(|| quoted(path), "futimens")?;
        if begins == APPLE_DOUBLE && name.to_bytes().starts_with(b"._") {
            self.landed.side_files.push(path.to_vec());
        } else if may_be_side_file(path, member.kind) {
            self.roots.see(path, member.kind);
        }
        self.parents.keep(directory, parent);
        Ok(())
    }

    fn check_bytes(&self, path: &[u8], size: u64) -> Result<(), Refusal> {
        if size > self.limits.file_bytes_max {
            let message = format!(
                "the file {} has {size} bytes; {} are allowed",
                quoted(path),
                self.limits.file_bytes_max
            );
            return Err(
                Refusal::new(RefusalCode::FileTooLarge, message).limit(self.limits.file_bytes_max)
            );
        }
        if self.bytes.saturating_add(size) > self.limits.bytes_max {
            let message = format!(
                "with the file {} the archive has more than {} bytes",
                quoted(path),
                self.limits.bytes_max
            );
            return Err(
                Refusal::new(RefusalCode::TreeTooLarge, message).limit(self.limits.bytes_max)
            );
        }
        Ok(())
    }

    /// Copies the data of a member; returns its first four bytes.
    fn copy(
        &mut self,
        path: &[u8],
        data: &mut Data<'_>,
        file: &OwnedFd,
    ) -> Result<[u8; 4], Refusal> {
        let mut begins = [0; 4];
        let (mut at_start, mut ends_in_hole) = (true, false);
        loop {
            let hole = data.pass_hole();
            if hole > 0 {
                (at_start, ends_in_hole) = (false, true);
                self.bytes += hole;
                seek(file, SeekFrom::Current(hole.cast_signed()))
                    .attempt(|| quoted(path), "lseek")?;
            }
            let count = data.read(&mut self.buffer)?;
            if count == 0 {
                break;
            }
            ends_in_hole = false;
            if std::mem::take(&mut at_start) && count >= begins.len() {
                begins.copy_from_slice(&self.buffer[..4]);
            }
            self.bytes += count as u64;
            let mut rest = &self.buffer[..count];
            while !rest.is_empty() {
                let written = rustix::io::write(file, rest).attempt(|| quoted(path), "write")?;
                rest = &rest[written..];
            }
        }
        if ends_in_hole {
            // Only what is written makes a file longer.
            let end = seek(file, SeekFrom::Current(0)).attempt(|| quoted(path), "lseek")?;
            ftruncate(file, end).attempt(|| quoted(path), "ftruncate")?;
        }
        Ok(begins)
    }

    fn make_directory(&mut self, path: &[u8], member: &Member) -> Result<(), Fault> {
        let (directory, name) = split(path);
        let parent = self.parents.open(directory, path)?;
        match mkdirat(&parent, &name, Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            Err(Errno::EXIST) => self.replace_by_directory(&parent, &name, path)?,
            Err(errno) => return Err(Refusal::call(&quoted(path), "mkdirat", errno).into()),
        }
        self.landed.directories.push((path.to_vec(), member.mtime));
        self.parents.keep(directory, parent);
        Ok(())
    }

    fn replace_by_directory(
        &self,
        parent: &OwnedFd,
        name: &CStr,
        path: &[u8],
    ) -> Result<(), Refusal> {
        let found = stat_leaf(parent, name).attempt(|| quoted(path), "fstatat")?;
        match tree::file_type(&found) {
            FileType::Directory => Ok(()),
            FileType::Symlink => {
                unlinkat(parent, name, AtFlags::empty()).attempt(|| quoted(path), "unlinkat")?;
                let mode = Mode::from_raw_mode(0o755);
                mkdirat(parent, name, mode).attempt(|| quoted(path), "mkdirat")
            }
            _ => Err(conflict(path, path)),
        }
    }

    fn make_symlink(&mut self, path: &[u8], member: &Member) -> Result<(), Fault> {
        check_target(path, &member.link)?;
        let (directory, name) = split(path);
        let parent = self.parents.open(directory, path)?;
        replacing(&parent, &name, path, "symlinkat", || {
            symlinkat(&member.link[..], &parent, &name)
        })?;
        let times = member.mtime.as_timestamps();
        rustix::fs::utimensat(&parent, &name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .attempt(|| quoted(path), "utimensat")?;
        self.landed.symlinks.push(path.to_vec());
        self.parents.keep(directory, parent);
        Ok(())
    }

    /// Links to a file that is in the tree already. The target is a name of the archive, relative
    /// to its root (not to the link, as a symlink's is).
    fn make_hard_link(&mut self, path: &[u8], member: &Member) -> Result<(), Fault> {
        let target = match self.path_of(&member.link, Kind::File) {
            Ok(target) if !target.is_empty() => target,
            Err(Fault::Refuse(refusal)) => return Err(refusal.into()),
            _ => return Err(SkipReason::LinkOutside.into()),
        };
        let (target_directory, target_name) = split(&target);
        let target_parent = match open_directory(self.out, target_directory) {
            Ok(parent) => parent,
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {
                return Err(SkipReason::LinkWithoutFile.into());
            }
            Err(errno) => return Err(Refusal::call(&quoted(&target), "openat2", errno).into()),
        };
        match stat_leaf(&target_parent, &target_name) {
            Ok(found) if tree::is_file(&found) => {}
            Ok(_) | Err(Errno::NOENT) => return Err(SkipReason::LinkWithoutFile.into()),
            Err(errno) => return Err(Refusal::call(&quoted(&target), "fstatat", errno).into()),
        }
        if target == path {
            return Ok(());
        }
        let (directory, name) = split(path);
        let parent = self.parents.open(directory, path)?;
        replacing(&parent, &name, path, "linkat", || {
            linkat(&target_parent, &target_name, &parent, &name, AtFlags::empty())
        })?;
        self.parents.keep(directory, parent);
        Ok(())
    }
}

/// Makes a leaf; what has its name already is unlinked first, unless it is a directory.
fn replacing<T>(
    parent: &OwnedFd,
    name: &CStr,
    path: &[u8],
    call: &str,
    mut make: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Fault> {
    match make() {
        Err(Errno::EXIST) => {}
        Err(Errno::NAMETOOLONG) => return Err(SkipReason::BadName.into()),
        made => return made.attempt(|| quoted(path), call).map_err(Fault::Refuse),
    }
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::ISDIR) => return Err(directory_there(parent, name, path).into()),
        Err(errno) => return Err(Refusal::call(&quoted(path), "unlinkat", errno).into()),
    }
    make().attempt(|| quoted(path), call).map_err(Fault::Refuse)
}

/// Whether a member at the top level is none of the project, should its content say so.
fn may_be_side_file(path: &[u8], kind: Kind) -> bool {
    kind == Kind::File && path.starts_with(b"._") && !path.contains(&b'/')
}

/// Drops symlinks that are absolute or lead out of the root as they are written. Those that lead
/// out by way of other links are found when all links are there ([`super::settle`]).
pub(super) fn check_target(path: &[u8], target: &[u8]) -> Result<(), SkipReason> {
    if target.is_empty() || target.contains(&0) {
        return Err(SkipReason::BadName);
    }
    if target[0] == b'/' {
        return Err(SkipReason::AbsoluteLink);
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => depth = depth.checked_sub(1).ok_or(SkipReason::LinkOutside)?,
            _ => depth += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_judged_from_where_the_link_is() {
        for (path, target, expected) in [
            ("a/b", "../c", Ok(())),
            ("a/b", "..", Ok(())),
            ("a/b/c", "../../x/../y", Ok(())),
            ("a", ".", Ok(())),
            ("a", "missing", Ok(())),
            ("a", "..", Err(SkipReason::LinkOutside)),
            ("a/b", "../../x", Err(SkipReason::LinkOutside)),
            ("a/b", "x/../../../y", Err(SkipReason::LinkOutside)),
            ("a", "/bin/sh", Err(SkipReason::AbsoluteLink)),
            ("a", "", Err(SkipReason::BadName)),
            ("a", "b\0c", Err(SkipReason::BadName)),
        ] {
            let found = check_target(path.as_bytes(), target.as_bytes());
            assert_eq!(found, expected, "{path} -> {target}");
        }
    }
}
