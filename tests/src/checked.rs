//! A server whose every JSON answer is compared with its schema.

use crate::daemon::Daemon;
use crate::http::{Answer, exchange};
use crate::{schema, scratch};
use serde_json::Value;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A server with a state directory of its own.
#[derive(Debug)]
pub struct Checked {
    daemon: Option<Daemon>,
    root: TempDir,
    options: Vec<String>,
}

impl Checked {
    /// A server with the default configuration.
    #[must_use]
    pub fn start() -> Self {
        Self::configured("", &[])
    }

    /// A server with this `config.toml` and these options.
    ///
    /// # Panics
    /// When it does not come up.
    #[must_use]
    pub fn configured(config: &str, options: &[&str]) -> Self {
        let root = scratch();
        let state = root.path().join("state");
        if !config.is_empty() {
            std::fs::create_dir(&state).expect("the state directory");
            std::fs::write(state.join("config.toml"), config).expect("the configuration");
        }
        let daemon = Some(Daemon::start_with(&state, options));
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { daemon, root, options }
    }

    /// The server.
    ///
    /// # Panics
    /// Never while the value is used as it should.
    #[must_use]
    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// A place beside the state directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> &Path {
        self.daemon().state()
    }

    /// Kills the server at once and starts another one.
    ///
    /// # Panics
    /// When it does not come up.
    pub fn crash_and_restart(&mut self) {
        self.daemon.take().expect("it runs").crash();
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        self.daemon = Some(Daemon::start_with(&self.path("state"), &options));
    }

    /// Asks; a JSON answer has to fit its schema.
    ///
    /// # Panics
    /// When there is no answer, or it does not fit.
    #[must_use]
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.call_with(method, path, &[], body)
    }

    /// Asks with these fields of the head.
    ///
    /// # Panics
    /// As for [`Checked::call`].
    #[must_use]
    pub fn call_with(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        let stream = UnixStream::connect(self.daemon().socket()).expect("it listens");
        let answer = exchange(stream, method, path, fields, body)
            .unwrap_or_else(|error| panic!("{method} {path}: {error}\n{}", self.daemon().log()));
        let asked = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("uhp-version"));
        let version =
            asked.filter(|_| answer.status != 400).map_or(VERSION, |(_, version)| version);
        compare(method, path, version, &answer);
        answer
    }

    /// Asks for what has to be given.
    ///
    /// # Panics
    /// When it is refused.
    #[must_use]
    pub fn get(&self, path: &str) -> Value {
        granted("GET", path, &self.call("GET", path, b""))
    }

    /// Sends what has to be taken.
    ///
    /// # Panics
    /// When it is refused.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let kind = [("Content-Type", "application/json")];
        let answer = self.call_with(method, path, &kind, body.to_string().as_bytes());
        granted(method, path, &answer)
    }

    /// Writes a file of a source.
    ///
    /// # Panics
    /// When it is refused.
    pub fn put_file(&self, id: &str, path: &str, bytes: impl AsRef<[u8]>) -> Value {
        let path = format!("/v1/environments/{id}/files/{path}");
        granted("PUT", &path, &self.call("PUT", &path, bytes.as_ref()))
    }

    /// Makes an environment with these files; the answer is its id.
    ///
    /// # Panics
    /// When something is refused.
    #[must_use]
    pub fn environment(&self, name: &str, files: &[(&str, &str)]) -> String {
        let made = self.send("POST", "/v1/environments", &serde_json::json!({ "name": name }));
        let id = made["id"].as_str().expect("an id").to_owned();
        for (path, text) in files {
            self.put_file(&id, path, text);
        }
        id
    }

    /// Builds and waits for the end; the answer is the record of the build.
    ///
    /// # Panics
    /// When the build is not started.
    #[must_use]
    pub fn build(&self, id: &str) -> Value {
        let started =
            self.send("POST", &format!("/v1/environments/{id}/build"), &serde_json::json!({}));
        self.ended_build(id, started["version"].as_u64().expect("a version"))
    }

    /// Waits for the end of a build.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn ended_build(&self, id: &str, number: u64) -> Value {
        loop {
            let log = format!("/v1/hangar/environments/{id}/builds/{number}/log");
            // More than a log ever has: the answer comes when it is complete.
            let _empty = self.call("GET", &format!("{log}?offset={}&wait=1", 1u64 << 40), b"");
            let build = self.get(&format!("/v1/environments/{id}/builds/{number}"));
            if build["status"] != "building" {
                return build;
            }
        }
    }
}

/// The status and the code of a refusal.
///
/// # Panics
/// When the answer is no refusal.
#[must_use]
pub fn refusal(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    (answer.status, body["error"]["code"].as_str().expect("a code").to_owned())
}

/// The version of the protocol that whoever names none gets.
const VERSION: &str = "2026-09-28";

fn compare(method: &str, path: &str, version: &str, answer: &Answer) {
    assert_eq!(answer.field("uhp-version"), Some(version), "on every answer: {method} {path}");
    let is_json = answer.field("content-type") == Some("application/json");
    let is_file = method == "GET" && path.contains("/files/") && answer.status < 400;
    if is_json && !is_file && !answer.body.is_empty() {
        schema::check(method, path, answer.status, &answer.json());
    }
}

fn granted(method: &str, path: &str, answer: &Answer) -> Value {
    let text = String::from_utf8_lossy(&answer.body);
    assert_eq!(answer.status, 200, "{method} {path}: {text}");
    answer.json()
}
