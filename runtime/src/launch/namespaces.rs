//! The child in its namespaces, cgroups and id map.

use super::{Child, Preparation, StageOne, stage_one};
use crate::error::{AtStep, SetupError};
use crate::ids::{Block, Range, SESSION_IDS, SOURCE_UID_INSIDE, STORE_UID_INSIDE};
use crate::proof::IdMapLine;
use hangar_runtime_sys::{self as sys, Clone, Forked, clone3};
use rustix::fs::{Mode, OFlags, openat};
use rustix::thread::CapabilitiesSecureBits;
use std::os::fd::{AsFd, OwnedFd};

/// The part of a launch that no plan decides: a child in new namespaces and in its cgroups.
///
/// It can be done ahead of time.
#[derive(Debug)]
pub struct Cloning<'a> {
    pub(crate) preparation: &'a Preparation<'a>,
    /// `CLONE_NEW*` of the namespaces the child gets.
    pub(crate) namespaces: u64,
    pub(crate) child_end: Option<OwnedFd>,
    pub(crate) child: Option<Child>,
    /// The child's user namespace, from `map-ids` on.
    pub(crate) user_namespace: Option<OwnedFd>,
}

/// Adds a user namespace to what the child gets.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn user(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWUSER as u64;
    Ok(())
}

/// Adds a mount namespace.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn mount(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWNS as u64;
    Ok(())
}

/// Adds a pid namespace.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn pid(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWPID as u64;
    Ok(())
}

/// Adds a network namespace.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn network(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWNET as u64;
    Ok(())
}

/// Adds an IPC namespace.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn ipc(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWIPC as u64;
    Ok(())
}

/// Adds a UTS namespace.
///
/// # Errors
/// Never; the flag takes effect in [`clone_stage_one`].
pub fn uts(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    cloning.namespaces |= libc::CLONE_NEWUTS as u64;
    Ok(())
}

/// Clones the child into its namespaces and, in the v2 hierarchy, into the session's cgroup.
///
/// The cgroup namespace is not among them: it takes its root from where the process is when it
/// is made, and v1 hierarchies can only be joined after the clone. The child makes it later.
///
/// # Errors
/// `ENOSPC` when a limit on namespaces is reached, `EAGAIN` for processes.
pub fn clone_stage_one(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    let name = "clone-stage-one";
    let child_end = cloning
        .child_end
        .take()
        .ok_or_else(|| SetupError::other(name, "the child's socket", "it was taken before"))?;
    let preparation = cloning.preparation;
    let placement = &preparation.placement;
    let clone = Clone { namespaces: cloning.namespaces, cgroup: Some(placement.directory) };
    become_creator(preparation.block.base)?;
    let forked = clone3(&clone);
    if let Ok(Forked::Child) = forked {
        // At once, and for good: nothing of the warden's code may go on in this process.
        stage_one::run(
            preparation.steps,
            &StageOne {
                control: child_end.as_fd(),
                v1_procs: &placement.v1_procs,
                image: preparation.init_image,
                arguments: preparation.init_arguments,
            },
        )
    }
    become_root_again()?;
    match forked.at(name, || format!("clone3({:#x}, into cgroup)", clone.namespaces))? {
        Forked::Child => Err(SetupError::other(name, "the child", "it went on in the warden")),
        Forked::Parent { pid, pidfd } => {
            cloning.child = Some(Child { pid, pidfd: Some(pidfd) });
            Ok(())
        }
    }
}

/// Takes another effective uid, keeping every capability.
///
/// The kernel charges what a namespace uses (inotify, pending signals, pipe pages, keys) to its
/// creator too. With root as the creator of all, one session could use up what every other
/// session and the host's root may have (P058).
fn become_creator(creator: u32) -> Result<(), SetupError> {
    let name = "clone-stage-one";
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::NO_SETUID_FIXUP)
        .at(name, || "prctl(PR_SET_SECUREBITS, NO_SETUID_FIXUP)")?;
    sys::set_effective_uid(creator).at(name, || format!("setresuid(-1, {creator}, -1)"))
}

/// Undoes [`become_creator`]. The secure bits too: what the warden starts without capabilities, as
/// the egress proxy, loses them by giving up uid 0.
fn become_root_again() -> Result<(), SetupError> {
    let name = "clone-stage-one";
    sys::set_effective_uid(0).at(name, || "setresuid(-1, 0, -1)")?;
    rustix::thread::set_capabilities_secure_bits(CapabilitiesSecureBits::empty())
        .at(name, || "prctl(PR_SET_SECUREBITS, 0)")
}

/// The id map of a session as the host writes it.
///
/// Beside the session's own ids it names the owner of the frozen trees and of the source, so that
/// the same user namespace serves as the id map of the read-only mounts. Inside the session no
/// process can become either: the inner namespace does not map the source's owner at all, and
/// nobody there runs as the store's.
#[must_use]
pub fn outer_map(range: Range, block: Block) -> [IdMapLine; 3] {
    [
        IdMapLine { inside: 0, outside: block.base, count: SESSION_IDS },
        IdMapLine { inside: range.store(), outside: block.base + STORE_UID_INSIDE, count: 1 },
        IdMapLine { inside: range.api(), outside: block.base + SOURCE_UID_INSIDE, count: 1 },
    ]
}

/// Writes the child's id maps.
///
/// # Errors
/// `EPERM` without CAP_SETUID over the host's ids.
pub fn map_ids(cloning: &mut Cloning<'_>) -> Result<(), SetupError> {
    let name = "map-ids";
    let proc = super::open_proc(cloning.child.as_ref().ok_or_else(super::no_child)?.pid)?;
    let map = outer_map(cloning.preparation.range, cloning.preparation.block)
        .map(|line| format!("{} {} {}\n", line.inside, line.outside, line.count));
    let map = map.concat();
    for file in ["uid_map", "gid_map"] {
        let fd = openat(&proc, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .at(name, || format!("open({file})"))?;
        rustix::io::write(&fd, map.as_bytes()).at(name, || format!("write({file}, {map:?})"))?;
    }
    cloning.user_namespace = Some(
        openat(&proc, "ns/user", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .at(name, || "open(ns/user)")?,
    );
    Ok(())
}
