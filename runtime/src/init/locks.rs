//! The second user and mount namespace, which locks every mount made so far.

use super::Confinement;
use crate::error::{AtStep, SetupError};
use crate::ids::{Range, SESSION_IDS, STORE_UID_INSIDE};
use crate::proof::IdMapLine;
use hangar_runtime_sys::{self as sys, Clone, Forked, clone3};
use rustix::process::{WaitIdOptions, waitid};
use std::os::fd::{AsFd, OwnedFd};

/// The id map of the inner namespace. Every id stays itself; the owner of frozen trees, which the
/// outer namespace knows by its host number, gets a small one.
#[must_use]
pub fn inner_map(range: Range) -> [IdMapLine; 2] {
    [
        IdMapLine { inside: 0, outside: 0, count: SESSION_IDS },
        IdMapLine { inside: STORE_UID_INSIDE, outside: range.store(), count: 1 },
    ]
}

/// Moves init into a user and mount namespace below the ones the mounts were made in.
///
/// The kernel locks mounts that a less privileged namespace inherits: they cannot be unmounted,
/// made writable or moved, not even by a process with every capability there (isolation fact 2).
/// The id map must be written by a process that stays outside, so a child does it.
///
/// # Errors
/// `ENOSPC` when user namespaces are exhausted.
pub fn lock_mounts(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "lock-mounts";
    let (unshared, announce) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(name, || "pipe()")?;
    let range = Range { base: confinement.setup(name)?.range_base };
    match clone3(&Clone::default()).at(name, || "clone3()")? {
        Forked::Child => {
            drop(announce);
            let written = wait(&unshared).and_then(|()| write_maps(range));
            sys::exit_now(i32::from(written.is_err()))
        }
        Forked::Parent { pidfd, .. } => {
            drop(unshared);
            sys::unshare((libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as u64)
                .at(name, || "unshare(CLONE_NEWUSER|CLONE_NEWNS)")?;
            rustix::io::write(&announce, b"x").at(name, || "write(pipe)")?;
            let status =
                waitid(rustix::process::WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)
                    .at(name, || "waitid(map writer)")?;
            if status.and_then(|status| status.exit_status()) != Some(0) {
                return Err(SetupError::other(name, "writing the inner id maps", "it failed"));
            }
            sys::become_ids(0, 0).at(name, || "setresuid(0) in the inner namespace")
        }
    }
}

fn wait(pipe: &OwnedFd) -> Result<(), rustix::io::Errno> {
    match rustix::io::read(pipe, &mut [0; 1])? {
        1 => Ok(()),
        _ => Err(rustix::io::Errno::PIPE),
    }
}

fn write_maps(range: Range) -> Result<(), rustix::io::Errno> {
    let parent = rustix::process::getppid().ok_or(rustix::io::Errno::SRCH)?;
    let map = inner_map(range)
        .map(|line| format!("{} {} {}\n", line.inside, line.outside, line.count))
        .concat();
    for file in ["uid_map", "gid_map"] {
        let fd = rustix::fs::open(
            format!("/proc/{}/{file}", parent.as_raw_nonzero()),
            rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )?;
        rustix::io::write(&fd, map.as_bytes())?;
    }
    Ok(())
}
