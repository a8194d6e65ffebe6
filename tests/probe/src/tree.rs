//! The tree that the probes attack, and what root of the host does to it before they run.

use crate::call;
use crate::files::{CAPABILITY, CONTENT, LENGTH, VICTIMS};
use crate::sys::{Got, c};

/// Makes the tree that the probes attack; run by root on the host, before a session sees it.
///
/// `owner` owns everything: the store, as freezing leaves it, or, with the barrier of ownership
/// taken away, the session's own user. `root` is the host uid of the user namespace's root that
/// `filecap` gives its capability to.
///
/// # Errors
/// What the file system says.
pub fn prepare(directory: &str, owner: Option<u32>, root: Option<u32>) -> std::io::Result<()> {
    use std::os::unix::fs::symlink;
    let at = |name: &str| format!("{directory}/{name}");
    std::fs::create_dir_all(at("open/empty"))?;
    for name in ["file", "open/file", "lockfile"] {
        std::fs::write(at(name), vec![CONTENT; LENGTH])?;
    }
    let victims: Vec<String> = (1..=VICTIMS).map(|n| format!("open/victim-{n}")).collect();
    for name in &victims {
        std::fs::write(at(name), [CONTENT])?;
    }
    symlink("file", at("link"))?;
    for name in ["setuid", "filecap"] {
        std::fs::copy("/proc/self/exe", at(name))?;
    }
    let null = c(&at("null-device"));
    library(call!(libc::SYS_mknod, &null, libc::S_IFCHR | 0o666, 0x103))?;
    let modes = [
        ("file", 0o666),
        ("open/file", 0o666),
        ("lockfile", 0o666),
        ("null-device", 0o666),
        ("filecap", 0o755),
        ("setuid", 0o4755),
        ("open/empty", 0o777),
        ("open", 0o777),
        ("", 0o777),
    ];
    let victims = victims.iter().map(|name| (name.as_str(), 0o666));
    for (name, mode) in modes.into_iter().chain(victims) {
        let path = c(&at(name));
        if let Some(owner) = owner {
            library(call!(libc::SYS_lchown, &path, owner, owner))?;
        }
        // After the change of owner, which takes a setuid bit away.
        library(call!(libc::SYS_chmod, &path, mode))?;
    }
    if let Some(owner) = owner {
        library(call!(libc::SYS_lchown, &c(&at("link")), owner, owner))?;
    }
    let (file, name) = (c(&at("file")), c("user.planted"));
    library(call!(libc::SYS_setxattr, &file, &name, &b"x"[..], 1, 0))?;
    give_capability(&at("filecap"), root)
}

/// `cap_sys_admin=ep`, for the root of a user namespace where one is named.
fn give_capability(path: &str, root: Option<u32>) -> std::io::Result<()> {
    let mut value = CAPABILITY.to_vec();
    if let Some(root) = root {
        value[3] = 3;
        value.extend(root.to_ne_bytes());
    }
    let (path, name) = (c(path), c("security.capability"));
    let length = value.len() as u64;
    library(call!(libc::SYS_setxattr, &path, &name, value.as_slice(), length, 0))
}

/// A call's result as the library's.
fn library(got: Got<i64>) -> std::io::Result<()> {
    got.map(|_| ()).map_err(|errno| std::io::Error::from_raw_os_error(errno.0))
}
