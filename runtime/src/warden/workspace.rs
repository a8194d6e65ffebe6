//! A session's working directory as the API sees it.

use crate::error::{AtStep, SetupError};
use crate::ids::Block;
use hangar_runtime_sys as sys;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{OpenTreeFlags, open_tree};
use std::os::fd::{BorrowedFd, OwnedFd};

const STEP: &str = "view-workspace";

/// A detached mount of the directory that nothing can be written through and on which the
/// session's user appears as `viewer`; so the API needs no right over the session's ids.
///
/// # Errors
/// `EINVAL` when the filesystem of the state directory supports no id maps.
pub(super) fn view(
    workdir: BorrowedFd<'_>,
    block: Block,
    viewer: u32,
) -> Result<OwnedFd, SetupError> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let mount = open_tree(workdir, "", flags).at(STEP, || "open_tree(workdir, CLONE)")?;
    let id_map = id_map(block.agent(), viewer)?;
    let attributes = sys::MountAttributes {
        set: sys::MountAttributes::RDONLY
            | sys::MountAttributes::NOSUID
            | sys::MountAttributes::NODEV
            | sys::MountAttributes::NOEXEC,
        propagation: sys::MountAttributes::PRIVATE,
        idmap: Some(std::os::fd::AsFd::as_fd(&id_map)),
        ..Default::default()
    };
    sys::mount_setattr(&mount, sys::Recursion::This, &attributes)
        .at(STEP, || "mount_setattr(workdir, RDONLY|IDMAP)")?;
    Ok(mount)
}

/// A user namespace that maps one id; it exists as long as the descriptor or a mount that uses it.
fn id_map(from: u32, to: u32) -> Result<OwnedFd, SetupError> {
    let namespaces = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let clone = sys::Clone { namespaces, ..Default::default() };
    let (wait, done) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(STEP, || "pipe2(CLOEXEC)")?;
    match sys::clone3(&clone).at(STEP, || "clone3(NEWUSER)")? {
        sys::Forked::Child => {
            drop(done);
            // Only its namespace is wanted. The end of the pipe comes also when the warden dies.
            let _ = rustix::io::read(&wait, &mut [0]);
            sys::exit_now(0)
        }
        sys::Forked::Parent { pid, pidfd } => {
            let made = write_map(pid, from, to);
            drop(done);
            super::reap(&pidfd);
            made
        }
    }
}

fn write_map(pid: i32, from: u32, to: u32) -> Result<OwnedFd, SetupError> {
    let line = format!("{from} {to} 1\n");
    for map in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{map}");
        std::fs::write(&path, &line).at(STEP, || format!("write({path}, {line:?})"))?;
    }
    let path = format!("/proc/{pid}/ns/user");
    openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .at(STEP, || format!("open({path})"))
}
