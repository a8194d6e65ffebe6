//! Artifacts: the files a session left in its working directory.
//!
//! The session's user decides every name and type there, so the tree is hostile. The warden hands
//! out a read-only view of it; each name is opened below that view without following any link,
//! without waiting on a FIFO, and only regular files are read.

use crate::app::{App, blocking};
use crate::failure::{Code, Failure, Tried};
use crate::warden_client::WardenError;
use hangar_runtime::ids::SessionId;
use hangar_runtime::wire::warden::{Answer, Request};
use rustix::fs::{FileType, Mode, OFlags, RawDir, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// How deep directories are looked into.
const DEPTH_MAX: usize = 64;
/// How many names are looked at, files or not.
const NAMES_MAX: usize = 200_000;
/// Directories of caches that tools write beside the files they run.
const LEFT_OUT: &[&[u8]] = &[b"__pycache__"];

/// Opening a FIFO or a device that took the place of a file must neither wait nor act.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// A file of a working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Relative to the working directory.
    pub path: Vec<u8>,
    /// Its size.
    pub bytes: u64,
    /// Seconds since 1970.
    pub modified_s: i64,
    /// Tells whether it is the same later.
    pub stamp: Stamp,
}

/// What differs when a file was written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Its number in the filesystem.
    pub inode: u64,
    /// Its size.
    pub bytes: i64,
    /// When its content changed: seconds and nanoseconds.
    pub modified: (i64, u64),
    /// When anything of it changed.
    pub changed: (i64, u64),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Artifacts {
    /// The files, by path.
    pub files: Vec<Artifact>,
    /// There is more than is listed.
    pub cut: bool,
}

/// The read-only view of a session's working directory.
///
/// # Errors
/// When the warden is not there or refuses.
pub async fn view(app: &App, session: &SessionId) -> Result<OwnedFd, Failure> {
    let what = "reading the working directory";
    let answer = app.warden.call(Request::ViewWorkspace { session: session.clone() }, &[]).await;
    let fail = |error: &WardenError| super::service::failure(what, error);
    let (answer, mut fds) = answer.map_err(|error| fail(&error))?;
    match (answer, fds.pop()) {
        (Answer::View, Some(fd)) => Ok(fd),
        _ => Err(fail(&WardenError::Confused)),
    }
}

/// Lists the regular files below a view.
///
/// # Errors
/// When the root of the view cannot be read. What changes or vanishes meanwhile is left out.
pub async fn list(view: OwnedFd, files_max: usize) -> Result<Artifacts, Failure> {
    blocking(move || walk(view.as_fd(), files_max)).await.tried("reading the working directory")
}

/// Opens one regular file below a view.
///
/// # Errors
/// [`Code::FileNotFound`] when there is no regular file of that path.
pub async fn open(view: OwnedFd, path: Vec<u8>) -> Result<(std::fs::File, u64), Failure> {
    let opened = blocking(move || open_regular(view.as_fd(), &path)).await;
    opened.ok_or_else(|| Failure::new(Code::FileNotFound, "there is no such file"))
}

