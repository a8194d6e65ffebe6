//! The editable files of environments.
//!
//! A source holds what clients sent, symlinks of archives included, so no name in it is trusted:
//! each is opened below the root without following links.

use super::LEFT_OUT;
use super::source_path::SourcePath;
use crate::failure::{Code, Failure, Tried};
use hangar_runtime::ids::EnvironmentId;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, chmodat, fstat, fsync, mkdirat,
    openat2, readlinkat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How deep a source can be.
const DEPTH_MAX: usize = 256;

/// The directory of all sources.
#[derive(Debug, Clone)]
pub struct Sources {
    root: PathBuf,
}

/// What a source has at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the root.
    pub path: PathBuf,
    /// A directory, not a file.
    pub directory: bool,
    /// The size of a file, 0 for a directory.
    pub bytes: u64,
    /// Seconds since 1970.
    pub modified_s: i64,
}

impl Sources {
    /// Sources below a directory.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// Where an environment's source is.
    #[must_use]
    pub fn path(&self, id: &EnvironmentId) -> PathBuf {
        self.root.join(id.as_str())
    }

    /// Where an import unpacks before it counts.
    #[must_use]
    pub fn import_path(&self, id: &EnvironmentId) -> PathBuf {
        self.root.join(format!("{id}.import"))
    }

    /// Opens an environment's source.
    ///
    /// # Errors
    /// When it is not there.
    pub fn open(&self, id: &EnvironmentId) -> Result<Source, Failure> {
        Source::at(&self.path(id)).tried("opening the source")
    }
}

/// One source, open.
#[derive(Debug)]
pub struct Source {
    root: OwnedFd,
}

impl Source {
    /// The source in a directory.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn at(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// [`Code::FileNotFound`] when there is nothing, [`Code::EnvironmentInvalid`] when it is
    /// anything else than a regular file.
    pub fn read(&self, path: &SourcePath) -> Result<(File, u64), Failure> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = open_below(self.root.as_fd(), path.as_os_str(), flags).map_err(refusal)?;
        let stat = fstat(&file).tried("reading the file")?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(not_a_file());
        }
        Ok((File::from(file), u64::try_from(stat.st_size).unwrap_or(0)))
    }

    /// The bytes of a file, when it is there, regular, and not longer than this.
    #[must_use]
    pub fn read_small(&self, path: &str, bytes_max: u64) -> Option<Vec<u8>> {
        let (file, bytes) = self.read(&SourcePath::parse(path).ok()?).ok()?;
        let mut content = Vec::new();
        (bytes <= bytes_max).then_some(())?;
        file.take(bytes_max).read_to_end(&mut content).ok()?;
        Some(content)
    }

    /// Puts a file, which is complete at `from` on the same file system, at a path; makes the
    /// directories above it.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] when something on the way is no directory, or a directory is
    /// at the path.
    pub fn put(&self, from: &Path, path: &SourcePath) -> Result<(), Failure> {
        let (above, name) = path.split();
        let above = above.map(SourcePath::parse).transpose()?;
        let parent = self.make_directories(above.iter().flat_map(SourcePath::names))?;
        match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if kind(&stat) != FileType::RegularFile => return Err(not_a_file()),
            // A script stays executable.
            Ok(stat) => {
                let mode = Mode::from_raw_mode(stat.st_mode & 0o755);
                chmodat(CWD, from, mode, AtFlags::empty()).tried("changing the source")?;
            }
            Err(_) => {}
        }
        renameat(CWD, from, &parent, name).map_err(refusal)?;
        // What is acknowledged outlives a loss of power.
        fsync(&parent).tried("changing the source")
    }

    /// Makes a directory and those above it.
    ///
    /// # Errors
    /// [`Code::EnvironmentInvalid`] when something on the way is no directory.
    pub fn make_directory(&self, path: &SourcePath) -> Result<(), Failure> {
        self.make_directories(path.names()).map(drop)
    }

    fn make_directories<'a>(
        &self,
        names: impl Iterator<Item = &'a OsStr>,
    ) -> Result<OwnedFd, Failure> {
        let mut parent = self.root.try_clone().tried("opening the source")?;
        for name in names {
            match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(refusal(errno)),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            parent = open_below(parent.as_fd(), name, flags).map_err(refusal)?;
        }
        Ok(parent)
    }

    /// Removes a file, a link, or a directory with all that is in it.
    ///
    /// # Errors
    /// [`Code::FileNotFound`] when there is nothing.
    pub fn remove(&self, path: &SourcePath) -> Result<(), Failure> {
        let (above, name) = path.split();
        let parent = match above {
            None => self.root.try_clone().tried("opening the source")?,
            Some(above) => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                open_below(self.root.as_fd(), above, flags).map_err(refusal)?
            }
        };
        remove_tree(parent.as_fd(), Path::new(name), 0).map_err(refusal)
    }

    /// Every file and directory, by path. Links are left out: nothing can be done with them here.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        self.visit(&[], &mut |found| {
            let kind = kind(&found.stat);
            if kind == FileType::RegularFile || kind == FileType::Directory {
                let directory = kind == FileType::Directory;
                let size = u64::try_from(found.stat.st_size).unwrap_or(0);
                entries.push(Entry {
                    path: found.path.to_owned(),
                    directory,
                    bytes: if directory { 0 } else { size },
                    modified_s: found.stat.st_mtime,
                });
            }
            Ok(())
        })
        .tried("listing the source")?;
        Ok(entries)
    }

    /// How many files there are and how many bytes they have.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn size(&self) -> Result<(u64, u64), Failure> {
        let files = self.entries()?.into_iter().filter(|entry| !entry.directory);
        Ok(files.fold((0, 0), |(count, bytes), file| (count + 1, bytes + file.bytes)))
    }

    /// A digest of everything a build copies: paths, kinds, executable bits, content. Times are
    /// no part of it, so a project that is imported again has the same digest.
    ///
    /// # Errors
    /// When something cannot be read.
    pub fn digest(&self) -> Result<String, Failure> {
        let mut all = Sha256::new();
        self.visit(LEFT_OUT, &mut |found| {
            let path = found.path.as_os_str().as_encoded_bytes();
            let (letter, content) = match kind(&found.stat) {
                FileType::Directory => (b'd', Vec::new()),
                FileType::Symlink => {
                    (b'l', readlinkat(found.parent, found.name, Vec::new())?.into_bytes())
                }
                FileType::RegularFile if found.stat.st_mode & 0o111 != 0 => {
                    (b'x', file_digest(found)?)
                }
                FileType::RegularFile => (b'f', file_digest(found)?),
                _ => return Ok(()),
            };
            all.update([letter]);
            for part in [path, &content] {
                all.update((part.len() as u64).to_le_bytes());
                all.update(part);
            }
            Ok(())
        })
        .tried("reading the source")?;
        Ok(crate::app::hex(&all.finalize()))
    }

    /// Visits everything in the order of paths, a directory before what is in it.
    fn visit(
        &self,
        left_out: &[&str],
        visitor: &mut dyn FnMut(&Found<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        visit(self.root.as_fd(), Path::new(""), 0, left_out, visitor)
    }
}

