//! The warden's side of a launch: from a plan to a session whose proof was checked.

pub mod namespaces;
pub mod stage_one;
pub mod toolchain;
pub mod views;

use namespaces::Cloning;
pub use stage_one::StageOne;

use crate::error::{AtStep, SetupError};
use crate::ids::{Block, Range};
use crate::plan::Plan;
use crate::proof::{self, ProofRecord};
use crate::steps::{Action, Step};
use crate::wire::init::{Filters, Report};
use crate::wire::{self, WireError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitIdOptions, pidfd_send_signal, waitid};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long a launch can take before the warden gives it up.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Directories of one session, opened by the warden below its own roots.
#[derive(Debug)]
pub struct Trees {
    /// `sessions/<id>/workdir`.
    pub workspace: OwnedFd,
    /// `sessions/<id>/home`.
    pub home: OwnedFd,
    /// A version's `tree`, or the staging tree of a build.
    pub environment: Option<OwnedFd>,
    /// The source of the environment, for a build.
    pub source: Option<OwnedFd>,
    /// Dependencies an earlier build installed, for a build that reuses them.
    pub dependencies: Option<OwnedFd>,
    /// The `/etc` of the toolchain.
    pub toolchain_etc: OwnedFd,
    /// The directory of harness packs.
    pub packs: OwnedFd,
}

/// Where a session is accounted and limited.
#[derive(Debug)]
pub struct Placement<'a> {
    /// The session's directory in the v2 hierarchy.
    pub directory: BorrowedFd<'a>,
    /// The session's `cgroup.procs` in each v1 hierarchy, open for writing.
    pub v1_procs: Vec<BorrowedFd<'a>>,
    /// What `/proc/<pid>/cgroup` shows from outside: controller list (empty for v2) and path, for
    /// the hierarchies of this placement.
    pub paths: Vec<(String, String)>,
}

/// One launch.
#[derive(Debug)]
pub struct Request<'a> {
    /// What the session gets.
    pub plan: &'a Plan,
    /// hangar's own ids.
    pub range: Range,
    /// The session's ids.
    pub block: Block,
    /// Its directories.
    pub trees: Trees,
    /// Its cgroups.
    pub placement: Placement<'a>,
    /// A child that was parked in that placement; without one it is cloned now.
    pub parked: Option<Parked>,
    /// The program of init, sealed.
    pub init_image: BorrowedFd<'a>,
    /// Arguments of init after its name; shipped programs pass none.
    pub init_arguments: &'a [String],
    /// The steps, [`crate::steps::LAUNCH`] in shipped programs.
    pub steps: &'a [Step],
}

/// A child in new namespaces and in its cgroups that waits for a plan.
#[derive(Debug)]
pub struct Parked {
    child: Child,
    control: OwnedFd,
}

impl Parked {
    /// It still waits: nothing has killed it meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        let Some(pidfd) = &self.child.pidfd else { return false };
        let now = Timespec::default();
        // Readable when the process has ended.
        matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)), Ok(0))
    }
}

/// A session that runs.
#[derive(Debug)]
pub struct Launched {
    /// init, as the host numbers it.
    pub pid: i32,
    /// A descriptor of init.
    pub pidfd: OwnedFd,
    /// The connection to init: [`wire::init::Order`] there, [`Report`] back.
    pub control: OwnedFd,
    /// The proxy's listener inside the session, with [`crate::plan::Network::Egress`].
    pub listener: Option<OwnedFd>,
    /// What the session is, checked from outside.
    pub proof: ProofRecord,
}

impl Launched {
    /// Ends the session at once and reaps init. Its directories and cgroups stay.
    pub fn end(self) {
        drop(Child { pid: self.pid, pidfd: Some(self.pidfd) });
    }
}

/// What all launches share. It is made once, in the warden's own mount namespace.
#[derive(Debug)]
pub struct Launcher {
    pub(crate) workshop: views::Workshop,
    pub(crate) toolchain: toolchain::HostToolchain,
    pub(crate) landlock_abi: u32,
    pub(crate) filters: Filters,
}

impl Launcher {
    /// Unshares the warden's mount namespace and prepares what every launch needs.
    ///
    /// # Errors
    /// When the process has threads or lacks a capability, or the kernel lacks Landlock.
    pub fn new() -> Result<Self, SetupError> {
        let landlock_abi = hangar_runtime_sys::landlock_abi();
        check_landlock(landlock_abi)?;
        let workshop = views::Workshop::new()?;
        let toolchain = toolchain::HostToolchain::open()?;
        let filters = crate::init::seccomp::compile()?;
        Ok(Self { workshop, toolchain, landlock_abi, filters })
    }

    /// Fills an empty directory with the `/etc` of the toolchain.
    ///
    /// # Errors
    /// When the host's `/etc` cannot be read or the directory not be written.
    pub fn toolchain_etc(&self, into: BorrowedFd<'_>) -> Result<(), SetupError> {
        toolchain::write_etc(into)
    }

    /// Makes the launcher believe that the kernel has this Landlock ABI; init still asks the
    /// kernel and refuses. For tests of kernels that are not at hand.
    pub fn pretend_landlock_abi(&mut self, abi: u32) {
        self.landlock_abi = abi;
    }

