//! The processes of a state directory, found in `/proc` as an operator would find them.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The parent of the kernel's own threads.
const KERNEL: i32 = 2;

/// A process as the host sees it.
#[derive(Debug, Clone)]
pub struct Process {
    /// On the host.
    pub pid: i32,
    /// Who started it, or who took it over.
    pub parent: i32,
    /// The real uid on the host.
    pub uid: u32,
    /// Its numbers in its pid namespaces, the host's first.
    pub pids: Vec<i32>,
    /// Arguments, separated by spaces.
    pub command: String,
    /// Tells it from a later process with the same number.
    pub started: u64,
    /// Where it is in the hierarchies of cgroups.
    pub cgroups: String,
    /// A system call filter holds it.
    pub filtered: bool,
}

impl PartialEq for Process {
    /// A process stays the same when somebody else takes it over.
    fn eq(&self, other: &Self) -> bool {
        (self.pid, self.started) == (other.pid, other.started)
    }
}

impl Process {
    /// Reads one; `None` when there is none, it has ended and waits for its parent, or it is a
    /// thread of the kernel.
    #[must_use]
    pub fn read(pid: i32) -> Option<Self> {
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
        // First: who has executed a program has become whoever it runs as before that.
        let command = command_of(pid)?;
        let stat = read("stat")?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let parent = fields.get(1)?.parse().ok()?;
        if fields.first() == Some(&"Z") || parent == KERNEL {
            return None;
        }
        let status = read("status")?;
        let numbers = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field));
            line.unwrap_or_default().split_whitespace().flat_map(str::parse).collect::<Vec<i32>>()
        };
        Some(Self {
            pid,
            parent,
            uid: numbers("Uid:").first()?.cast_unsigned(),
            pids: numbers("NSpid:"),
            command,
            started: fields.get(19)?.parse().ok()?,
            cgroups: read("cgroup")?,
            filtered: numbers("Seccomp:") != [0],
        })
    }

    /// It still runs.
    #[must_use]
    pub fn lives(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }

    /// It is the first process of a pid namespace below the host's.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.pids.len() > 1 && self.pids.last() == Some(&1)
    }

    /// It is the first process of what will be a session, and has no plan yet.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        let is_launch = self.command == "hangar-init" || self.command.contains("hangar-warden");
        is_launch && self.is_first() && !self.filtered
    }

    /// It was started by this one, directly or not.
    #[must_use]
    pub fn is_below(&self, ancestor: &Self) -> bool {
        let mut at = self.parent;
        while at > 1 && at != ancestor.pid {
            at = Self::read(at).map_or(0, |parent| parent.parent);
        }
        at == ancestor.pid
    }

    /// Kills it, and waits until it is gone.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&self) {
        signal(self.pid, Signal::KILL);
        wait_for("a killed process to end", || (!self.lives()).then_some(()));
    }

    /// Stops it where it is, until it is killed or continued.
    pub fn stop(&self) {
        signal(self.pid, Signal::STOP);
    }

    /// Lets it go on.
    pub fn proceed(&self) {
        signal(self.pid, Signal::CONT);
    }
}

/// Sends a signal to a process that may be gone.
///
/// # Panics
/// When it is not ours.
pub fn signal(pid: i32, signal: Signal) {
    match kill_process(Pid::from_raw(pid).expect("a pid is positive"), signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(errno) => panic!("signal {signal:?} to {pid}: {errno}"),
    }
}

/// Every process of the host.
///
/// # Panics
/// When `/proc` cannot be read.
#[must_use]
pub fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

/// Processes whose arguments are so; the rest of what there is to know is read of those alone, so
/// that what lives for milliseconds is found.
///
/// # Panics
/// When `/proc` cannot be read.
pub fn with_command(is_so: impl Fn(&str) -> bool) -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").expect("/proc").flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(move |pid| command_of(*pid).is_some_and(|command| is_so(&command)))
        .filter_map(Process::read)
}

/// Arguments, separated by spaces.
fn command_of(pid: i32) -> Option<String> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    Some(String::from_utf8_lossy(&command).replace('\0', " ").trim().to_owned())
}

/// The warden of a state directory.
#[must_use]
pub fn warden(state: &Path) -> Option<Process> {
    let argument = format!("--state-dir {} ", state.display());
    // A child that waits for its session has the same arguments, in namespaces of its own.
    with_command(|command| command.contains("hangar-warden") && command.contains(&argument))
        .find(|process| process.pids.len() == 1)
}

/// Everything a process started, directly or not.
#[must_use]
pub fn below(ancestor: &Process) -> Vec<Process> {
    let mut known = BTreeSet::from([ancestor.pid]);
    let mut left = all();
    let mut found = Vec::new();
    loop {
        let (more, rest): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|process| known.contains(&process.parent));
        if more.is_empty() {
            return found;
        }
        known.extend(more.iter().map(|process| process.pid));
        found.extend(more.into_iter().filter(|process| process.pid != ancestor.pid));
        left = rest;
    }
}

/// Looks every millisecond until there is an answer.
///
/// # Panics
/// When there is none within a minute.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
