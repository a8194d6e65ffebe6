//! Children that wait for a plan, made while nothing else is to be done.
//!
//! Joining a v1 cgroup after a second of quiet waits 7 to 15 ms for the kernel. A parked child
//! has done that, and the clone, before its launch is asked for.

use crate::cgroup::{Cgroups, SessionCgroup};
use crate::error::SetupError;
use crate::ids::Range;
use crate::launch::{Launcher, Parked, Placement};
use crate::steps::Step;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How long nothing was asked before a child is parked: who launched just now runs a command next.
const QUIET: Duration = Duration::from_millis(100);
/// How long after a failure it is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// A parked child and the group it is in, which stays when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) child: Parked,
    pub(super) group: SessionCgroup,
}

/// Keeps one child parked.
#[derive(Debug)]
pub(super) struct Parking {
    place: Option<Place>,
    made: u64,
    not_before: Instant,
}

impl Parking {
    pub(super) fn new() -> Self {
        Self { place: None, made: 0, not_before: Instant::now() }
    }

    /// The parked child, if there is one.
    pub(super) fn take(&mut self) -> Option<Place> {
        self.place.take()
    }

    /// A request came: the next ones go first.
    pub(super) fn postpone(&mut self) {
        self.not_before = self.not_before.max(Instant::now() + QUIET);
    }

    /// When a child is to be parked.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.place.is_none().then_some(self.not_before)
    }

    /// Parks a child when it is time.
    pub(super) fn housekeeping(
        &mut self,
        cgroups: &Cgroups,
        range: Range,
        init_image: BorrowedFd<'_>,
        init_arguments: &[String],
        steps: &[Step],
    ) {
        if self.place.is_some() || self.not_before > Instant::now() {
            return;
        }
        self.made += 1;
        let name = format!("hsess-parked-{}", self.made);
        match park(cgroups, &name, range.creator(self.made), init_image, init_arguments, steps) {
            Ok(place) => self.place = Some(place),
            Err(error) => {
                // A launch does without, and tells what is wrong if it fails too.
                log!("no child was parked: {error}");
                self.not_before = Instant::now() + RETRY_AFTER;
            }
        }
    }
}

fn park(
    cgroups: &Cgroups,
    name: &str,
    creator: u32,
    init_image: BorrowedFd<'_>,
    init_arguments: &[String],
    steps: &[Step],
) -> Result<Place, SetupError> {
    let group = cgroups.create_unlimited(name)?;
    match Launcher::park(&placement(&group), creator, init_image, init_arguments, steps) {
        Ok(child) => Ok(Place { child, group }),
        Err(error) => {
            // The first error tells; what stays is found at the next start.
            let _ = group.try_remove();
            Err(error)
        }
    }
}

/// Where a session in this group is.
pub(super) fn placement(group: &SessionCgroup) -> Placement<'_> {
    Placement { directory: group.directory(), v1_procs: group.v1_procs(), paths: group.paths() }
}