/// Something in a source.
struct Found<'a> {
    parent: BorrowedFd<'a>,
    name: &'a Path,
    path: &'a Path,
    stat: Stat,
}

fn visit(
    directory: BorrowedFd<'_>,
    path: &Path,
    depth: usize,
    left_out: &[&str],
    visitor: &mut dyn FnMut(&Found<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    if depth > DEPTH_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    for name in sorted_names(directory)? {
        if left_out.iter().any(|left_out| Path::new(left_out) == name) {
            continue;
        }
        let path = path.join(&name);
        let stat = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        visitor(&Found { parent: directory, name: &name, path: &path, stat })?;
        if kind(&stat) == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            let below = open_below(directory, &name, flags)?;
            visit(below.as_fd(), &path, depth + 1, left_out, visitor)?;
        }
    }
    Ok(())
}

fn sorted_names(directory: BorrowedFd<'_>) -> Result<Vec<PathBuf>, Errno> {
    use std::os::unix::ffi::OsStrExt;
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(PathBuf::from(std::ffi::OsStr::from_bytes(name)));
        }
    }
    names.sort();
    Ok(names)
}

fn file_digest(found: &Found<'_>) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mut file = File::from(open_below(found.parent, found.name, flags)?);
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read =
            file.read(&mut buffer).map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        if read == 0 {
            return Ok(digest.finalize().to_vec());
        }
        digest.update(&buffer[..read]);
    }
}

/// Opens without following links and without leaving the directory.
fn open_below(
    root: BorrowedFd<'_>,
    path: impl rustix::path::Arg,
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    openat2(
        root,
        path,
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )
}

fn remove_tree(parent: BorrowedFd<'_>, name: &Path, depth: usize) -> Result<(), Errno> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) if depth <= DEPTH_MAX => {}
        other => return other,
    }
    let directory = open_below(parent, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
    for below in sorted_names(directory.as_fd())? {
        remove_tree(directory.as_fd(), &below, depth + 1)?;
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn not_a_file() -> Failure {
    Failure::new(Code::EnvironmentInvalid, "the path names something that is not a regular file")
        .with_param("path")
}

/// What a caller learns of a call that failed on the path it sent.
fn refusal(errno: Errno) -> Failure {
    match errno {
        Errno::NOENT => {
            Failure::new(Code::FileNotFound, "there is no such file").with_param("path")
        }
        Errno::LOOP | Errno::NOTDIR | Errno::XDEV | Errno::ISDIR | Errno::NAMETOOLONG => {
            let message = "the path does not lead through directories of the environment";
            Failure::new(Code::EnvironmentInvalid, message).with_param("path")
        }
        errno => Failure::internal("changing the source", errno),
    }
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
