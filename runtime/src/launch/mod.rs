//! The warden's side of a launch: from a plan to a session whose proof was checked.
//!
//! [`Launcher::prepare`] does what needs no plan: the child, its ids, its init up to
//! `receive-setup`, and the views every session has. [`Launcher::launch`] does the rest.

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
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use views::{View, Views, Wanted};

/// How long a launch can take before the warden gives it up.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(20);

/// Directories that every session sees.
#[derive(Debug, Clone, Copy)]
pub struct SharedTrees<'a> {
    /// The `/etc` of the toolchain.
    pub toolchain_etc: BorrowedFd<'a>,
    /// The directory of harness packs.
    pub packs: BorrowedFd<'a>,
}

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

/// What is needed before it is known what a session is for.
#[derive(Debug)]
pub struct Preparation<'a> {
    /// hangar's own ids.
    pub range: Range,
    /// The session's ids.
    pub block: Block,
    /// Its cgroups.
    pub placement: Placement<'a>,
    /// What every session sees.
    pub trees: SharedTrees<'a>,
    /// The program of init, sealed.
    pub init_image: BorrowedFd<'a>,
    /// Arguments of init after its name; shipped programs pass none.
    pub init_arguments: &'a [String],
    /// The steps, [`crate::steps::LAUNCH`] in shipped programs.
    pub steps: &'a [Step],
}

/// A child in new namespaces and in its cgroups whose init waits for a plan.
#[derive(Debug)]
pub struct Prepared {
    child: Child,
    control: OwnedFd,
    range: Range,
    block: Block,
    /// The child's user namespace, whose id map the read-only views apply.
    user_namespace: OwnedFd,
    views: Vec<View>,
    /// [`Placement::paths`] of where it was prepared.
    cgroups: Vec<(String, String)>,
}

impl Prepared {
    /// The ids it has.
    #[must_use]
    pub fn block(&self) -> Block {
        self.block
    }

    /// It still waits: nothing has killed it meanwhile.
    #[must_use]
    pub fn waits(&self) -> bool {
        let Some(pidfd) = &self.child.pidfd else { return false };
        let now = Timespec::default();
        // Readable when the process has ended.
        matches!(poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&now)), Ok(0))
    }
}

/// One launch.
#[derive(Debug)]
pub struct Request<'a> {
    /// What the session gets.
    pub plan: &'a Plan,
    /// Its directories.
    pub trees: Trees,
    /// The child, in the session's cgroups.
    pub prepared: Prepared,
    /// The steps the child was prepared with.
    pub steps: &'a [Step],
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
    /// The warden's own namespaces, which no session may be in.
    pub(crate) namespaces: BTreeMap<String, u64>,
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
        let namespaces = proof::own_namespaces()?;
        Ok(Self { workshop, toolchain, landlock_abi, filters, namespaces })
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

    /// Does what no plan decides; it can be done long before the launch.
    ///
    /// # Errors
    /// Names the step, the call and the cause. Nothing of the child is left then.
    pub fn prepare(&self, preparation: Preparation<'_>) -> Result<Prepared, SetupError> {
        let (control, child_end) =
            wire::pair().map_err(|e| SetupError::other("clone-stage-one", "socketpair()", e))?;
        let mut cloning = Cloning {
            preparation: &preparation,
            namespaces: 0,
            child_end: Some(child_end),
            child: None,
            user_namespace: None,
        };
        for step in preparation.steps {
            if let Action::Clone(action) = step.action {
                action(&mut cloning)?;
            }
        }
        let Cloning { child, user_namespace, .. } = cloning;
        let child = child.ok_or_else(no_child)?;
        let user_namespace = user_namespace
            .ok_or_else(|| SetupError::other("map-ids", "the user namespace", "was not opened"))?;
        stage_one::let_go(&control)?;
        let wanted = views::of_every_session(&self.toolchain, preparation.trees);
        let views = self.views(wanted, &user_namespace, preparation.steps)?;
        let Preparation { range, block, placement, .. } = preparation;
        let cgroups = placement.paths;
        Ok(Prepared { child, control, range, block, user_namespace, views, cgroups })
    }

    /// Launches a session in a prepared child and checks its proof.
    ///
    /// # Errors
    /// Names the step, the call and the cause. Nothing of the session is left then, except its
    /// directories and cgroups, which the caller made.
    pub fn launch(&self, request: Request<'_>) -> Result<Launched, SetupError> {
        request.plan.check().map_err(|why| SetupError::other("check-plan", "the plan", why))?;
        check_landlock(self.landlock_abi)?;
        let mut launch = Launch { launcher: self, request };
        launch.add_views().map_err(|error| launch.told_by_child(error))?;
        for step in launch.request.steps {
            if let Action::Warden(action) = step.action {
                action(&mut launch).map_err(|error| launch.told_by_child(error))?;
            }
        }
        launch.finish()
    }

    fn views(
        &self,
        wanted: Vec<Wanted<'_>>,
        user_namespace: &OwnedFd,
        steps: &[Step],
    ) -> Result<Vec<View>, SetupError> {
        let workshop = &self.workshop;
        let mut views = Views { workshop, user_namespace, wanted, made: Vec::new() };
        for step in steps {
            if let Action::Views(action) = step.action {
                action(&mut views)?;
            }
        }
        Ok(views.made)
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
    pub(crate) launcher: &'a Launcher,
    pub(crate) request: Request<'a>,
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
    pub(crate) fn range(&self) -> Range {
        self.request.prepared.range
    }

    pub(crate) fn block(&self) -> Block {
        self.request.prepared.block
    }

    pub(crate) fn cgroups(&self) -> &[(String, String)] {
        &self.request.prepared.cgroups
    }

    pub(crate) fn pid(&self) -> i32 {
        self.request.prepared.child.pid
    }

    /// Makes the views of the plan, beside those that every session has.
    fn add_views(&mut self) -> Result<(), SetupError> {
        let Request { plan, trees, prepared, steps, .. } = &mut self.request;
        let wanted = views::of_plan(plan, trees)?;
        let made = self.launcher.views(wanted, &prepared.user_namespace, steps)?;
        prepared.views.extend(made);
        Ok(())
    }

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
        let control = &self.request.prepared.control;
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(control, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return Err(WireError::WouldBlock),
                Ok(_) => return wire::receive(control),
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
        let Prepared { child, control, .. } = &mut self.request.prepared;
        let pidfd = child.pidfd.take().ok_or_else(no_child)?;
        Ok(Launched {
            pid: child.pid,
            pidfd,
            control: control.try_clone().at(step, || "dup(control socket)")?,
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
