//! A session of a server, and the commands that ran in it.

use crate::daemon::Daemon;
use serde_json::{Value, json};

/// A running session; it is deleted when the test is done with it.
#[derive(Debug)]
pub struct Session<'a> {
    daemon: &'a Daemon,
    /// `hsess…`.
    pub id: String,
}

/// A command that ended.
#[derive(Debug)]
pub struct Ended {
    /// What it wrote to standard output.
    pub stdout: Vec<u8>,
    /// What it wrote to standard error.
    pub stderr: Vec<u8>,
    /// How it ended, as the server tells.
    pub record: Value,
}

impl<'a> Session<'a> {
    pub(crate) fn start(daemon: &'a Daemon, request: &Value) -> Self {
        let made = daemon.post("/v1/hangar/sessions", request);
        Self { daemon, id: made["id"].as_str().expect("an id").to_owned() }
    }

    /// A session that was started by other means.
    #[must_use]
    pub fn of(daemon: &'a Daemon, id: &str) -> Self {
        Self { daemon, id: id.to_owned() }
    }

    /// Starts a command: a request as the server takes it.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn start_command(&self, request: &Value) -> u64 {
        let path = format!("/v1/hangar/sessions/{}/exec", self.id);
        self.daemon.post(&path, request)["id"].as_u64().expect("a number")
    }

    /// Waits for a command and takes what it wrote.
    ///
    /// # Panics
    /// When its output does not come whole.
    #[must_use]
    pub fn finish(&self, number: u64) -> Ended {
        let path = format!("/v1/hangar/sessions/{}/exec/{number}/output", self.id);
        let answer = self.daemon.ask("GET", &path, &json!({}));
        assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
        Ended::from_frames(&answer.body)
    }

    /// Runs a command to its end.
    ///
    /// # Panics
    /// As for its parts.
    #[must_use]
    pub fn run(&self, request: &Value) -> Ended {
        self.finish(self.start_command(request))
    }

    /// Runs a text by bash.
    ///
    /// # Panics
    /// As for [`Session::run`].
    #[must_use]
    pub fn bash(&self, text: &str) -> Ended {
        self.run(&json!({ "command": ["bash", "-c", text] }))
    }

    /// Ends a command from outside.
    pub fn cancel(&self, number: u64) {
        let path = format!("/v1/hangar/sessions/{}/exec/{number}/cancel", self.id);
        self.daemon.post(&path, &json!({}));
    }

    /// Ends the session and deletes its files.
    pub fn delete(self) {
        self.daemon.delete(&format!("/v1/sessions/{}", self.id));
    }
}

impl Ended {
    /// Reads `application/vnd.hangar.frames`.
    fn from_frames(mut rest: &[u8]) -> Self {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let word = |at: usize| {
                u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes")) as usize
            };
            let (stream, length) = (word(0), word(4));
            let bytes = &rest[16..16 + length];
            match stream {
                1 => stdout.extend_from_slice(bytes),
                2 => stderr.extend_from_slice(bytes),
                3 => {
                    let record = serde_json::from_slice(bytes).expect("the end is JSON");
                    return Self { stdout, stderr, record };
                }
                other => panic!("the output has a stream {other}"),
            }
            rest = &rest[16 + length..];
        }
    }

    /// Standard output as text.
    #[must_use]
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    #[must_use]
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// How it ended in one line: `0`, `signal 9`, `not executed 2`.
    #[must_use]
    pub fn status(&self) -> String {
        for (field, name) in [("signal", "signal "), ("not_executed", "not executed ")] {
            if let Some(number) = self.record[field].as_i64() {
                return format!("{name}{number}");
            }
        }
        self.record["exit_code"].to_string()
    }

    /// Why it ended: `own`, `timeout` and so on, and ` pids` where that limit was hit.
    #[must_use]
    pub fn cause(&self) -> String {
        let cause = self.record["cause"].as_str().unwrap_or("none");
        let pids = if self.record["pids_limit_hit"] == true { " pids" } else { "" };
        format!("{cause}{pids}")
    }
}
