//! `/dev`: six harmless devices, own pseudo-terminals, nothing else.

use super::Confinement;
use crate::error::{AtStep, SetupError};
use crate::launch::views::attach_at;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, symlinkat};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, open_tree,
};
use std::os::fd::OwnedFd;

/// Names and device numbers, which are fixed by the kernel's documentation.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

const LINKS: [(&str, &str); 5] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];

/// Fills `/dev`.
///
/// # Errors
/// When a device of the host is not the one it should be.
pub fn mount_devices(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "mount-devices";
    let root = confinement.root(name)?;
    for (device, major, minor) in DEVICES {
        let mount = device_mount(device, major, minor)?;
        let target = format!("dev/{device}");
        touch(root, &target)?;
        attach_at(name, &mount, root, &target)?;
    }
    mkdirat(root, "dev/pts", Mode::from(0o755)).at(name, || "mkdir(dev/pts)")?;
    attach_at(name, &terminals()?, root, "dev/pts")?;
    for (link, target) in LINKS {
        symlinkat(target, root, link).at(name, || format!("symlink({link})"))?;
    }
    Ok(())
}

fn touch(root: &OwnedFd, path: &str) -> Result<(), SetupError> {
    openat(root, path, OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC, Mode::from(0o644))
        .at("mount-devices", || format!("create({path})"))
        .map(drop)
}

/// A detached mount of one device of the host, checked by its number.
pub(crate) fn device_mount(device: &str, major: u32, minor: u32) -> Result<OwnedFd, SetupError> {
    let name = "mount-devices";
    let path = format!("/dev/{device}");
    let mount =
        open_tree(CWD, &path, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
            .at(name, || format!("open_tree({path}, CLONE)"))?;
    let stat = fstat(&mount).at(name, || format!("fstat({path})"))?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice
        || number != (major, minor)
    {
        return Err(SetupError::mismatch(
            name,
            format!("the device {path}"),
            format!("{major}:{minor}"),
            format!("{}:{}", number.0, number.1),
        ));
    }
    Ok(mount)
}

/// A new instance of devpts: terminals of the host and of other sessions are not in it.
fn terminals() -> Result<OwnedFd, SetupError> {
    let name = "mount-devices";
    let fs = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).at(name, || "fsopen(devpts)")?;
    fsconfig_set_flag(&fs, "newinstance").at(name, || "fsconfig(devpts, newinstance)")?;
    for (key, value) in [("ptmxmode", "0666"), ("mode", "0620"), ("gid", "5"), ("max", "256")] {
        fsconfig_set_string(&fs, key, value)
            .at(name, || format!("fsconfig(devpts, {key}={value})"))?;
    }
    fsconfig_create(&fs).at(name, || "fsconfig(devpts, CREATE)")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(name, || "fsmount(devpts)")
}
