//! What is left that belongs to nothing that lives.

use super::{BLOCK, Ground, names_if_there, sessions};
use crate::daemon::Daemon;
use crate::host::Host;
use crate::processes::{self, Process, below};
use crate::remains::group_parents;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

impl Ground {
    /// All of it.
    pub(super) fn left(&self, daemon: &Daemon, before: &[Process]) -> Vec<String> {
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
                _ if process.is_parked() => waiting += 1,
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
        // What clients sent ahead is kept there; the rest are imports on their way.
        let uploads = self.names("api/uploads").into_iter().filter(|name| name != "kept");
        left.extend(uploads.map(|name| format!("api/uploads/{name}")));
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
            // Another test has a place of its own, and can mount something there.
            let others = mount.contains("/hangar-test-") && !mount.contains(place);
            !others && (mount.contains("hangar") || mount.contains(" - overlay "))
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