/// A regular file below a view, and its size; `None` where there is none of that path.
pub(super) fn open_regular(view: BorrowedFd<'_>, path: &[u8]) -> Option<(std::fs::File, u64)> {
    let file = open_below(view, path, READ).ok()?;
    let stat = fstat(&file).ok()?;
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file.then(|| (file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
}

fn open_below(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    openat2(
        root,
        OsStr::from_bytes(path),
        flags | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
        ResolveFlags::BENEATH
            | ResolveFlags::NO_SYMLINKS
            | ResolveFlags::NO_MAGICLINKS
            | ResolveFlags::NO_XDEV,
    )
}

fn walk(root: BorrowedFd<'_>, files_max: usize) -> Result<Artifacts, Errno> {
    let mut found = Artifacts::default();
    let mut names_left = NAMES_MAX;
    let mut waiting: Vec<Vec<u8>> = vec![b".".to_vec()];
    while let Some(directory) = waiting.pop() {
        let opened = open_below(root, &directory, READ | OFlags::DIRECTORY);
        let opened = match opened {
            Ok(fd) => fd,
            Err(errno) if directory == b"." => return Err(errno),
            // It became something else since it was listed.
            Err(_) => continue,
        };
        for (name, kind) in names(&opened, &mut names_left) {
            let path = join(&directory, &name);
            match kind {
                FileType::Directory if path.split(|b| *b == b'/').count() > DEPTH_MAX => {
                    found.cut = true;
                }
                FileType::Directory if LEFT_OUT.contains(&&name[..]) => {}
                FileType::Directory => waiting.push(path),
                FileType::RegularFile if found.files.len() >= files_max => found.cut = true,
                FileType::RegularFile => found.files.extend(artifact(root, path)),
                _ => {}
            }
        }
        found.cut |= names_left == 0;
    }
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// The names of a directory and what they are; a directory that stops being readable ends early.
fn names(directory: &OwnedFd, left: &mut usize) -> Vec<(Vec<u8>, FileType)> {
    let mut all = Vec::new();
    let mut buffer = vec![MaybeUninit::uninit(); 32 << 10];
    let mut entries = RawDir::new(directory, &mut buffer);
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        all.push((name.to_vec(), entry.file_type()));
    }
    all
}

fn artifact(root: BorrowedFd<'_>, path: Vec<u8>) -> Option<Artifact> {
    // Only its size and time are wanted; O_PATH opens neither a device nor a FIFO.
    let file = open_below(root, &path, OFlags::PATH).ok()?;
    let stat = fstat(&file).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile).then(|| Artifact {
        path,
        bytes: u64::try_from(stat.st_size).unwrap_or(0),
        modified_s: stat.st_mtime,
        stamp: Stamp {
            inode: stat.st_ino,
            bytes: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        },
    })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory == b"." {
        return name.to_vec();
    }
    [directory, name].join(&b'/')
}

/// The id of an artifact: it holds the path, so that it needs no place in the store. It is no
/// secret and no permission: the path is opened below the view of the caller's own session.
#[must_use]
pub fn file_id(path: &[u8]) -> String {
    format!("file_{}", crate::app::hex(path))
}

/// The path in an artifact's id.
#[must_use]
pub fn path_of(file_id: &str) -> Option<Vec<u8>> {
    let digits = file_id.strip_prefix("file_")?.as_bytes();
    if digits.is_empty() || !digits.len().is_multiple_of(2) || digits.len() > 8192 {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let root = std::fs::File::open(dir.path()).unwrap();
        (dir, root.into())
    }

    #[tokio::test]
    async fn only_regular_files_are_artifacts() {
        let (dir, view) = tree();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::create_dir_all(at("a/__pycache__")).unwrap();
        std::fs::write(at("a/__pycache__/x.pyc"), b"x").unwrap();
        std::fs::write(at("a/b/file"), b"1234").unwrap();
        symlink("/etc/passwd", at("link")).unwrap();
        symlink("/etc", at("a/dir-link")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RUSR).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let found = list(view.try_clone().unwrap(), 10).await.unwrap();
        let paths: Vec<_> = found.files.iter().map(|f| (f.path.clone(), f.bytes)).collect();
        assert_eq!(paths, [(b"a/b/file".to_vec(), 4)]);
        assert!(!found.cut);
        for path in ["link", "a/dir-link/passwd", "fifo", "socket", "a", "../x", "/etc/passwd"] {
            let opened = open(view.try_clone().unwrap(), path.as_bytes().to_vec()).await;
            assert_eq!(opened.unwrap_err().code, Code::FileNotFound, "{path}");
        }
        let (_, bytes) = open(view, b"a/b/file".to_vec()).await.unwrap();
        assert_eq!(bytes, 4);
    }

    #[tokio::test]
    async fn a_listing_is_bounded_and_says_so() {
        let (dir, view) = tree();
        for name in 0..20 {
            std::fs::write(dir.path().join(name.to_string()), b"").unwrap();
        }
        let found = list(view, 7).await.unwrap();
        assert_eq!((found.files.len(), found.cut), (7, true));
    }

    #[test]
    fn ids_hold_any_path() {
        for path in [&b"a/b.txt"[..], b"\xff\n", "ü".as_bytes()] {
            assert_eq!(path_of(&file_id(path)).unwrap(), path);
        }
        for bad in ["file_", "file_0", "file_zz", "x"] {
            assert!(path_of(bad).is_none(), "{bad}");
        }
    }
}
