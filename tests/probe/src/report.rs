//! What a probe reports: one JSON line per attempt.

use crate::sys::{Ended, Errno, Got, signal_name};
use std::cell::RefCell;

/// What a probe is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// The environment: `$PROBE_ENV`.
    pub environment: String,
    /// The working directory: `$PROBE_WORKSPACE`, else `/workspace`.
    pub workspace: String,
    /// `--role`: which end of a probe across processes or sessions this is.
    pub role: Option<String>,
    /// `--pid`: a process to attack.
    pub pid: Option<i32>,
    /// `--canary`: a file that only one barrier protects.
    pub canary: Option<String>,
    /// `--key`: names what both ends of P057 and P060 share.
    pub key: i32,
    /// `--seconds`: how long to hold or to watch.
    pub seconds: u64,
    /// `--kill-all`: signal every process that can be reached, others' too.
    pub kill_all: bool,
}

/// Where the lines go.
pub struct Report {
    id: &'static str,
    /// Lines of a holder that does not hold yet: whoever waits for its first line may start then.
    waiting: RefCell<Option<Vec<String>>>,
    /// What the probe is told.
    pub options: Options,
}

impl Report {
    /// A report of one probe.
    pub fn new(id: &'static str, options: Options) -> Self {
        let holds = matches!(options.role.as_deref(), Some("holder" | "target"));
        Self { id, waiting: RefCell::new(holds.then(Vec::new)), options }
    }

    /// A path in the environment.
    pub fn env(&self, name: &str) -> String {
        format!("{}/{name}", self.options.environment)
    }

    /// A path in the working directory.
    pub fn work(&self, name: &str) -> String {
        format!("{}/{name}", self.options.workspace)
    }

    fn line(&self, attempt: &str, result: &str, detail: &str) {
        let line = serde_json::json!({
            "id": self.id, "attempt": attempt, "result": result, "detail": detail,
        });
        match self.waiting.borrow_mut().as_mut() {
            Some(waiting) => waiting.push(line.to_string()),
            None => println!("{line}"),
        }
    }

    /// Says that a holder holds: what was reported so far, and `holding`.
    pub fn holding(&self) {
        self.line("holding", "ok", "");
        for line in self.waiting.take().into_iter().flatten() {
            println!("{line}");
        }
    }

    /// A call that the kernel refused or carried out.
    pub fn attempt<T: std::fmt::Debug>(&self, attempt: &str, got: Got<T>) {
        match got {
            Ok(value) => self.line(attempt, "ok", &format!("{value:?}")),
            Err(errno) => self.line(attempt, &errno.to_string(), ""),
        }
    }

    /// A search: `ok` when it found something, `none` when not.
    pub fn search(&self, attempt: &str, found: &[String]) {
        match found {
            [] => self.line(attempt, "none", ""),
            found => self.line(attempt, "ok", &found.join(" ")),
        }
    }

    /// An effect that an attack was after: `ok` when it is there, `none` when not.
    pub fn effect(&self, attempt: &str, there: bool, detail: &str) {
        self.line(attempt, if there { "ok" } else { "none" }, detail);
    }

    /// What happened in a child.
    pub fn child(&self, attempt: &str, ended: Ended) {
        match ended {
            Ended::Answer(Ok(text)) => self.line(attempt, "ok", &text),
            Ended::Answer(Err(errno)) => self.line(attempt, &errno.to_string(), ""),
            Ended::Signal(signal) => self.line(attempt, &signal_name(signal), ""),
            Ended::Exit(code) => self.line(attempt, &format!("exit {code}"), ""),
        }
    }

    /// Something to compare from outside.
    pub fn fact(&self, attempt: &str, detail: &str) {
        self.line(attempt, "ok", detail);
    }

    /// The errors of many like attempts, each kind once; `ok` when any worked.
    pub fn all(&self, attempt: &str, results: &[(String, Got<i64>)]) {
        let worked: Vec<String> =
            results.iter().filter(|(_, got)| got.is_ok()).map(|(what, _)| what.clone()).collect();
        if !worked.is_empty() {
            return self.line(attempt, "ok", &worked.join(" "));
        }
        let mut errors: Vec<String> =
            results.iter().filter_map(|(_, got)| got.err()).map(|e: Errno| e.to_string()).collect();
        errors.sort();
        errors.dedup();
        match errors.as_slice() {
            [] => self.line(attempt, "none", ""),
            errors => self.line(attempt, &errors.join("+"), ""),
        }
    }
}
