//! The session's own root: a tmpfs with the plan's views on it.

use super::Confinement;
use crate::error::{AtStep, SetupError};
use crate::ids::AGENT_UID;
use crate::launch::views::{attach_at, tmpfs};
use hangar_runtime_sys::{self as sys, MountAttributes, Recursion};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
use rustix::mount::{MountAttrFlags, MountPropagationFlags, UnmountFlags, mount_change, unmount};
use std::os::fd::{AsFd, OwnedFd};

/// Every tmpfs of a session: no setuid, no devices.
const FLAGS: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Cuts the session's mounts off from those of the host, in both directions.
///
/// # Errors
/// `EPERM` outside a mount namespace of the session.
pub fn make_propagation_private(_: &mut Confinement<'_>) -> Result<(), SetupError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at("make-propagation-private", || "mount(/, MS_PRIVATE|MS_REC)")
}

/// Makes the tmpfs that becomes the root, with nothing but directories and links.
///
/// Mount points are made here and nowhere else, so no tree that somebody wrote decides where a
/// mount lands.
///
/// # Errors
/// When a directory cannot be made.
pub fn make_own_root(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "make-own-root";
    let root = tmpfs(name, &[("mode", "0755"), ("size", "1m"), ("nr_inodes", "1024")], FLAGS)?;
    attach_at(name, &root, CWD, "/")?;
    for (mode, directory) in [
        (0o755, "dev"),
        (0o755, "env"),
        (0o755, "etc"),
        (0o755, "home"),
        (0o755, "opt"),
        (0o555, "proc"),
        (0o755, "root"),
        (0o755, "run"),
        (0o755, "sys"),
        (0o755, "tmp"),
        (0o755, "usr"),
        (0o755, "var"),
        (0o755, "var/lib"),
        (0o755, "var/empty"),
    ] {
        mkdirat(&root, directory, Mode::from(mode)).at(name, || format!("mkdir({directory})"))?;
    }
    symlinkat("../tmp", &root, "var/tmp").at(name, || "symlink(var/tmp)")?;
    symlinkat("../run", &root, "var/run").at(name, || "symlink(var/run)")?;
    confinement.root = Some(root);
    Ok(())
}

/// Mounts `/tmp`, `/run` and `/dev/shm`: private, bounded in bytes and files.
///
/// # Errors
/// When the limits of the plan are not valid for a tmpfs.
pub fn mount_temporary_directories(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "mount-temporary-directories";
    let root = confinement.root(name)?;
    mkdirat(root, "dev/shm", Mode::from(0o755)).at(name, || "mkdir(dev/shm)")?;
    let size = confinement.setup(name)?.limits.tmpfs_bytes_max.to_string();
    let agent = AGENT_UID.to_string();
    for (target, mode, owner) in
        [("tmp", "1777", "0"), ("run", "0755", agent.as_str()), ("dev/shm", "1777", "0")]
    {
        let options = [
            ("mode", mode),
            ("uid", owner),
            ("gid", owner),
            ("size", size.as_str()),
            ("nr_inodes", "200000"),
        ];
        let mount = tmpfs(name, &options, FLAGS)?;
        attach_at(name, &mount, root, target)?;
    }
    Ok(())
}

/// Attaches every view of the plan at its target, and links to them as the toolchain has it.
///
/// # Errors
/// When a target is not a plain absolute path or its directory cannot be made.
pub fn attach_views(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "attach-views";
    let root = confinement.root(name)?;
    let setup = confinement.setup(name)?;
    for (link, target) in &setup.links {
        symlinkat(target, root, link).at(name, || format!("symlink({link} -> {target})"))?;
    }
    for (mount, view) in setup.mounts.iter().zip(&confinement.views) {
        let target = mount.target.trim_start_matches('/');
        let directory = make_directories(name, root, target)?;
        rustix::mount::move_mount(
            view,
            c"",
            &directory,
            c"",
            rustix::mount::MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH
                | rustix::mount::MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH,
        )
        .at(name, || format!("move_mount({})", mount.target))?;
    }
    confinement.views.clear();
    Ok(())
}

/// Opens a directory below the root, making what is missing; no component can be a link.
fn make_directories(name: &'static str, root: &OwnedFd, path: &str) -> Result<OwnedFd, SetupError> {
    let mut directory = root.try_clone().at(name, || "dup(root)")?;
    for component in path.split('/') {
        if component.is_empty() || component == "." || component == ".." {
            return Err(SetupError::other(name, path, "it is not a plain path"));
        }
        match mkdirat(&directory, component, Mode::from(0o755)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(SetupError::call(name, format!("mkdir({path})"), errno)),
        }
        directory = openat(
            &directory,
            component,
            OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .at(name, || format!("open({path})"))?;
    }
    Ok(directory)
}

/// Makes the tmpfs the root and lets the host's root go.
///
/// # Errors
/// `EINVAL` when the root is not a mount point of this namespace.
pub fn pivot(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "pivot-root";
    let root = confinement.root(name)?;
    rustix::process::fchdir(root).at(name, || "fchdir(root)")?;
    rustix::process::pivot_root(".", ".").at(name, || "pivot_root(., .)")?;
    // The old root lies on the new one now, at the same place.
    unmount(".", UnmountFlags::DETACH).at(name, || "umount2(., MNT_DETACH)")?;
    rustix::process::chdir("/").at(name, || "chdir(/)")
}

/// Makes the root itself read-only; the mounts on it keep their own attributes.
///
/// # Errors
/// `ENOSYS` before Linux 5.12.
pub fn make_root_read_only(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "make-root-read-only";
    let root = confinement.root.take().ok_or_else(|| no_root(name))?;
    let attributes = MountAttributes { set: MountAttributes::RDONLY, ..MountAttributes::default() };
    sys::mount_setattr(root.as_fd(), Recursion::This, &attributes)
        .at(name, || "mount_setattr(root, RDONLY)")
}

fn no_root(name: &'static str) -> SetupError {
    SetupError::other(name, "the session's root", "it was not made")
}

impl Confinement<'_> {
    pub(crate) fn root(&self, name: &'static str) -> Result<&OwnedFd, SetupError> {
        self.root.as_ref().ok_or_else(|| no_root(name))
    }
}