    /// Does ahead of time what no plan decides.
    ///
    /// `creator` is charged for what the session's namespaces use: an id of no other session.
    ///
    /// # Errors
    /// As for [`Self::launch`].
    pub fn park(
        placement: &Placement<'_>,
        creator: u32,
        init_image: BorrowedFd<'_>,
        init_arguments: &[String],
        steps: &[Step],
    ) -> Result<Parked, SetupError> {
        let (control, child_end) =
            wire::pair().map_err(|e| SetupError::other("clone-stage-one", "socketpair()", e))?;
        let mut cloning = Cloning {
            placement,
            creator,
            init_image,
            init_arguments,
            steps,
            namespaces: 0,
            child_end: Some(child_end),
            child: None,
        };
        for step in steps {
            if let Action::Clone(action) = step.action {
                action(&mut cloning)?;
            }
        }
        Ok(Parked { child: cloning.child.ok_or_else(no_child)?, control })
    }

    /// Launches a session and checks its proof.
    ///
    /// # Errors
    /// Names the step, the call and the cause. Nothing of the session is left then, except its
    /// directories and cgroups, which the caller made.
    pub fn launch(&mut self, mut request: Request<'_>) -> Result<Launched, SetupError> {
        request.plan.check().map_err(|why| SetupError::other("check-plan", "the plan", why))?;
        check_landlock(self.landlock_abi)?;
        let parked = match request.parked.take() {
            Some(parked) => parked,
            None => Self::park(
                &request.placement,
                request.block.base,
                request.init_image,
                request.init_arguments,
                request.steps,
            )?,
        };
        let mut launch = Launch {
            launcher: self,
            request,
            control: parked.control,
            child: parked.child,
            user_namespace: None,
            views: Vec::new(),
        };
        for step in launch.request.steps {
            if let Action::Warden(action) = step.action {
                action(&mut launch).map_err(|error| launch.told_by_child(error))?;
            }
        }
        launch.finish()
    }
}

/// Below the floor nothing is launched: there is no session without Landlock.
fn check_landlock(abi: u32) -> Result<(), SetupError> {
    let floor = crate::init::landlock::ABI_MIN;
    if abi >= floor {
        return Ok(());
    }
    let what = "the Landlock ABI of this kernel";
    Err(SetupError::mismatch("enforce-landlock", what, format!("{floor} or newer"), abi))
}

/// A launch under way. Dropped before it is finished, it kills the child.
#[derive(Debug)]
pub struct Launch<'a> {
    pub(crate) launcher: &'a mut Launcher,
    pub(crate) request: Request<'a>,
    pub(crate) control: OwnedFd,
    pub(crate) child: Child,
    /// The child's user namespace, whose id map the read-only views apply.
    pub(crate) user_namespace: Option<OwnedFd>,
    pub(crate) views: Vec<views::View>,
}

/// The process that becomes init. It is killed and reaped when it is dropped.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) pid: i32,
    pub(crate) pidfd: Option<OwnedFd>,
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(pidfd) = &self.pidfd {
            // It can have died by itself; then there is nobody to signal, but still one to reap.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
            let _ = waitid(rustix::process::WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

fn no_child() -> SetupError {
    SetupError::other("clone-stage-one", "the child", "the step was left out")
}

impl Launch<'_> {
    /// Prefers what the child reported to the error that its death caused here.
    fn told_by_child(&self, error: SetupError) -> SetupError {
        match self.receive(Duration::ZERO) {
            Ok((Report::Failed { step, cause }, _)) => {
                SetupError::other("start-init", format!("step {step} in the session"), cause)
            }
            _ => error,
        }
    }

    fn receive(&self, timeout: Duration) -> Result<(Report, Vec<OwnedFd>), WireError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&self.control, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return Err(WireError::WouldBlock),
                Ok(_) => return wire::receive(&self.control),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Waits for init's report and checks it against what can be seen from here.
    fn finish(mut self) -> Result<Launched, SetupError> {
        let step = "start-init";
        let (report, mut fds) = self
            .receive(LAUNCH_TIMEOUT)
            .map_err(|error| SetupError::other(step, "waiting for init's report", error))?;
        let record = match report {
            Report::Ready(record) => *record,
            Report::Failed { step: inner, cause } => {
                return Err(SetupError::other(step, format!("step {inner} in the session"), cause));
            }
            Report::Ended { .. } => {
                return Err(SetupError::other(step, "init's report", "it is out of order"));
            }
        };
        proof::check(&self, &record)?;
        let pidfd = self.child.pidfd.take().ok_or_else(no_child)?;
        Ok(Launched {
            pid: self.child.pid,
            pidfd,
            control: self.control.try_clone().at(step, || "dup(control socket)")?,
            listener: fds.pop(),
            proof: record,
        })
    }
}

/// The process of a pid, as a directory of `/proc`.
pub(crate) fn open_proc(pid: i32) -> Result<OwnedFd, SetupError> {
    use rustix::fs::{Mode, OFlags, open};
    let pid = Pid::from_raw(pid)
        .ok_or_else(|| SetupError::other("check-proof", "the pid of init", "it is not positive"))?;
    let path = format!("/proc/{}", pid.as_raw_nonzero());
    open(&path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .at("check-proof", || format!("open({path})"))
}
