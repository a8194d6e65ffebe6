//! The group of one session: its limits, its leaves, its end.

use super::hierarchy::Place;
use super::{Cgroups, Controller, GroupLimits, STEP, rmdir};
use crate::error::{AtStep, SetupError};
use crate::ids::CommandId;
use crate::launch::Placement;
use rustix::fs::{AtFlags, Gid, Uid, chownat};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

/// The period of the CPU limit, in microseconds.
const PERIOD_US: u64 = 100_000;

/// How often limits were met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Processes the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Forks that failed for want of processes.
    pub pids_limit_hits: u64,
}

/// The group of a running session, or of a worker.
///
/// It stays when the value is dropped: [`Self::try_remove`] removes it.
#[derive(Debug)]
pub struct SessionCgroup {
    unified: Rc<Place>,
    v1: Vec<(Controller, Rc<Place>)>,
    /// `cgroup.procs` of each group in `v1`.
    v1_procs: Vec<OwnedFd>,
    v2: Vec<Controller>,
    delegate_to: u32,
}

impl SessionCgroup {
    pub(super) fn create(parents: &Cgroups, name: &str) -> Result<Self, SetupError> {
        let mut group = Self {
            unified: parents.unified.new_child(name)?,
            v1: Vec::new(),
            v1_procs: Vec::new(),
            v2: parents.v2.clone(),
            delegate_to: 0,
        };
        match group.create_v1(parents, name) {
            Ok(()) => Ok(group),
            Err(error) => Err(group.abandon(error)),
        }
    }

    fn create_v1(&mut self, parents: &Cgroups, name: &str) -> Result<(), SetupError> {
        for (controller, parent) in &parents.v1 {
            let place = parent.new_child(name)?;
            self.v1_procs.push(place.open_procs()?);
            self.v1.push((*controller, place));
        }
        Ok(())
    }

    /// Removes the group after an error; nothing runs in it yet.
    pub(super) fn abandon(self, error: SetupError) -> SetupError {
        // The first error is the one that tells.
        let _ = self.try_remove();
        error
    }

    /// Sets the limits, each of them read back, and lets init, whose host uid this is, start
    /// commands in the leaves.
    ///
    /// # Errors
    /// When the kernel refuses, or a limit is not what was set.
    pub fn admit(&mut self, limits: &GroupLimits, delegate_to: u32) -> Result<(), SetupError> {
        for controller in &self.v2 {
            limit_v2(&self.unified, *controller, limits)?;
        }
        for (controller, place) in &self.v1 {
            limit_v1(place, *controller, limits)?;
        }
        self.delegate_to = delegate_to;
        self.delegate(&self.unified)
    }

    /// The group of a session that an earlier warden left.
    pub(super) fn open_left_over(parents: &Cgroups, name: &str) -> Result<Self, SetupError> {
        Ok(Self {
            unified: parents.unified.child(name)?,
            v1_procs: Vec::new(),
            v1: parents
                .v1
                .iter()
                .map(|(controller, parent)| Ok((*controller, parent.child(name)?)))
                .collect::<Result<_, SetupError>>()?,
            v2: Vec::new(),
            delegate_to: 0,
        })
    }

