//! Control groups: what a session can use up, and how all of it is killed.
//!
//! Every session has a directory in the v2 hierarchy, in which init is, with a leaf for each
//! command; `cgroup.kill` misses no process. The limits sit on that directory where the v2
//! hierarchy has the controller, else on a directory of the session in the controller's v1
//! hierarchy. Hosts with systemd have all of v2; hybrid hosts have an empty v2 tree beside v1.

mod hierarchy;
mod session;

pub use session::{Counters, SessionCgroup};

use crate::error::{AtStep, SetupError};
use crate::ids::SessionId;
use crate::plan::Limits;
use hierarchy::{Hierarchies, Place};
use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;
use std::rc::Rc;
use std::time::{Duration, Instant};

const STEP: &str = "create-cgroup";

/// A resource whose use is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Controller {
    /// Processes and threads.
    Pids,
    /// Memory.
    Memory,
    /// CPU time.
    Cpu,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Pids, Self::Memory, Self::Cpu];

    /// The name the kernel uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pids => "pids",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
        }
    }
}

/// Limits of a group that is no session: a worker's.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// Processes and threads.
    pub pids_max: u32,
    /// Bytes of memory.
    pub memory_bytes_max: u64,
    /// Thousandths of one CPU; `None` is unlimited.
    pub cpu_millis_max: Option<u32>,
}

impl From<&Limits> for GroupLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            pids_max: limits.pids_max,
            memory_bytes_max: limits.memory_bytes_max,
            cpu_millis_max: Some(limits.cpu_millis_max),
        }
    }
}

/// The parents of all groups of one state directory.
#[derive(Debug)]
pub struct Cgroups {
    unified: Rc<Place>,
    /// One for each v1 hierarchy that has a controller the v2 hierarchy lacks.
    v1: Vec<(Controller, Rc<Place>)>,
    /// The controllers of the v2 hierarchy.
    v2: Vec<Controller>,
}

impl Cgroups {
    /// Finds where groups can be made, by making one with limits and removing it.
    ///
    /// `state` names the state directory, so that wardens of two state directories do not take
    /// each other's groups for left-overs.
    ///
    /// # Errors
    /// When a controller is on no hierarchy, or a limit does not hold.
    pub fn detect(state: &str) -> Result<Self, SetupError> {
        let hierarchies = Hierarchies::read()?;
        let (mut unified, v2) = hierarchies.unified_parent(&Controller::ALL)?;
        for name in ["hangar", state] {
            unified.enable(&v2)?;
            unified = unified.child(name)?;
        }
        unified.enable(&v2)?;
        let mut v1 = Vec::new();
        for controller in Controller::ALL {
            if !v2.contains(&controller) {
                let parent = hierarchies.v1_parent(controller)?;
                v1.push((controller, parent.child("hangar")?.child(state)?));
            }
        }
        let cgroups = Self { unified, v1, v2 };
        let limits =
            GroupLimits { pids_max: 16, memory_bytes_max: 16 << 20, cpu_millis_max: Some(1000) };
        // A crash can have left the probe of an earlier warden.
        SessionCgroup::open_left_over(&cgroups, "probe")?.try_remove()?;
        cgroups.create("probe", &limits, 0)?.try_remove()?;
        Ok(cgroups)
    }

    /// The controllers by where they are: those on v1 and those on v2.
    #[must_use]
    pub fn controllers(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let v1 = self.v1.iter().map(|(controller, _)| controller.name()).collect();
        (v1, self.v2.iter().map(|controller| controller.name()).collect())
    }

    /// Makes the group of a session and sets its limits, each of them read back.
    ///
    /// `delegate_to` is the host uid of the session's init: it may move processes between the
    /// session's leaves, so that it can start commands right in theirs, and change nothing else.
    ///
    /// # Errors
    /// When the kernel refuses, or a limit is not what was set.
    pub fn create_session(
        &self,
        session: &SessionId,
        limits: &Limits,
        delegate_to: u32,
    ) -> Result<SessionCgroup, SetupError> {
        self.create(session.as_str(), &limits.into(), delegate_to)
    }

    /// Makes a group with this name, one path component chosen by the warden.
    ///
    /// # Errors
    /// As for [`Self::create_session`].
    pub fn create(
        &self,
        name: &str,
        limits: &GroupLimits,
        delegate_to: u32,
    ) -> Result<SessionCgroup, SetupError> {
        let mut group = self.create_unlimited(name)?;
        match group.admit(limits, delegate_to) {
            Ok(()) => Ok(group),
            Err(error) => Err(group.abandon(error)),
        }
    }

    /// Makes a group for processes that are no session's yet: [`SessionCgroup::admit`] limits it
    /// before anything of a session runs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn create_unlimited(&self, name: &str) -> Result<SessionCgroup, SetupError> {
        SessionCgroup::create(self, name)
    }

    /// Kills and removes every group that an earlier warden left, and returns their names.
    ///
    /// # Errors
    /// When a group cannot be emptied within five seconds.
    pub fn tidy(&self) -> Result<Vec<String>, SetupError> {
        let mut names = Vec::new();
        for place in self.places() {
            for name in place.children()? {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        for name in &names {
            let group = SessionCgroup::open_left_over(self, name)?;
            while !group.kill_all().and_then(|()| group.try_remove())? {
                if Instant::now() > deadline {
                    return Err(SetupError::other(
                        "tidy-cgroups",
                        format!("rmdir({name})"),
                        "its processes do not end",
                    ));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        Ok(names)
    }

    /// Removes the parents, as far as no other state directory uses them.
    pub fn remove_parents(self) {
        for place in self.places() {
            if let Some(parent) = place.parent() {
                // The outer directory is shared with other state directories: ENOTEMPTY or EBUSY
                // then says that one of them lives.
                let _ = unlinkat(&parent.dir, place.name(), AtFlags::REMOVEDIR);
                if let Some(outer) = parent.parent() {
                    let _ = unlinkat(&outer.dir, parent.name(), AtFlags::REMOVEDIR);
                }
            }
        }
    }

    fn places(&self) -> impl Iterator<Item = &Rc<Place>> {
        std::iter::once(&self.unified).chain(self.v1.iter().map(|(_, place)| place))
    }
}

/// Removes a directory; one that is not there is removed, one that is in use is not.
fn rmdir(parent: &Place, name: &str) -> Result<bool, SetupError> {
    match unlinkat(&parent.dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::BUSY | Errno::NOTEMPTY) => Ok(false),
        Err(errno) => Err(errno).at("remove-cgroup", || format!("rmdir({}/{name})", parent.path)),
    }
}
