//! A state directory whose processes are killed, and what has to be true afterwards.

use crate::daemon::Daemon;
use crate::host::Host;
use crate::http::{Answer, Body, try_ask};
use crate::processes::{self, Process, below};
use crate::remains::group_parents;
use crate::run::Place;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ids of a session.
const BLOCK: u32 = 65_536;

/// Which process is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    /// `hangar serve`.
    Api,
    /// `hangar-warden`.
    Warden,
    /// The first process of the session that the work is done in.
    Init,
    /// The worker that does the work.
    Worker,
}

/// A state directory on a host that was looked at before.
#[derive(Debug)]
pub struct Ground {
    place: Place,
    before: Host,
}

impl Default for Ground {
    fn default() -> Self {
        Self { before: Host::look(), place: Place::default() }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // After a test that failed half-way a warden can be left; nobody would end it for minutes.
        if let Some(warden) = processes::warden(&self.state()) {
            warden.kill();
        }
    }
}

impl Ground {
    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.place.state()
    }

    /// Where the test can put things.
    #[must_use]
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Starts a server, which adopts a warden that runs.
    #[must_use]
    pub fn start(&self) -> Daemon {
        Daemon::start(&self.state())
    }

    /// The warden that runs.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn warden(&self) -> Process {
        processes::warden(&self.state()).expect("a warden runs")
    }

    /// The names in a directory of the state directory, sorted.
    ///
    /// # Panics
    /// When it cannot be read.
    #[must_use]
    pub fn names(&self, below: &str) -> Vec<String> {
        names(&self.state().join(below))
    }

    /// The block of a session's ids: its first uid.
    #[must_use]
    pub fn block(&self, session: &str) -> Option<u32> {
        let workdir = self.state().join("sessions").join(session).join("workdir");
        Some(fs::metadata(workdir).ok()?.uid() / BLOCK * BLOCK)
    }

    /// The processes of a session: init first.
    #[must_use]
    pub fn inside(&self, session: &str) -> Vec<Process> {
        let (Some(block), Some(warden)) = (self.block(session), processes::warden(&self.state()))
        else {
            return Vec::new();
        };
        let mut found = below(&warden);
        found.retain(|process| process.uid / BLOCK * BLOCK == block);
        found.sort_by_key(|process| (!process.is_first(), process.pid));
        found
    }

    /// The first process of a session.
    #[must_use]
    pub fn init(&self, session: &str) -> Option<Process> {
        self.inside(session).into_iter().next().filter(Process::is_first)
    }

    /// The first process of a command that runs in a session.
    #[must_use]
    pub fn command(&self, session: &str) -> Option<Process> {
        self.inside(session).into_iter().find(|process| !process.is_first())
    }

    /// The worker that does this job: its verb, and what its arguments end with.
    #[must_use]
    pub fn worker(&self, verb: &str, target: &str) -> Option<Process> {
        let begin = format!("hangar-worker {verb}");
        let mut found = below(&processes::warden(&self.state())?).into_iter();
        found.find(|process| {
            process.command.starts_with(&begin) && process.command.ends_with(target)
        })
    }

    /// The egress proxy.
    #[must_use]
    pub fn egress(&self) -> Option<Process> {
        let mut found = below(&processes::warden(&self.state())?).into_iter();
        found.find(|process| process.command.starts_with("hangar egress"))
    }

    /// The session of the one build that runs: it has a directory and is in no list.
    #[must_use]
    pub fn build_session(&self, daemon: &Daemon) -> Option<String> {
        let listed = sessions(daemon);
        self.names("sessions")
            .into_iter()
            .find(|name| !name.contains('.') && !listed.contains_key(name))
    }

    /// Asks in a thread of its own: the server may not live to answer.
    #[must_use]
    pub fn ask_later(
        &self,
        method: &'static str,
        path: &str,
        kind: &'static str,
        body: Vec<u8>,
    ) -> JoinHandle<io::Result<Answer>> {
        let (socket, path) = (self.state().join("run/api.sock"), path.to_owned());
        std::thread::spawn(move || try_ask(&socket, method, &path, Body { kind, bytes: &body }))
    }

    /// Kills a process, restarts what has to be restarted, and checks that nothing is left.
    ///
    /// # Panics
    /// When something is.
    #[must_use]
    pub fn kill(&self, daemon: Daemon, victim: Victim, other: Option<&Process>) -> Daemon {
        let warden = self.warden();
        let mut before = below(&warden);
        before.push(warden.clone());
        let daemon = match victim {
            Victim::Api => {
                daemon.crash();
                self.start()
            }
            Victim::Warden => {
                warden.kill();
                // It may have been stopped for the test.
                processes::signal(daemon.pid(), rustix::process::Signal::CONT);
                processes::signal(daemon.pid(), rustix::process::Signal::TERM);
                let _lost_its_warden = daemon.ended();
                self.start()
            }
            Victim::Init | Victim::Worker => {
                other.expect("the test found it").kill();
                daemon
            }
        };
        self.check(&daemon, &before);
        daemon
    }

    /// Checks that what is there belongs to what lives, once whatever still ends has ended.
    ///
    /// # Panics
    /// When something is left.
    pub fn check(&self, daemon: &Daemon, before: &[Process]) {
        let deadline = Instant::now() + Duration::from_secs(40);
        loop {
            let left = self.left(daemon, before);
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{left:#?}\n{}", daemon.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn left(&self, daemon: &Daemon, before: &[Process]) -> Vec<String> {
        let sessions = sessions(daemon);
        let running: Vec<&String> =
            sessions.iter().filter(|(_, running)| **running).map(|(id, _)| id).collect();
        let mut left = self.left_processes(&running, before);
        left.extend(self.left_groups(&running));
        left.extend(self.left_directories(daemon, &sessions));
        left.extend(self.left_mounts());
        left
    }

    /// Processes that belong to no session that runs.
    fn left_processes(&self, running: &[&String], before: &[Process]) -> Vec<String> {
        let Some(warden) = processes::warden(&self.state()) else {
            return vec!["there is no warden".to_owned()];
        };
        let blocks: Vec<u32> = running.iter().filter_map(|id| self.block(id)).collect();
        let children = below(&warden);
        let mut left = Vec::new();
        let (mut waiting, mut proxies) = (0, 0);
        for process in &children {
            if blocks.contains(&(process.uid / BLOCK * BLOCK)) {
                continue;
            }
            match process.command.as_str() {
                // A child that waits for the next session.
                command if command.contains("hangar-warden") && process.is_first() => waiting += 1,
                command if command.starts_with("hangar egress") => proxies += 1,
                _ => left.push(format!("{process:?}")),
            }
        }
        if waiting > 1 || proxies > 1 {
            left.push(format!("{waiting} children wait for a session, {proxies} proxies run"));
        }
        let known = |process: &Process| *process == warden || process.is_below(&warden);
        let lost = before.iter().filter(|process| process.lives() && !known(process));
        left.extend(lost.map(|process| format!("outlived its parent: {process:?}")));
        for id in running {
            if self.init(id).is_none() {
                left.push(format!("{id} is said to run and has no init"));
            }
        }
        left
    }

    /// Cgroups with nothing in them, or with something that is not the warden's.
    fn left_groups(&self, running: &[&String]) -> Vec<String> {
        let metadata = fs::metadata(self.state()).expect("the state directory");
        let own = format!("/hangar/{:x}-{:x}/", metadata.dev(), metadata.ino());
        let warden = processes::warden(&self.state());
        // A process of a running command can come and go between two looks.
        let is_mine = |process: &Process| {
            warden.as_ref().is_some_and(|warden| process.is_below(warden)) || !process.lives()
        };
        let mut left = Vec::new();
        for parent in group_parents(&self.state()) {
            let groups = names_if_there(&parent);
            let sessions = groups.iter().filter(|name| !name.starts_with("job-"));
            if sessions.count() > running.len() + 1 {
                left.push(format!("{}: {groups:?} for {running:?}", parent.display()));
            }
            for group in groups {
                let pids = pids_below(&parent.join(&group));
                let mut strangers = pids.iter().filter_map(|pid| Process::read(*pid));
                let strange = strangers.any(|process| !is_mine(&process));
                if pids.is_empty() || strange || group.starts_with("job-") {
                    left.push(format!("{}/{group} holds {pids:?}", parent.display()));
                }
            }
        }
        let others = processes::all()
            .into_iter()
            .filter(|process| process.cgroups.contains(&own) && !is_mine(process));
        left.extend(others.map(|process| format!("in a group of ours: {process:?}")));
        left
    }

    /// Directories of sessions and versions that are none, and blocks with two owners.
    fn left_directories(&self, daemon: &Daemon, sessions: &BTreeMap<String, bool>) -> Vec<String> {
        let mut left = Vec::new();
        let mut owners = BTreeMap::new();
        for name in self.names("sessions") {
            if !sessions.contains_key(&name) {
                left.push(format!("sessions/{name}"));
            } else if let Some(other) = owners.insert(self.block(&name), name.clone()) {
                left.push(format!("{name} and {other} have one block"));
            }
        }
        let listed = daemon.get("/v1/environments");
        let environments: BTreeMap<String, BTreeSet<String>> = listed["environments"]
            .as_array()
            .expect("environments")
            .iter()
            .map(|environment| {
                let versions = environment["versions"].as_array().expect("versions").iter();
                let ready = versions.filter(|version| version["status"] == "ready");
                let numbers = ready.map(|version| version["version"].to_string()).collect();
                (environment["id"].as_str().expect("an id").to_owned(), numbers)
            })
            .collect();
        for name in self.names("api/sources") {
            if !environments.contains_key(&name) {
                left.push(format!("api/sources/{name}"));
            }
        }
        left.extend(self.names("api/uploads").iter().map(|name| format!("api/uploads/{name}")));
        for name in self.names("versions") {
            match environments.get(&name) {
                Some(ready) => left.extend(self.left_versions(&name, ready)),
                None => left.push(format!("versions/{name}")),
            }
        }
        left
    }

    fn left_versions(&self, environment: &str, ready: &BTreeSet<String>) -> Vec<String> {
        let directory = format!("versions/{environment}");
        let there: BTreeSet<String> = self
            .names(&directory)
            .into_iter()
            .filter(|name| name.contains('.') || !name.starts_with("dependencies-"))
            .collect();
        let mut left = Vec::new();
        if there != *ready {
            left.push(format!("{directory} has {there:?}, ready are {ready:?}"));
        }
        for version in &there {
            if !self.state().join(&directory).join(version).join("record").exists() {
                left.push(format!("{directory}/{version} has no record"));
            }
        }
        left
    }

    /// Mounts that were not there before, on the host or in the warden.
    fn left_mounts(&self) -> Vec<String> {
        let now = Host::look().mounts;
        // Others can mount things on this host meanwhile; what we mount names us somewhere.
        let place = self.place.path("");
        let place = place.to_str().expect("a test's directory is UTF-8");
        let ours = |mount: &str| {
            mount.contains(place) || mount.contains("hangar") || mount.contains(" - overlay ")
        };
        let mut left: Vec<String> = now
            .difference(&self.before.mounts)
            .chain(self.before.mounts.difference(&now))
            .filter(|mount| ours(mount))
            .map(|mount| format!("mount {mount}"))
            .collect();
        let Some(warden) = processes::warden(&self.state()) else { return left };
        let inside = fs::read_to_string(format!("/proc/{}/mountinfo", warden.pid));
        let overlays = inside.unwrap_or_default();
        let overlays = overlays.lines().filter(|line| line.contains(" - overlay "));
        let own = overlays.filter(|line| !self.before.mounts.iter().any(|old| same(line, old)));
        left.extend(own.map(|line| format!("in the warden: {line}")));
        left
    }
}

/// The same mount, in another namespace.
fn same(line: &str, old: &str) -> bool {
    let at = |line: &str, skip| line.split(' ').nth(skip).unwrap_or_default().to_owned();
    // Host::look leaves out the first two fields.
    at(line, 4) == at(old, 2)
}

/// The sessions that are stored, and whether they run.
fn sessions(daemon: &Daemon) -> BTreeMap<String, bool> {
    let listed = daemon.get("/v1/hangar/sessions");
    let sessions = listed["sessions"].as_array().expect("sessions").iter();
    sessions
        .map(|s| (s["id"].as_str().expect("an id").to_owned(), s["status"] == "running"))
        .collect()
}

/// Every process in a group and in the groups below it.
fn pids_below(group: &Path) -> BTreeSet<i32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut pids: BTreeSet<i32> = text.lines().flat_map(str::parse).collect();
    let below = fs::read_dir(group).into_iter().flatten().flatten();
    for entry in below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        pids.extend(pids_below(&entry.path()));
    }
    pids
}