    /// The session's directory of the v2 hierarchy, for `CLONE_INTO_CGROUP`. init stays in it.
    #[must_use]
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.unified.dir.as_fd()
    }

    /// `cgroup.procs` of the session's group in each v1 hierarchy: who writes a pid there moves
    /// the process.
    ///
    /// The first move after a second of quiet waits for the kernel's grace period, 7 to 15 ms; a
    /// process can be moved as soon as it exists, long before it is needed.
    #[must_use]
    pub fn v1_procs(&self) -> Vec<BorrowedFd<'_>> {
        self.v1_procs.iter().map(AsFd::as_fd).collect()
    }

    /// Where a session in this group is.
    #[must_use]
    pub fn placement(&self) -> Placement<'_> {
        Placement { directory: self.directory(), v1_procs: self.v1_procs(), paths: self.paths() }
    }

    /// Moves a process into the session's groups of every v1 hierarchy.
    ///
    /// # Errors
    /// When the process is gone or the kernel refuses.
    pub fn attach_v1(&self, pid: i32) -> Result<(), SetupError> {
        for procs in &self.v1_procs {
            rustix::io::write(procs, pid.to_string().as_bytes())
                .at("join-cgroups", || format!("write(cgroup.procs of v1, {pid})"))?;
        }
        Ok(())
    }

    /// Makes the v2 leaf of a command; init starts the command in it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn command_leaf(&self, command: CommandId) -> Result<OwnedFd, SetupError> {
        let leaf = self.unified.new_child(&leaf_name(command))?;
        self.delegate(&leaf)?;
        leaf.dir.try_clone().at(STEP, || format!("dup({})", leaf.path))
    }

    /// Kills every process of a command.
    ///
    /// # Errors
    /// When the kernel refuses; a leaf that is not there is no error.
    pub fn kill_leaf(&self, command: CommandId) -> Result<(), SetupError> {
        let leaf = leaf_name(command);
        if self.unified.has(&leaf) {
            self.unified.write(&format!("{leaf}/cgroup.kill"), "1")?;
        }
        Ok(())
    }

    /// Whether no process of a command is left.
    ///
    /// # Errors
    /// When the group cannot be read.
    pub fn leaf_is_empty(&self, command: CommandId) -> Result<bool, SetupError> {
        let leaf = leaf_name(command);
        Ok(!self.unified.has(&leaf)
            || self.unified.read_counter(&format!("{leaf}/cgroup.events"), "populated")? == 0)
    }

    /// Removes the leaf of a command; `false` while a process is in it.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn try_remove_leaf(&self, command: CommandId) -> Result<bool, SetupError> {
        rmdir(&self.unified, &leaf_name(command))
    }

    /// Kills every process of the session.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill_all(&self) -> Result<(), SetupError> {
        self.unified.write("cgroup.kill", "1")
    }

    /// Removes the groups; `false` while a process is in one, then it can be tried again.
    ///
    /// # Errors
    /// When the kernel refuses for another reason.
    pub fn try_remove(&self) -> Result<bool, SetupError> {
        let mut removed = true;
        if let Ok(leaves) = self.unified.children() {
            for leaf in leaves {
                removed &= rmdir(&self.unified, &leaf)?;
            }
        }
        // The one that processes are killed through goes last: what is tried again kills again.
        for place in self.v1.iter().map(|(_, place)| place).chain([&self.unified]) {
            if let Some(parent) = place.parent() {
                removed = removed && rmdir(parent, place.name())?;
            }
        }
        Ok(removed)
    }

    /// How often the session as a whole met its limits.
    ///
    /// Commands that run at once share the counts. Counting for each command would take the
    /// controllers in its leaf, and then no process could be in the session's own directory;
    /// but init has to be in it when its cgroup namespace is made, because where the hierarchy is
    /// mounted with `nsdelegate` it can start commands below the root of that namespace only.
    ///
    /// # Errors
    /// When the groups cannot be read.
    pub fn counters(&self) -> Result<Counters, SetupError> {
        let mut counters = Counters::default();
        if self.v2.contains(&Controller::Pids) {
            counters.pids_limit_hits = self.unified.read_counter("pids.events", "max")?;
        }
        if self.v2.contains(&Controller::Memory) {
            counters.oom_kills = self.unified.read_counter("memory.events", "oom_kill")?;
        }
        for (controller, place) in &self.v1 {
            match controller {
                Controller::Pids => {
                    counters.pids_limit_hits = place.read_counter("pids.events", "max")?;
                }
                Controller::Memory => {
                    counters.oom_kills = place.read_counter("memory.oom_control", "oom_kill")?;
                }
                Controller::Cpu => {}
            }
        }
        Ok(counters)
    }

    /// Where init has to be, as `/proc/<pid>/cgroup` spells it on the host: by controller list,
    /// which is empty for v2.
    #[must_use]
    pub fn paths(&self) -> Vec<(String, String)> {
        [&self.unified]
            .into_iter()
            .chain(self.v1.iter().map(|(_, place)| place))
            .map(|place| (place.list.clone(), place.cgroup.clone()))
            .collect()
    }

    /// Lets init move processes into the group, which is what starting one there takes.
    fn delegate(&self, place: &Place) -> Result<(), SetupError> {
        let (uid, gid) = (Uid::from_raw(self.delegate_to), Gid::from_raw(self.delegate_to));
        match chownat(&place.dir, "cgroup.procs", Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW) {
            Err(errno) => Err(errno)
                .at(STEP, || format!("chown({}/cgroup.procs, {})", place.path, self.delegate_to)),
            Ok(()) => Ok(()),
        }
    }
}

fn leaf_name(command: CommandId) -> String {
    format!("c{command}")
}

fn limit_v2(group: &Place, controller: Controller, limits: &GroupLimits) -> Result<(), SetupError> {
    match controller {
        Controller::Pids => {
            let max = limits.pids_max.to_string();
            group.set("pids.max", &max, &max)
        }
        Controller::Memory => {
            let max = limits.memory_bytes_max.to_string();
            group.set("memory.max", &max, &whole_pages(limits.memory_bytes_max))?;
            // Absent on kernels without swap; then there is nothing to swap to.
            if group.has("memory.swap.max") {
                group.set("memory.swap.max", "0", "0")
            } else {
                Ok(())
            }
        }
        Controller::Cpu => match limits.cpu_millis_max {
            Some(millis) => {
                let max = format!("{} {PERIOD_US}", quota_us(millis));
                group.set("cpu.max", &max, &max)
            }
            None => Ok(()),
        },
    }
}

fn limit_v1(group: &Place, controller: Controller, limits: &GroupLimits) -> Result<(), SetupError> {
    match controller {
        Controller::Pids => {
            let max = limits.pids_max.to_string();
            group.set("pids.max", &max, &max)
        }
        Controller::Memory => {
            let max = limits.memory_bytes_max.to_string();
            let kept = whole_pages(limits.memory_bytes_max);
            group.set("memory.limit_in_bytes", &max, &kept)?;
            // Memory and swap together; absent on kernels without swap accounting.
            let both = "memory.memsw.limit_in_bytes";
            if group.has(both) { group.set(both, &max, &kept) } else { Ok(()) }
        }
        Controller::Cpu => match limits.cpu_millis_max {
            Some(millis) => {
                let (period, quota) = (PERIOD_US.to_string(), quota_us(millis).to_string());
                group.set("cpu.cfs_period_us", &period, &period)?;
                group.set("cpu.cfs_quota_us", &quota, &quota)
            }
            None => Ok(()),
        },
    }
}

/// The kernel rounds memory limits down to whole pages.
fn whole_pages(bytes: u64) -> String {
    let page = rustix::param::page_size() as u64;
    (bytes / page * page).to_string()
}

fn quota_us(millis: u32) -> u64 {
    u64::from(millis) * PERIOD_US / 1000
}
