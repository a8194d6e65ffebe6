//! The state directory: its layout, its format, its lock, and names resolved below it.
//!
//! Everything hangar keeps lies below one directory. Each part has one owner: `api` belongs to
//! the API's uid, all else to root. Names come as the types of [`crate::ids`] and are resolved
//! below descriptors that were opened at start; no path of a caller is ever walked.

use crate::error::{AtStep, SetupError};
use crate::ids::{EnvironmentId, Range};
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, fchmod,
    fchown, flock, fstat, fsync, mkdirat, openat, openat2, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STEP: &str = "open-state-directory";

/// What the `format` file begins with; another number is another layout.
const FORMAT: &str = "hangar-state 1";

/// What may lie in a directory that has no `format` file yet.
const HARMLESS: [&str; 5] = ["lost+found", "token", "api", "run", "config.toml"];

/// An open state directory, locked for this warden.
#[derive(Debug)]
pub struct StateDir {
    root: OwnedFd,
    api: OwnedFd,
    run: OwnedFd,
    toolchain_etc: OwnedFd,
    pub(super) versions: OwnedFd,
    pub(super) sessions: OwnedFd,
    pub(super) packs: OwnedFd,
    range: Range,
    _lock: OwnedFd,
}

impl StateDir {
    /// Takes a directory as state directory: makes what is missing and locks it.
    ///
    /// # Errors
    /// When another warden has it, when it has another format or another range of uids, or when
    /// it has no format and holds what is not hangar's.
    pub fn open(root: OwnedFd, range: Range) -> Result<Self, SetupError> {
        let api = range.api();
        check_format(&root, range)?;
        own(root.as_fd(), ".", 0, api, 0o710)?;
        let run = ensure_dir(&root, "run", 0, api, 0o710)?;
        let lock = lock(&run)?;
        write_format(&root, range)?;
        let toolchain = ensure_dir(&root, "toolchain", 0, 0, 0o755)?;
        Ok(Self {
            api: ensure_dir(&root, "api", api, api, 0o700)?,
            versions: ensure_dir(&root, "versions", 0, 0, 0o700)?,
            sessions: ensure_dir(&root, "sessions", 0, 0, 0o700)?,
            packs: ensure_dir(&root, "packs", 0, 0, 0o700)?,
            toolchain_etc: ensure_dir(&toolchain, "etc", 0, 0, 0o755)?,
            run,
            root,
            range,
            _lock: lock,
        })
    }

    /// Where the sockets are.
    #[must_use]
    pub fn run(&self) -> BorrowedFd<'_> {
        self.run.as_fd()
    }

    /// The generated `/etc` of the toolchain.
    #[must_use]
    pub fn toolchain_etc(&self) -> BorrowedFd<'_> {
        self.toolchain_etc.as_fd()
    }

    /// Fills the toolchain's `/etc` anew from the host's; no session is there that could see it.
    pub(super) fn refresh_toolchain(&self) -> Result<(), SetupError> {
        // Only root ever wrote there, so walking by path follows nobody's links.
        let path = format!("/proc/self/fd/{}", super::raw(self.toolchain_etc()));
        for name in names(self.toolchain_etc())? {
            let path = format!("{path}/{name}");
            let call = || format!("remove(toolchain/etc/{name})");
            let directory = std::fs::symlink_metadata(&path).at(STEP, call)?.is_dir();
            let removed = if directory {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.at(STEP, call)?;
        }
        crate::launch::toolchain::write_etc(self.toolchain_etc())
    }

    /// The uids of this state directory.
    #[must_use]
    pub fn range(&self) -> Range {
        self.range
    }

    /// A name for this directory that no other one on this host has now.
    ///
    /// # Errors
    /// When the directory cannot be looked at.
    pub fn id(&self) -> Result<String, SetupError> {
        let stat = fstat(&self.root).at(STEP, || "fstat(state directory)")?;
        Ok(format!("{:x}-{:x}", stat.st_dev, stat.st_ino))
    }

    /// The source of an environment, made by the API.
    ///
    /// # Errors
    /// When it is not there.
    pub fn source(&self, environment: &EnvironmentId) -> Result<OwnedFd, SetupError> {
        open_below(&self.api, &format!("sources/{environment}"))
    }

    /// Where an upload is unpacked, made by the API.
    ///
    /// # Errors
    /// When it is not there.
    pub fn import_target(&self, environment: &EnvironmentId) -> Result<OwnedFd, SetupError> {
        open_below(&self.api, &format!("sources/{environment}.import"))
    }

    /// The names in the sessions' directory, left-overs included.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn session_names(&self) -> Result<Vec<String>, SetupError> {
        names(self.sessions.as_fd())
    }
}

/// A directory to look into and to make entries in.
pub(super) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens a directory below another, through no symlink and into no other filesystem.
pub(super) fn open_below(dir: impl AsFd, name: &str) -> Result<OwnedFd, SetupError> {
    open_file(dir, name, DIRECTORY)
}

