//! The environment that probes attack.

use hangar_runtime::ids::Range;
use rustix::fs::{CWD, FileType, Gid, Mode, Uid, chownat, mknodat};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// Who owns the environment's files on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The store, as freezing leaves it.
    Store,
    /// The session's own user: the barrier of ownership is taken away.
    Agent(u32),
}

/// Makes an environment whose modes refuse nothing, with what probes look for.
///
/// `file` (0666), `open/` (0777) with a file, `lockfile`, `link`, a setuid program, and device
/// nodes and a FIFO that no freeze would let through.
///
/// # Panics
/// When it cannot be made.
pub fn make(at: &Path, owner: Owner) {
    fs::create_dir_all(at.join("open")).expect("mkdir");
    let write = |name: &str, text: &str, mode: u32| {
        fs::write(at.join(name), text).expect("write");
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    write("file", "frozen\n", 0o666);
    write("open/file", "frozen\n", 0o666);
    write("lockfile", "", 0o666);
    fs::copy("/usr/bin/id", at.join("setuid")).expect("copy");
    symlink("file", at.join("link")).expect("symlink");
    mknodat(CWD, at.join("null"), FileType::CharacterDevice, Mode::from(0o666), makedev(1, 3))
        .expect("mknod");
    mknodat(CWD, at.join("fifo"), FileType::Fifo, Mode::from(0o666), 0).expect("mkfifo");
    for (name, mode) in [("open", 0o777), ("setuid", 0o4755)] {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).expect("chmod");
    }
    fs::set_permissions(at, fs::Permissions::from_mode(0o777)).expect("chmod");
    let id = match owner {
        Owner::Store => Range::default().store(),
        Owner::Agent(id) => id,
    };
    own(at, id);
    // The change of owner took the setuid bit away.
    fs::set_permissions(at.join("setuid"), fs::Permissions::from_mode(0o4755)).expect("chmod");
}

fn makedev(major: u32, minor: u32) -> u64 {
    rustix::fs::makedev(major, minor)
}

fn own(path: &Path, id: u32) {
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    chownat(CWD, path, Some(Uid::from_raw(id)), Some(Gid::from_raw(id)), flags).expect("chown");
    if path.symlink_metadata().expect("stat").is_dir() {
        for entry in fs::read_dir(path).expect("list") {
            own(&entry.expect("entry").path(), id);
        }
    }
}

/// Everything about a tree that an attack could change: names, types, modes, owners, times,
/// link counts and contents.
///
/// # Panics
/// When it cannot be read.
#[must_use]
pub fn digest(at: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut lines = Vec::new();
    let mut pending = vec![at.to_owned()];
    while let Some(path) = pending.pop() {
        let m = path.symlink_metadata().expect("stat");
        let content = if m.is_file() {
            format!(
                "{:?}",
                fs::read(&path)
                    .expect("read")
                    .iter()
                    .fold(5381u64, |hash, byte| { hash.wrapping_mul(33) ^ u64::from(*byte) })
            )
        } else {
            String::new()
        };
        lines.push(format!(
            "{} {:o} {}:{} {}.{:09} {}.{:09} {} {content}",
            path.strip_prefix(at).expect("below").display(),
            m.mode(),
            m.uid(),
            m.gid(),
            m.mtime(),
            m.mtime_nsec(),
            m.ctime(),
            m.ctime_nsec(),
            m.nlink(),
        ));
        if m.is_dir() {
            pending.extend(fs::read_dir(&path).expect("list").map(|e| e.expect("entry").path()));
        }
    }
    lines.sort();
    lines
}
