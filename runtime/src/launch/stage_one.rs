//! The warden's child between its clone and init.
//!
//! It is a copy of the warden's memory inside the new namespaces. It does as little as possible
//! and then becomes init by executing the sealed image, which takes that memory away.

use crate::error::{AtStep, SetupError};
use crate::steps::{Action, Step, includes};
use crate::wire;
use crate::wire::init::{CONTROL_FD, Report};
use hangar_runtime_sys as sys;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// The one step with a part that comes before the wait: a parked child must not keep descriptors.
const CLOSE: &str = "close-inherited-descriptors";

/// What the warden sends once the id maps are written.
const GO: &[u8] = b"go";

/// What stage one has to work with.
#[derive(Debug)]
pub struct StageOne<'a> {
    /// The child's end of the connection to the warden.
    pub control: BorrowedFd<'a>,
    /// `cgroup.procs` of the session's groups on v1, opened by the warden.
    pub v1_procs: &'a [BorrowedFd<'a>],
    /// The program of init.
    pub image: BorrowedFd<'a>,
    /// Arguments of init after its name.
    pub arguments: &'a [String],
}

/// Runs the steps of stage one. It ends in init, or in a report and an exit.
pub(super) fn run(steps: &[Step], stage: &StageOne<'_>) -> ! {
    let result =
        let_go_of_the_warden(steps, stage).and_then(|()| wait_for_go(stage)).and_then(|()| {
            for step in steps {
                if let Action::StageOne(action) = step.action {
                    action(stage)?;
                }
            }
            Ok(())
        });
    if let Err(error) = result {
        let report = Report::Failed { step: error.step.to_owned(), cause: error.to_string() };
        // When the warden is gone there is nobody left to tell.
        let _ = wire::send(stage.control, &report, &[]);
    }
    sys::exit_now(1)
}

/// Closes what is the warden's, and dies with it.
///
/// A child can be parked for long. If it kept the warden's ends of the connections to other
/// sessions open, those would outlive the warden.
fn let_go_of_the_warden(steps: &[Step], stage: &StageOne<'_>) -> Result<(), SetupError> {
    if includes(steps, CLOSE) {
        let kept = [&[stage.control, stage.image], stage.v1_procs].concat();
        sys::close_all_but(&kept).at(CLOSE, || "close_range(all others)")?;
    }
    let name = "clone-stage-one";
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .at(name, || "prctl(PR_SET_PDEATHSIG, SIGKILL)")
}

/// Lets the child go on, once its id maps are written.
pub(super) fn let_go(control: &OwnedFd) -> Result<(), SetupError> {
    rustix::net::send(control, GO, rustix::net::SendFlags::NOSIGNAL)
        .at("map-ids", || "send(go)")
        .map(drop)
}

fn wait_for_go(stage: &StageOne<'_>) -> Result<(), SetupError> {
    let mut bytes = [0; GO.len()];
    let (_, received) =
        rustix::net::recv(stage.control, &mut bytes, rustix::net::RecvFlags::empty())
            .at("map-ids", || "recv(go)")?;
    if received == GO.len() && bytes == *GO {
        return Ok(());
    }
    Err(SetupError::other("map-ids", "recv(go)", "the warden gave the launch up"))
}

/// Moves this process into the session's cgroups of the v1 hierarchies, where there are any.
///
/// The kernel takes up to 15 ms for it after a second of quiet; so the child does it, and the
/// warden goes on. It is checked from outside before anything of the session runs.
///
/// # Errors
/// `EACCES`, `EBUSY`: what writing `cgroup.procs` says.
pub fn join_cgroups(stage: &StageOne<'_>) -> Result<(), SetupError> {
    for procs in stage.v1_procs {
        // 0 is the writer itself.
        rustix::io::write(procs, b"0").at("join-cgroups", || "write(cgroup.procs of v1, 0)")?;
    }
    Ok(())
}

/// Leaves the warden's session keyring for a new, empty one.
///
/// Possession of keys is inherited across namespaces and uids, so without it a session could
/// read a key of the daemon (isolation fact 7).
///
/// # Errors
/// What `keyctl(2)` says; a kernel without keys has nothing to leave.
pub fn join_keyring(_: &StageOne<'_>) -> Result<(), SetupError> {
    match sys::join_new_session_keyring() {
        Ok(_) | Err(Errno::NOSYS) => Ok(()),
        Err(errno) => {
            Err(SetupError::call("join-new-keyring", "keyctl(JOIN_SESSION_KEYRING)", errno))
        }
    }
}

/// Makes the cgroup namespace, whose root is the session's own cgroup.
///
/// # Errors
/// `ENOSPC` when the limit on cgroup namespaces is reached.
pub fn new_cgroup_namespace(_: &StageOne<'_>) -> Result<(), SetupError> {
    sys::unshare(libc::CLONE_NEWCGROUP as u64)
        .at("new-cgroup-namespace", || "unshare(CLONE_NEWCGROUP)")
}

/// Becomes uid and gid 0 of the new user namespace, without supplementary groups.
///
/// # Errors
/// `EINVAL` when the maps are not written.
pub fn become_inner_root(_: &StageOne<'_>) -> Result<(), SetupError> {
    sys::become_ids(0, 0).at("become-inner-root", || "setgroups([]), setresgid(0), setresuid(0)")
}

/// Puts the control socket at its place and marks everything else close-on-exec.
///
/// # Errors
/// `ENOSYS` before Linux 5.11.
pub fn close_descriptors(_: &StageOne<'_>) -> Result<(), SetupError> {
    let name = CLOSE;
    let devnull = rustix::fs::open(
        "/dev/null",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )
    .at(name, || "open(/dev/null)")?;
    rustix::stdio::dup2_stdin(&devnull).at(name, || "dup2(/dev/null, 0)")?;
    rustix::stdio::dup2_stdout(&devnull).at(name, || "dup2(/dev/null, 1)")?;
    rustix::stdio::dup2_stderr(&devnull).at(name, || "dup2(/dev/null, 2)")?;
    sys::close_from(3).at(name, || "close_range(3.., CLOEXEC)")
}

/// Becomes init: executes the sealed image with the control socket as its one descriptor.
///
/// # Errors
/// What `execveat(2)` says.
pub fn execute_init(stage: &StageOne<'_>) -> Result<(), SetupError> {
    let name = "execute-init";
    // The image must not be lost if its number is the one the control socket goes to.
    let image = rustix::io::fcntl_dupfd_cloexec(stage.image, CONTROL_FD + 1)
        .at(name, || "dup(init image)")?;
    place_control(stage.control).at(name, || "dup2(control, 3)")?;
    let arguments: Vec<CString> = std::iter::once("hangar-init")
        .chain(stage.arguments.iter().map(String::as_str))
        .map(|a| CString::new(a).map_err(|_| SetupError::other(name, "an argument", "has a NUL")))
        .collect::<Result<_, _>>()?;
    let errno = sys::execveat(std::os::fd::AsFd::as_fd(&image), &arguments, &[]);
    Err(SetupError::call(name, "execveat(init image)", errno))
}

fn place_control(control: BorrowedFd<'_>) -> Result<(), Errno> {
    if control.as_raw_fd() == CONTROL_FD {
        return rustix::io::fcntl_setfd(control, rustix::io::FdFlags::empty());
    }
    sys::duplicate_to(control, CONTROL_FD)
}