/// Opens an existing entry the same way.
pub(super) fn open_file(dir: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, SetupError> {
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let open = || openat2(&dir, name, flags | OFlags::CLOEXEC, Mode::empty(), resolve);
    // EAGAIN: a rename elsewhere raced with the walk.
    let mut result = open();
    for _ in 0..16 {
        if result.as_ref().err() != Some(&Errno::AGAIN) {
            break;
        }
        result = open();
    }
    result.at("resolve-name", || format!("openat2({name}, BENEATH|NO_SYMLINKS|NO_XDEV)"))
}

/// Makes a directory that is not there yet, with its owner and mode.
pub(super) fn make_dir(
    parent: impl AsFd,
    name: &str,
    owner: u32,
    mode: u32,
) -> Result<OwnedFd, SetupError> {
    mkdirat(&parent, name, Mode::from_raw_mode(0o700))
        .at("make-directory", || format!("mkdirat({name})"))?;
    own(parent.as_fd(), name, owner, owner, mode)
}

fn ensure_dir(
    parent: impl AsFd,
    name: &str,
    uid: u32,
    gid: u32,
    mode: u32,
) -> Result<OwnedFd, SetupError> {
    match mkdirat(&parent, name, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => own(parent.as_fd(), name, uid, gid, mode),
        Err(errno) => Err(errno).at(STEP, || format!("mkdirat({name})")),
    }
}

/// Opens a directory and gives it its owner and mode.
fn own(
    parent: BorrowedFd<'_>,
    name: &str,
    uid: u32,
    gid: u32,
    mode: u32,
) -> Result<OwnedFd, SetupError> {
    let dir = openat(parent, name, DIRECTORY, Mode::empty())
        .at(STEP, || format!("openat({name}, DIRECTORY|NOFOLLOW)"))?;
    fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
        .at(STEP, || format!("fchown({name}, {uid}:{gid})"))?;
    fchmod(&dir, Mode::from_raw_mode(mode)).at(STEP, || format!("fchmod({name}, {mode:o})"))?;
    Ok(dir)
}

/// The names in a directory, without `.` and `..`, in no order.
pub(super) fn names(dir: BorrowedFd<'_>) -> Result<Vec<String>, SetupError> {
    let list = || {
        let mut names = Vec::new();
        for entry in Dir::read_from(dir)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        Ok::<_, Errno>(names)
    };
    list().at("list-directory", || "readdir")
}

/// Whether there is an entry of this name.
pub(super) fn exists(dir: impl AsFd, name: &str) -> Result<bool, SetupError> {
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(errno).at("look-up-name", || format!("fstatat({name})")),
    }
}

/// Renames within a directory, over nothing, and makes that durable.
pub(super) fn publish(dir: BorrowedFd<'_>, from: &str, to: &str) -> Result<(), SetupError> {
    renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE)
        .at("publish", || format!("renameat2({from}, {to}, NOREPLACE)"))?;
    fsync(dir).at("publish", || "fsync(parent directory)")
}

/// Removes an empty directory; one that is not there is removed.
pub(super) fn remove_dir(parent: impl AsFd, name: &str) -> Result<(), SetupError> {
    match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove-directory", || format!("rmdir({name})")),
    }
}

/// Removes a file; one that is not there is removed.
pub(super) fn remove_file(parent: impl AsFd, name: &str) -> Result<(), SetupError> {
    match unlinkat(&parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno).at("remove-file", || format!("unlinkat({name})")),
    }
}

/// Reads a whole small file.
pub(super) fn read_file(dir: impl AsFd, name: &str, max: usize) -> Result<Vec<u8>, SetupError> {
    let file = open_file(dir, name, OFlags::RDONLY | OFlags::NONBLOCK)?;
    let mut bytes = vec![0; max + 1];
    let mut length = 0;
    while length < bytes.len() {
        match rustix::io::read(&file, &mut bytes[length..]) {
            Ok(0) => break,
            Ok(n) => length += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).at("read-file", || format!("read({name})")),
        }
    }
    if length > max {
        return Err(SetupError::other("read-file", format!("read({name})"), "it is too long"));
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Writes a small file, whole and durable or not at all.
pub(super) fn write_file(dir: impl AsFd, name: &str, bytes: &[u8]) -> Result<(), SetupError> {
    let step = "write-file";
    let temporary = format!("{name}.tmp");
    remove_file(&dir, &temporary)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&dir, &*temporary, flags, Mode::from_raw_mode(0o600))
        .at(step, || format!("openat({temporary}, CREATE|EXCL)"))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).at(step, || format!("write({temporary})")),
        }
    }
    fsync(&file).at(step, || format!("fsync({temporary})"))?;
    publish(dir.as_fd(), &temporary, name)
}

fn check_format(root: &OwnedFd, range: Range) -> Result<(), SetupError> {
    if exists(root, "format")? {
        let found = String::from_utf8_lossy(&read_file(root, "format", 4096)?).into_owned();
        let expected = format_text(range);
        if found == expected {
            return Ok(());
        }
        return Err(SetupError::mismatch(STEP, "format", expected.trim_end(), found.trim_end()));
    }
    match names(root.as_fd())?.iter().find(|name| !HARMLESS.contains(&name.as_str())) {
        Some(name) => Err(SetupError::other(
            STEP,
            "read(format)",
            format!("the directory is no state directory and holds {name:?}"),
        )),
        None => Ok(()),
    }
}

fn write_format(root: &OwnedFd, range: Range) -> Result<(), SetupError> {
    if exists(root, "format")? {
        Ok(())
    } else {
        write_file(root, "format", format_text(range).as_bytes())
    }
}

/// The owners of all files follow from the range, so it cannot change later.
fn format_text(range: Range) -> String {
    format!("{FORMAT}\nrange-base {}\n", range.base)
}

fn lock(run: &OwnedFd) -> Result<OwnedFd, SetupError> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        openat(run, "lock", flags, Mode::from_raw_mode(0o600)).at(STEP, || "openat(run/lock)")?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::AGAIN) => Err(SetupError::other(
            STEP,
            "flock(run/lock)",
            "another warden uses this state directory",
        )),
        Err(errno) => Err(errno).at(STEP, || "flock(run/lock)"),
    }
}
