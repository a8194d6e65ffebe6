//! What is left on the host of the sessions of a state directory.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Cgroups with processes in them, mounts, directories of sessions, and processes that were
/// started for this state directory, once whatever still ends has ended.
///
/// # Panics
/// When the host cannot be read.
#[must_use]
pub fn remains(state: &Path) -> Vec<String> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let left = look(state);
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn look(state: &Path) -> Vec<String> {
    let mut left: Vec<String> = cgroups(state).iter().map(|p| p.display().to_string()).collect();
    let name = state.to_str().expect("a test's directory is UTF-8");
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mountinfo");
    left.extend(mounts.lines().filter(|line| line.contains(name)).map(str::to_owned));
    let sessions = fs::read_dir(state.join("sessions")).into_iter().flatten().flatten();
    left.extend(sessions.map(|entry| entry.path().display().to_string()));
    left.extend(processes(name));
    left
}

/// Processes whose command line names the state directory.
fn processes(name: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) || pid == own {
            continue;
        }
        // It may have ended meanwhile.
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(name) {
            found.push(format!("process {pid}: {line}"));
        }
    }
    found
}

/// The cgroups of sessions, in every hierarchy.
fn cgroups(state: &Path) -> Vec<PathBuf> {
    let groups = |parent: PathBuf| subdirectories(&parent).into_iter().map(move |n| parent.join(n));
    group_parents(state).into_iter().flat_map(groups).collect()
}

/// Where the groups of a state directory are: `hangar/<its device and inode>` somewhere in every
/// hierarchy.
#[must_use]
pub fn group_parents(state: &Path) -> Vec<PathBuf> {
    let Ok(metadata) = fs::metadata(state) else { return Vec::new() };
    let own = format!("{:x}-{:x}", metadata.dev(), metadata.ino());
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = pending.pop() {
        let names = subdirectories(&directory);
        if directory.ends_with("hangar") {
            found.extend(names.iter().filter(|name| **name == own).map(|n| directory.join(n)));
        } else {
            pending.extend(names.iter().map(|name| directory.join(name)));
        }
    }
    found
}

pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut all = vec![root.to_owned()];
    all.extend(subdirectories(root).into_iter().map(|name| root.join(name)));
    all
}

/// The names of directories, not of links to directories.
fn subdirectories(at: &Path) -> Vec<String> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = openat(CWD, at, flags, Mode::empty()) else { return Vec::new() };
    let entries = Dir::read_from(&directory).expect("a directory is listed").flatten();
    entries
        .filter(|entry| entry.file_type() == FileType::Directory)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect()
}