fn names(directory: &Path) -> Vec<String> {
    assert!(directory.is_dir(), "{} is no directory", directory.display());
    names_if_there(directory)
}

/// The names of the directories in a directory, and in ours of the files too.
fn names_if_there(directory: &Path) -> Vec<String> {
    let in_cgroups = directory.starts_with("/sys/fs/cgroup");
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| !in_cgroups || entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// A tar of so many small files below `many/`, and one beside it.
///
/// # Panics
/// When the host has no tar.
#[must_use]
pub fn archive(place: &Place, files: usize) -> Vec<u8> {
    let root = place.path("archive");
    if !root.exists() {
        fs::create_dir_all(&root).expect("mkdir");
        // A single directory would be taken for a wrapping.
        fs::write(root.join("beside"), "").expect("write");
        for number in 0..files {
            let directory = root.join(format!("many/{}", number / 100));
            fs::create_dir_all(&directory).expect("mkdir");
            fs::write(directory.join(number.to_string()), format!("{number}\n")).expect("write");
        }
    }
    let mut tar = std::process::Command::new("tar");
    let output = tar.arg("-C").arg(root).args(["-c", "beside", "many"]).output().expect("tar");
    assert!(output.status.success(), "tar: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Begins a build that needs no network; the answer is its number.
///
/// # Panics
/// When it is refused.
#[must_use]
pub fn begin_build(daemon: &Daemon, environment: &str) -> u64 {
    let path = format!("/v1/environments/{environment}/build");
    let started = daemon.post(&path, &json!({ "network": "none" }));
    started["version"].as_u64().expect("a number")
}

/// The record of a build that has ended.
///
/// # Panics
/// When it does not end.
#[must_use]
pub fn ended_build(daemon: &Daemon, environment: &str, number: u64) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let build = daemon.get(&format!("/v1/environments/{environment}/builds/{number}"));
        if build["status"] != "building" {
            return build;
        }
        assert!(Instant::now() < deadline, "it does not end: {build}\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(5));
    }
}
