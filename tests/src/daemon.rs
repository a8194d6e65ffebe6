//! A server on a state directory, asked over its local socket.

use crate::http::{Answer, Body, ask, try_ask};
use crate::program;
use crate::session::Session;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// `hangar serve`; it is ended with the value.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    state: PathBuf,
}

impl Daemon {
    /// Starts a server and waits until it listens. What it logs is in `server.log` beside the
    /// state directory.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start(state: &Path) -> Self {
        Self::start_with(state, &[])
    }

    /// Starts a server with these options too.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_with(state: &Path, options: &[&str]) -> Self {
        Self::start_as(Command::new(program("hangar")), state, options)
    }

    /// Starts a server on a host without some programs: `/usr/bin` and `/usr/local/bin` are mounted
    /// over, for the server and its sessions alone, with these names left out.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn start_without(programs: &[&str], state: &Path) -> Self {
        const SCRIPT: &str = "set -e
            for directory in /usr/bin /usr/local/bin; do
                mkdir -p \"$0/above$directory\" \"$0/work$directory\"
                for program in $1; do mknod \"$0/above$directory/$program\" c 0 0; done
                mount -t overlay overlay \"$directory\" \
                    -o \"lowerdir=$directory,upperdir=$0/above$directory,workdir=$0/work$directory\"
            done
            shift
            exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", SCRIPT]);
        command.arg(state.with_file_name("hidden")).arg(programs.join(" "));
        command.arg(program("hangar"));
        Self::start_as(command, state, &[])
    }

    fn start_as(mut hangar: Command, state: &Path, options: &[&str]) -> Self {
        let log = state.with_file_name("server.log");
        let log = File::options().append(true).create(true).open(log).expect("a log");
        let child = hangar
            .arg("serve")
            .arg("--state-dir")
            .arg(state)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it starts");
        let mut daemon = Self { child, state: state.to_owned() };
        let deadline = Instant::now() + Duration::from_secs(120);
        while UnixStream::connect(daemon.socket()).is_err() {
            let ended = daemon.child.try_wait().expect("it is our child");
            assert!(ended.is_none() && Instant::now() < deadline, "no server: {}", daemon.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        daemon
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// What the server logged.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.state.with_file_name("server.log")).unwrap_or_default()
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> i32 {
        Pid::from_child(&self.child).as_raw_nonzero().get()
    }

    /// Kills the server at once; what it started lives on.
    ///
    /// # Panics
    /// When it cannot be waited for.
    pub fn crash(mut self) {
        let _gone = kill_process(Pid::from_child(&self.child), Signal::KILL);
        self.child.wait().expect("it is our child");
    }

    /// Waits until the server ends by itself.
    ///
    /// # Panics
    /// When it does not within a minute.
    #[must_use]
    pub fn ended(mut self) -> ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status;
            }
            assert!(Instant::now() < deadline, "the server goes on: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Where clients of this host connect.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.state.join("run/api.sock")
    }

    /// Asks and takes any answer.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        // A body nobody reads would cut off the answer.
        let body =
            if matches!(method, "GET" | "DELETE") { String::new() } else { body.to_string() };
        let body = Body { kind: "application/json", bytes: body.as_bytes() };
        try_ask(&self.socket(), method, path, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.log()))
    }

    /// Asks for something that has to be given.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        self.granted("GET", path, &json!({}))
    }

    /// Sends something that has to be taken.
    ///
    /// # Panics
    /// When it is refused.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.granted("POST", path, body)
    }

    fn granted(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.ask(method, path, body);
        assert!(
            answer.status < 300,
            "{method} {path}: {} {}\n{}",
            answer.status,
            String::from_utf8_lossy(&answer.body),
            self.log()
        );
        answer.json()
    }

    /// Removes something that has to be there.
    ///
    /// # Panics
    /// When it is refused.
    pub fn delete(&self, path: &str) {
        let answer = self.ask("DELETE", path, &json!({}));
        assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    /// Starts a session.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn session(&self, request: &Value) -> Session<'_> {
        Session::start(self, request)
    }

    /// Makes an environment with these files, without building it; the answer is its id.
    ///
    /// # Panics
    /// When the server refuses one of them.
    #[must_use]
    pub fn environment(&self, name: &str, files: &[(&str, &str)]) -> String {
        let made = self.post("/v1/environments", &json!({ "name": name }));
        let id = made["id"].as_str().expect("an id").to_owned();
        for (path, text) in files {
            let answer = ask(
                &self.socket(),
                "PUT",
                &format!("/v1/environments/{id}/files/{path}"),
                text.as_bytes(),
            );
            assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
        }
        id
    }

    /// Builds an environment; the answer is the record of the build with its log.
    ///
    /// # Panics
    /// When the build is not started.
    #[must_use]
    pub fn build(&self, id: &str, request: &Value) -> Value {
        let started = self.post(&format!("/v1/environments/{id}/build"), request);
        let number = started["version"].as_u64().expect("a version");
        loop {
            // More than a log ever has: the answer comes when it is complete.
            let path = format!("/v1/hangar/environments/{id}/builds/{number}/log");
            let wait = format!("{path}?offset={}&wait=1", 1u64 << 40);
            let _empty = self.ask("GET", &wait, &json!({}));
            let build = self.get(&format!("/v1/environments/{id}/builds/{number}"));
            if build["status"] != "building" {
                return build;
            }
        }
    }

    /// Ends the server with everything it started.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn stop(mut self) {
        self.terminate();
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "{status}: {}", self.log());
    }

    fn terminate(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _gone = kill_process(Pid::from_child(&self.child), Signal::TERM);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.terminate();
        let _ended = self.child.wait();
    }
}
