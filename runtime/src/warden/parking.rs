//! A child that waits for a plan, made while nothing else is to be done.
//!
//! It has its namespaces, its cgroups, its block of ids, an init that went as far as it can without
//! a plan, and the views every session has. A launch that finds one does the rest.

use super::blocks::Blocks;
use super::state::StateDir;
use crate::cgroup::{Cgroups, SessionCgroup};
use crate::error::SetupError;
use crate::ids::Block;
use crate::launch::{Launcher, Preparation, Prepared, SharedTrees};
use crate::steps::Step;
use crate::wire::warden::Request;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// How long nothing was asked after a launch before a child is parked: a command comes next.
const AFTER_LAUNCH: Duration = Duration::from_millis(20);
/// The same after a command was started, whose end is to be told.
const AFTER_EXEC: Duration = Duration::from_millis(5);
/// The same after anything else: what takes longer, a worker does.
const AFTER_OTHERS: Duration = Duration::from_millis(1);
/// How long after a failure it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A prepared child and the group it is in, which stays when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) child: Prepared,
    pub(super) group: SessionCgroup,
}

/// What preparing a child takes.
pub(super) struct Means<'a> {
    pub(super) state: &'a StateDir,
    pub(super) cgroups: &'a Cgroups,
    pub(super) launcher: &'a Launcher,
    pub(super) init_image: BorrowedFd<'a>,
    pub(super) init_arguments: &'a [String],
    pub(super) steps: &'a [Step],
}

impl Means<'_> {
    /// Prepares a child in a group of this name, which has no limits yet: nothing but the launch's
    /// own steps runs there until it is admitted.
    pub(super) fn prepare(&self, name: &str, block: Block) -> Result<Place, SetupError> {
        let group = self.cgroups.create_unlimited(name)?;
        let preparation = Preparation {
            range: self.state.range(),
            block,
            placement: group.placement(),
            trees: SharedTrees {
                toolchain_etc: self.state.toolchain_etc(),
                packs: self.state.packs.as_fd(),
            },
            init_image: self.init_image,
            init_arguments: self.init_arguments,
            steps: self.steps,
        };
        match self.launcher.prepare(preparation) {
            Ok(child) => Ok(Place { child, group }),
            Err(error) => {
                // The first error tells; what stays is found at the next start.
                let _ = group.try_remove();
                Err(error)
            }
        }
    }
}

/// Keeps one child parked.
#[derive(Debug)]
pub(super) struct Parking {
    place: Option<Place>,
    made: u64,
    /// What is likely to be asked next goes first until then.
    quiet_until: Instant,
    /// After a failure, whatever is asked.
    retry_at: Instant,
}

impl Parking {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self { place: None, made: 0, quiet_until: now, retry_at: now }
    }

    /// The parked child, if there is one. Its block goes with it.
    pub(super) fn take(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// A request came: what is likely to come next goes first.
    pub(super) fn postpone(&mut self, quiet: Duration) {
        self.quiet_until = Instant::now() + quiet;
    }

    /// How long to wait after a request of this kind.
    pub(super) fn quiet_after(request: &Request) -> Duration {
        match request {
            Request::Launch(_) => AFTER_LAUNCH,
            Request::Exec(_) => AFTER_EXEC,
            _ => AFTER_OTHERS,
        }
    }

    /// When a child is to be parked.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.place.is_none().then(|| self.quiet_until.max(self.retry_at))
    }

    /// Parks a child when it is time and a block is free.
    pub(super) fn housekeeping(&mut self, means: &Means<'_>, blocks: &mut Blocks) {
        if self.next_deadline().is_none_or(|deadline| deadline > Instant::now()) {
            return;
        }
        self.place = self.park(means, blocks);
        if self.place.is_none() {
            self.retry_at = Instant::now() + RETRY_AFTER;
        }
    }

    fn park(&mut self, means: &Means<'_>, blocks: &mut Blocks) -> Option<Place> {
        let block = blocks.allocate()?;
        self.made += 1;
        match means.prepare(&format!("hsess-parked-{}", self.made), block) {
            Ok(place) => Some(place),
            Err(error) => {
                // A launch does without, and tells what is wrong if it fails too.
                log!("no child was parked: {error}");
                blocks.give_back(block);
                None
            }
        }
    }
}
