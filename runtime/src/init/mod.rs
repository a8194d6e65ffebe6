//! PID 1 of a session: confines itself, proves it, then starts and records commands.

pub mod command;
mod copy_tree;
pub mod devices;
pub mod landlock;
pub mod locks;
pub mod network;
pub mod privileges;
pub mod proc;
pub mod root;
mod running;
pub mod seccomp;
mod serve;

pub use command::CommandSetup;

use crate::error::SetupError;
use crate::proof::{self, LandlockFacts, ProofRecord};
use crate::steps::{Action, Step};
use crate::wire::init::{CONTROL_FD, Order, Report, Setup};
use crate::wire::{self, WireError};
use running::Common;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What init's steps work on.
#[derive(Debug)]
pub struct Confinement<'a> {
    /// The connection to the warden.
    pub(crate) control: BorrowedFd<'a>,
    /// The plan's part for init, from `receive-setup` on.
    pub(crate) setup: Option<Setup>,
    /// The views of the plan, one for each of the setup's mounts, until they are attached.
    pub(crate) views: Vec<OwnedFd>,
    /// The tmpfs that becomes the root, until `pivot-root`.
    pub(crate) root: Option<OwnedFd>,
    /// A `/proc` of this session that no mask covers.
    pub(crate) proc: Option<OwnedFd>,
    pub(crate) listener: Option<TcpListener>,
    pub(crate) landlock: LandlockFacts,
}

/// Runs init: the shipped program passes [`crate::steps::LAUNCH`] and the record as it is.
///
/// `report` stands between what init observed of itself and what it tells the warden; a test
/// passes one that lies, to show that the warden finds out.
///
/// It does not return while the session lives; when it returns, the session ends with it.
///
/// # Errors
/// Only when the warden cannot even be told what went wrong.
pub fn run(
    steps: &[Step],
    control: OwnedFd,
    report: impl FnOnce(ProofRecord) -> ProofRecord,
) -> Result<(), WireError> {
    let common = match confine(steps, control.as_fd(), report) {
        Ok(common) => common,
        Err(Failure::Setup(error)) => {
            let cause = match &error.cause {
                crate::error::Cause::Errno(errno) => format!("{}: {errno}", error.call),
                _ => error.to_string(),
            };
            let report = Report::Failed { step: error.step.to_owned(), cause };
            return wire::send(&control, &report, &[]);
        }
        Err(Failure::Wire(error)) => return Err(error),
    };
    serve::serve(&common, control)
}

enum Failure {
    Setup(SetupError),
    Wire(WireError),
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::Setup(error)
    }
}

impl From<WireError> for Failure {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

fn confine<'a>(
    steps: &'a [Step],
    control: BorrowedFd<'_>,
    report: impl FnOnce(ProofRecord) -> ProofRecord,
) -> Result<Common<'a>, Failure> {
    let mut confinement = Confinement {
        control,
        setup: None,
        views: Vec::new(),
        root: None,
        proc: None,
        listener: None,
        landlock: LandlockFacts::none(0),
    };
    for step in steps {
        if let Action::Init(action) = step.action {
            action(&mut confinement)?;
        }
    }
    let Confinement { setup, listener, landlock, .. } = confinement;
    let setup = setup.ok_or_else(|| no_setup("start-init"))?;
    let record = report(proof::observe_self(landlock)?);
    let fds: Vec<_> = listener.iter().map(AsFd::as_fd).collect();
    wire::send(control, &Report::Ready(Box::new(record)), &fds)?;
    Ok(Common { steps, limits: setup.limits, filters: setup.filters.command })
}

/// Waits for the plan. What comes before in the table, a parked child has done.
///
/// # Errors
/// When the warden is gone, gave the launch up, or sent something else.
pub fn receive_setup(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "receive-setup";
    let (order, views) = wire::receive::<Order>(confinement.control)
        .map_err(|error| SetupError::other(name, "recvmsg(warden)", error))?;
    let Order::Setup(setup) = order else {
        return Err(SetupError::other(name, "the first order", "it is not a setup"));
    };
    if views.len() != setup.mounts.len() {
        let wanted = setup.mounts.len();
        return Err(SetupError::mismatch(name, "the number of mounts", wanted, views.len()));
    }
    confinement.landlock = LandlockFacts::none(setup.landlock_abi);
    confinement.views = views;
    confinement.setup = Some(*setup);
    Ok(())
}

fn no_setup(name: &'static str) -> SetupError {
    SetupError::other(name, "the setup", "it was not received")
}

impl Confinement<'_> {
    pub(crate) fn setup(&self, name: &'static str) -> Result<&Setup, SetupError> {
        self.setup.as_ref().ok_or_else(|| no_setup(name))
    }
}

/// The connection to the warden, which stage one put at a fixed number.
///
/// # Errors
/// When the program was not started by the warden.
pub fn control_socket() -> Result<OwnedFd, rustix::io::Errno> {
    hangar_runtime_sys::adopt_descriptor(CONTROL_FD)
}
