//! A state directory whose processes are killed, and what has to be true afterwards.

mod left;

use crate::daemon::Daemon;
use crate::host::Host;
use crate::http::{Answer, Body, try_ask};
use crate::processes::{self, Process, below};
use crate::run::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ids of a session.
pub const BLOCK: u32 = 65_536;

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
        // It may be there for milliseconds only: looked for first, and its warden then.
        let is_so = |command: &str| command.starts_with(&begin) && command.ends_with(target);
        processes::with_command(is_so).find(|process| {
            processes::warden(&self.state()).is_some_and(|warden| process.is_below(&warden))
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
}

/// The sessions that are stored, and whether they run.
fn sessions(daemon: &Daemon) -> BTreeMap<String, bool> {
    let listed = daemon.get("/v1/hangar/sessions");
    let sessions = listed["sessions"].as_array().expect("sessions").iter();
    sessions
        .map(|s| (s["id"].as_str().expect("an id").to_owned(), s["status"] == "running"))
        .collect()
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
