//! `/proc` of the session's own pid namespace, without what reaches beyond it.

use super::Confinement;
use super::devices::device_mount;
use crate::error::{AtStep, SetupError};
use crate::launch::views::attach_at;
use hangar_runtime_sys::{self as sys, MountAttributes, Recursion};
use rustix::fs::{AtFlags, Mode, OFlags, openat, statat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_string,
    fsmount, fsopen, open_tree,
};

/// Files hidden behind `/dev/null`: kernel memory, keys, addresses, and locks of everybody.
const HIDDEN_FILES: [&str; 9] = [
    "kcore",
    "keys",
    "kmsg",
    "latency_stats",
    "locks",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
    "timer_stats",
];
/// Directories hidden behind an empty one.
const HIDDEN_DIRECTORIES: [&str; 3] = ["acpi", "asound", "scsi"];
/// What can be read but not written.
const READ_ONLY: [&str; 4] = ["bus", "fs", "irq", "sys"];

/// How many user namespaces the session's outer namespace allows: the inner one, and no more.
const USER_NAMESPACES: &str = "1";

/// Mounts `/proc`; a process sees only those it could trace.
///
/// # Errors
/// `EPERM` where the host's own `/proc` is partly hidden, as in a container.
pub fn mount_proc(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "mount-proc";
    let fs = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).at(name, || "fsopen(proc)")?;
    fsconfig_set_string(&fs, "hidepid", "invisible")
        .at(name, || "fsconfig(proc, hidepid=invisible)")?;
    fsconfig_create(&fs).at(name, || "fsconfig(proc, CREATE)")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let proc =
        fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(name, || "fsmount(proc)")?;
    attach_at(name, &proc, confinement.root(name)?, "proc")?;
    confinement.proc = Some(proc);
    Ok(())
}

/// Leaves room for one user namespace below this one, which [`super::locks`] then takes.
///
/// # Errors
/// `EROFS` when `/proc/sys` is masked already.
pub fn limit_namespaces(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "limit-namespaces";
    let file = "sys/user/max_user_namespaces";
    let proc = confinement.proc(name)?;
    let fd = openat(proc, file, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .at(name, || format!("open(/proc/{file})"))?;
    rustix::io::write(&fd, USER_NAMESPACES.as_bytes())
        .at(name, || format!("write(/proc/{file}, {USER_NAMESPACES})"))?;
    let mut text = [0; 16];
    let read = rustix::io::pread(&fd, &mut text, 0).at(name, || format!("read(/proc/{file})"))?;
    let found = String::from_utf8_lossy(&text[..read]).trim().to_owned();
    if found == USER_NAMESPACES {
        return Ok(());
    }
    Err(SetupError::mismatch(name, format!("/proc/{file}"), USER_NAMESPACES, found))
}

/// Hides and write-protects what of `/proc` is not about the session's own processes.
///
/// The masks are our own `/dev/null`, checked by its number, and a directory of our own root; a
/// file of the session is never the source of a mount (V4).
///
/// # Errors
/// When a mask cannot be attached; a file this kernel does not have needs none.
pub fn mask_proc(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "mask-proc";
    let proc = confinement.proc(name)?;
    let root = confinement.root(name)?;
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let exists = |path: &str| statat(proc, path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let read_only = MountAttributes {
        set: MountAttributes::RDONLY
            | MountAttributes::NOSUID
            | MountAttributes::NODEV
            | MountAttributes::NOEXEC,
        ..MountAttributes::default()
    };
    for path in READ_ONLY.into_iter().filter(|path| exists(path)) {
        let mount = open_tree(proc, path, clone).at(name, || format!("open_tree(proc/{path})"))?;
        sys::mount_setattr(&mount, Recursion::This, &read_only)
            .at(name, || format!("mount_setattr(proc/{path}, RDONLY)"))?;
        attach_at(name, &mount, proc, path)?;
    }
    for path in HIDDEN_FILES.into_iter().filter(|path| exists(path)) {
        attach_at(name, &device_mount("null", 1, 3)?, proc, path)?;
    }
    for path in HIDDEN_DIRECTORIES.into_iter().filter(|path| exists(path)) {
        let mount = open_tree(root, "var/empty", clone).at(name, || "open_tree(var/empty)")?;
        sys::mount_setattr(&mount, Recursion::This, &read_only)
            .at(name, || "mount_setattr(var/empty, RDONLY)")?;
        attach_at(name, &mount, proc, path)?;
    }
    Ok(())
}

impl Confinement<'_> {
    fn proc(&self, name: &'static str) -> Result<&std::os::fd::OwnedFd, SetupError> {
        self.proc
            .as_ref()
            .ok_or_else(|| SetupError::other(name, "the session's /proc", "it was not mounted"))
    }
}
