//! Freeze: a tree that a build left behind becomes an immutable one in new inodes.
//!
//! New inodes, because a process of the build could still hold a descriptor of the old ones and
//! write through it later. Only files that an earlier frozen tree of the same environment has
//! already are shared with it by a hard link: nobody ever had those open for writing.

mod copy;
mod reference;

use crate::crew::{self, FeedEnd, Tasks};
use crate::flush::while_flushing;
use crate::job::{Durability, FreezeOptions, FreezeOutcome, Progress, Refusal, RefusalCode};
use crate::manifest::{Entry, Manifest, Node, hex};
use crate::names::quoted;
use crate::refusal::Attempt;
use crate::tree::{Directory, Time, Walk, file_type, open_directory, split, stat_leaf, subject};
pub(crate) use copy::hash as hash_file;
use copy::{Copier, Frozen, Task};
use reference::References;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fchmod, futimens, linkat, mkdirat};
use rustix::fs::{openat, symlinkat, utimensat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The permission bits of a frozen file or directory.
///
/// Everybody reads, whoever could execute something still can, and only the owner could write:
/// the store, as which nothing runs. setuid, setgid and sticky are gone. The write bit is there for
/// copies (`cp -a` of a template, what a generator copies with its mode), which belong to whoever
/// makes them; what keeps the tree itself as it is are its owner and its read-only mounts.
#[must_use]
pub fn frozen_mode(stat: &Stat) -> u32 {
    let is_executable = stat.st_mode & 0o111 != 0;
    match file_type(stat) {
        FileType::Directory => 0o755,
        _ if is_executable => 0o755,
        _ => 0o644,
    }
}

/// Freezes `input` into `tree` and `manifest` below `destination`, which is empty.
///
/// Files are hashed as they are copied, or hard-linked from one of the references below `store`
/// when path, size, mode, time and content are the same. Symlinks stay as they are. Hard links
/// within the tree stay hard links. Extended attributes, owners and special bits are left behind.
/// When this returns, all is on disk, unless the options say otherwise.
///
/// # Errors
/// [`RefusalCode::SpecialFile`], [`RefusalCode::MountInTree`] and [`RefusalCode::ChangedWhileRead`]
/// name the path; every passed limit refuses the tree. `destination` then holds a part of it.
pub fn freeze(
    input: BorrowedFd<'_>,
    store: BorrowedFd<'_>,
    destination: BorrowedFd<'_>,
    options: &FreezeOptions,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<FreezeOutcome, Refusal> {
    let references = References::open(store, &options.references)?;
    mkdirat(destination, "tree", Mode::from_raw_mode(0o755)).attempt(|| subject(b""), "mkdirat")?;
    let target = open_directory(destination, b"tree").attempt(|| subject(b""), "openat2")?;
    let copier = Copier::new(&references);
    let mut survey = Survey::new(input, target.as_fd(), options);
    let mut copy_files = || {
        crew::run(
            Copier::buffer,
            |buffer, task| copier.freeze_file(task, buffer),
            |tasks| survey.hand_out(tasks, progress),
        )
    };
    let (frozen, flushed) = match options.durability {
        Durability::Done => while_flushing(destination, &mut copy_files),
        Durability::Later => (copy_files(), Ok(())),
    };
    let (entries, mut outcome) = survey.finish(frozen?)?;
    flushed.attempt(|| "the frozen tree".to_owned(), "syncfs")?;
    outcome.unusable_references = references.unusable;
    outcome.root_digest = write_manifest(destination, Manifest::new(entries))?;
    if options.durability == Durability::Done {
        rustix::fs::syncfs(destination).attempt(|| "the frozen tree".to_owned(), "syncfs")?;
    }
    Ok(outcome)
}

fn write_manifest(destination: BorrowedFd<'_>, manifest: Manifest) -> Result<String, Refusal> {
    let name = || "the manifest".to_owned();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let file = openat(destination, "manifest", flags, Mode::from_raw_mode(0o444))
        .attempt(name, "openat")?;
    let mut writer = BufWriter::with_capacity(256 << 10, File::from(file));
    let written = manifest.write_to(&mut writer).and_then(|digest| {
        writer.flush()?;
        Ok(hex(&digest))
    });
    written.map_err(|error| {
        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
        Refusal::call(&name(), "write", errno)
    })
}

/// Looks at every path once: makes directories and symlinks, and hands files to the copiers.
struct Survey<'a> {
    walk: Walk<'a>,
    input: BorrowedFd<'a>,
    target: BorrowedFd<'a>,
    options: &'a FreezeOptions,
    /// The first path of each file that has several.
    shared: HashMap<(u64, u64), Vec<u8>>,
    /// Further paths of such files, as (first path, further path).
    links: Vec<(Vec<u8>, Vec<u8>)>,
    directories: Vec<(Vec<u8>, Time)>,
    symlinks: Vec<Entry>,
    seen: Progress,
}

impl<'a> Survey<'a> {
    fn new(input: BorrowedFd<'a>, target: BorrowedFd<'a>, options: &'a FreezeOptions) -> Self {
        Self {
            walk: Walk::new(input, &options.limits),
            input,
            target,
            options,
            shared: HashMap::new(),
            links: Vec::new(),
            directories: Vec::new(),
            symlinks: Vec::new(),
            seen: Progress::default(),
        }
    }

    fn hand_out(
        &mut self,
        tasks: &Tasks<'_, Task>,
        progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
    ) -> Result<(), FeedEnd> {
        while let Some(mut source) = self.walk.next_directory()? {
            if source.path.is_empty()
                && let Some(wanted) = &self.options.entries
            {
                source.names.retain(|name| {
                    wanted.iter().any(|wanted| wanted.as_bytes() == name.to_bytes())
                });
            }
            self.hand_out_directory(source, tasks)?;
            progress(self.seen)?;
        }
        Ok(())
    }

    fn hand_out_directory(
        &mut self,
        source: Directory,
        tasks: &Tasks<'_, Task>,
    ) -> Result<(), FeedEnd> {
        let path = source.path.clone();
        let found = rustix::fs::fstat(&source.fd).attempt(|| subject(&path), "fstat")?;
        let target = open_directory(self.target, &path).attempt(|| subject(&path), "openat2")?;
        let pair = Arc::new(copy::Pair { source, target });
        for name in &pair.source.names {
            let path = pair.source.path_of(name);
            let found = stat_leaf(&pair.source.fd, name).attempt(|| subject(&path), "fstatat")?;
            self.seen.entries += 1;
            match file_type(&found) {
                FileType::RegularFile => {
                    self.check_size(&path, &found)?;
                    if self.is_new(&path, &found) {
                        let pair = pair.clone();
                        tasks.give(Task { pair, name: name.clone(), path, found })?;
                    }
                }
                FileType::Directory => {
                    mkdirat(&pair.target, name, Mode::from_raw_mode(0o755))
                        .attempt(|| subject(&path), "mkdirat")?;
                    self.walk.descend(path);
                }
                FileType::Symlink => self.copy_symlink(&pair, name, path, &found)?,
                other => return Err(special(&path, other).into()),
            }
        }
        self.directories.push((path, Time::modified(&found)));
        Ok(())
    }

    fn check_size(&mut self, path: &[u8], found: &Stat) -> Result<(), Refusal> {
        let size = u64::try_from(found.st_size).unwrap_or(0);
        let limits = &self.options.limits;
        if size > limits.file_bytes_max {
            let message = format!(
                "the file {} has {size} bytes; {} are allowed",
                quoted(path),
                limits.file_bytes_max
            );
            return Err(
                Refusal::new(RefusalCode::FileTooLarge, message).limit(limits.file_bytes_max)
            );
        }
        self.seen.bytes = self.seen.bytes.saturating_add(size);
        if self.seen.bytes > limits.bytes_max {
            let message = format!("the tree has more than {} bytes", limits.bytes_max);
            return Err(Refusal::new(RefusalCode::TreeTooLarge, message).limit(limits.bytes_max));
        }
        Ok(())
    }

    /// Whether no other path of this file has been seen yet.
    fn is_new(&mut self, path: &[u8], found: &Stat) -> bool {
        if found.st_nlink < 2 {
            return true;
        }
        match self.shared.get(&(found.st_dev, found.st_ino)) {
            Some(first) => {
                self.links.push((first.clone(), path.to_vec()));
                false
            }
            None => {
                self.shared.insert((found.st_dev, found.st_ino), path.to_vec());
                true
            }
        }
    }

    fn copy_symlink(
        &mut self,
        pair: &copy::Pair,
        name: &CStr,
        path: Vec<u8>,
        found: &Stat,
    ) -> Result<(), Refusal> {
        let points_to = rustix::fs::readlinkat(&pair.source.fd, name, Vec::new())
            .attempt(|| subject(&path), "readlinkat")?;
        symlinkat(&points_to, &pair.target, name).attempt(|| subject(&path), "symlinkat")?;
        let times = Time::modified(found).as_timestamps();
        utimensat(&pair.target, name, &times, AtFlags::SYMLINK_NOFOLLOW)
            .attempt(|| subject(&path), "utimensat")?;
        let made = stat_leaf(&pair.target, name).attempt(|| subject(&path), "fstatat")?;
        self.symlinks.push(Entry {
            path: path.into(),
            mtime: Time::modified(&made),
            node: Node::Symlink { target: points_to.into_bytes().into() },
        });
        Ok(())
    }

    /// Puts everything together once all files are there.
    fn finish(self, frozen: Vec<Frozen>) -> Result<(Vec<Entry>, FreezeOutcome), Refusal> {
        let mut outcome = FreezeOutcome {
            symlinks: self.symlinks.len() as u64,
            directories: self.directories.len() as u64,
            bytes: self.seen.bytes,
            ..FreezeOutcome::default()
        };
        let mut entries = Vec::with_capacity(frozen.len());
        for file in frozen {
            outcome.linked_files += u64::from(file.linked_bytes.is_some());
            outcome.linked_bytes += file.linked_bytes.unwrap_or(0);
            entries.push(file.entry);
        }
        let firsts = Manifest::new(entries);
        let mut further = Vec::with_capacity(self.links.len());
        for (first, path) in &self.links {
            further.push(link_further(self.input, self.target, &firsts, first, path)?);
        }
        let mut entries = firsts.into_entries();
        entries.append(&mut further);
        outcome.files = entries.len() as u64;
        entries.extend(self.symlinks);
        for (path, mtime) in self.directories {
            entries.push(finish_directory(self.target, path, mtime)?);
        }
        Ok((entries, outcome))
    }
}

/// Links a further path of a file to its first one.
fn link_further(
    input: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
    firsts: &Manifest,
    first: &[u8],
    path: &[u8],
) -> Result<Entry, Refusal> {
    let entry = firsts.position(first).map(|at| firsts.entries()[at].clone());
    let Some(entry) = entry else {
        let message = format!("the file {} was not frozen", quoted(first));
        return Err(Refusal::new(RefusalCode::Failed, message));
    };
    let open = |root, path| open_directory(root, path).attempt(|| subject(path), "openat2");
    let (from, from_name) = split(first);
    let (to, to_name) = split(path);
    let to_directory = open(target, to)?;
    let linked =
        linkat(&open(target, from)?, &from_name, &to_directory, &to_name, AtFlags::empty());
    match linked {
        Ok(()) => Ok(Entry { path: path.into(), ..entry }),
        // The file system takes no more links to it; a copy is as good.
        Err(Errno::MLINK) => copy::copy_anew(&open(input, to)?, &to_directory, &to_name, path),
        Err(errno) => Err(Refusal::call(&subject(path), "linkat", errno)),
    }
}

/// Gives a directory its mode and time, now that nothing more is made in it.
fn finish_directory(target: BorrowedFd<'_>, path: Vec<u8>, mtime: Time) -> Result<Entry, Refusal> {
    let directory = open_directory(target, &path).attempt(|| subject(&path), "openat2")?;
    finish_inode(&directory, 0o755, mtime).attempt(|| subject(&path), "fchmod or futimens")?;
    let made = rustix::fs::fstat(&directory).attempt(|| subject(&path), "fstat")?;
    Ok(Entry {
        path: path.into(),
        mtime: Time::modified(&made),
        node: Node::Directory { mode: 0o755 },
    })
}

fn finish_inode(inode: &OwnedFd, mode: u32, mtime: Time) -> Result<(), Errno> {
    fchmod(inode, Mode::from_raw_mode(mode))?;
    futimens(inode, &mtime.as_timestamps())
}

fn special(path: &[u8], kind: FileType) -> Refusal {
    let what = match kind {
        FileType::Fifo => "a named pipe",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        _ => "of an unknown type",
    };
    let message =
        format!("{} is {what}; only files, directories and symlinks can be frozen", quoted(path));
    Refusal::new(RefusalCode::SpecialFile, message)
}
