//! `hangar run` and its sisters, as a user meets them: the built program, real sessions.

mod configuration;
mod egress;
mod environments;
mod host;
mod interrupts;
mod management;
mod output;
mod projects;

use hangar_tests::{program, scratch};
use std::ffi::OsStr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A state directory with a small project beside it, and perhaps a server.
struct Place {
    root: TempDir,
    server: Option<Child>,
}

impl Place {
    /// No server runs; each `hangar run` starts its own.
    fn without_server() -> Self {
        let root = scratch();
        let place = Self { root, server: None };
        place.write("tiny/run.py", "print('hello')\n");
        place
    }

    /// A server runs and is ended with the value.
    fn with_server(arguments: &[&str]) -> Self {
        let mut place = Self::without_server();
        let mut command = place.hangar(["serve"]);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null());
        place.server = Some(command.spawn().unwrap());
        place.wait(|| place.server_listens(), "the server listens");
        place
    }

    fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// `hangar` with this state directory, in this directory.
    fn hangar<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program("hangar"));
        command.args(arguments).arg("--state-dir").arg(self.path("state"));
        command.current_dir(self.root.path()).stdin(Stdio::null()).env_remove("HANGAR_LOG");
        command
    }

    /// `hangar run` of the small project.
    fn run<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Output {
        self.run_of("tiny", options, command)
    }

    fn run_of<S: AsRef<OsStr>>(&self, project: &str, options: &[&str], words: &[S]) -> Output {
        let mut command = self.hangar(["run"]);
        command.args(options).arg(project).arg("--").args(words).output().unwrap()
    }

    fn server_listens(&self) -> bool {
        UnixStream::connect(self.path("state/run/api.sock")).is_ok()
    }

    /// Waits for something that comes by itself, and fails where it does not.
    fn wait(&self, mut what: impl FnMut() -> bool, name: &str) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !what() {
            assert!(Instant::now() < deadline, "in vain: {name}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The processes that were started for this state directory.
    fn processes(&self) -> Vec<String> {
        let state = self.path("state");
        let state = state.to_str().unwrap();
        let command_lines = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            std::fs::read_to_string(entry.unwrap().path().join("cmdline")).ok()
        });
        command_lines.filter(|line| line.contains(state)).collect()
    }

    /// Waits until the server, its warden and everything else of theirs is gone.
    fn wait_for_the_end(&self) {
        self.wait(|| !self.server_listens() && self.processes().is_empty(), "everything ends");
    }

    /// Ids of the sessions the server knows.
    fn sessions(&self) -> Vec<String> {
        let listed = self.json(&["session", "list", "--json"]);
        let sessions = listed["sessions"].as_array().unwrap();
        sessions.iter().map(|session| session["id"].as_str().unwrap().to_owned()).collect()
    }

    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.hangar(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            end(&mut server, rustix::process::Signal::TERM);
        }
        if !std::thread::panicking() {
            self.wait_for_the_end();
        }
    }
}

/// Signals a child that was not waited for, and waits for it.
fn end(child: &mut Child, signal: rustix::process::Signal) -> std::process::ExitStatus {
    signal_to(child, signal);
    child.wait().unwrap()
}

fn signal_to(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, signal).unwrap();
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The files below a directory, relative and sorted.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => pending.push(entry.path()),
                false => {
                    let path = entry.path();
                    found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    found.sort();
    found
}
