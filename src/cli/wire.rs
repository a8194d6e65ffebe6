//! The parts of the server's answers that the command line reads.

use super::terminal::printable;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// An environment, as far as it is read here.
#[derive(Debug, Clone, Deserialize)]
pub struct Environment {
    /// `henv_…`.
    pub id: String,
    /// As the user named it.
    pub name: String,
    /// The last component of its mount point.
    pub slug: String,
    /// Free text.
    #[serde(default)]
    pub description: Option<String>,
    /// Where sessions see it.
    pub mount: String,
}

/// All environments of the caller.
#[derive(Debug, Deserialize)]
pub struct Environments {
    /// In no order that matters here.
    pub environments: Vec<Environment>,
}

/// What an import did.
#[derive(Debug, Serialize, Deserialize)]
pub struct Imported {
    /// Entries that were dropped by the server.
    #[serde(default)]
    pub skipped: u64,
    /// The first of them.
    #[serde(default)]
    pub skipped_examples: Vec<Dropped>,
    /// Files of the source now.
    #[serde(default)]
    pub count: u64,
    /// Their bytes.
    #[serde(default)]
    pub bytes: u64,
    /// What of the source will probably fail later.
    #[serde(default)]
    pub hints: Vec<String>,
    /// What else the server says, for whoever wants all of it.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// An entry the server did not take.
#[derive(Debug, Serialize, Deserialize)]
pub struct Dropped {
    /// Its name in the archive.
    pub name: String,
    /// Why, in a word.
    pub reason: String,
}

impl Imported {
    /// What the server dropped, in sentences for the user.
    #[must_use]
    pub fn dropped(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .skipped_examples
            .iter()
            .map(|dropped| {
                let reason = printable(&dropped.reason).replace('_', " ");
                format!("not imported: {}: {reason}", printable(&dropped.name))
            })
            .collect();
        let unnamed = self.skipped.saturating_sub(lines.len() as u64);
        if unnamed > 0 {
            lines.push(format!("not imported: {unnamed} entries more"));
        }
        lines
    }

    /// What will probably fail later, in sentences for the user.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        self.hints.iter().map(|hint| format!("hint: {}", printable(hint))).collect()
    }
}

/// A build, from its start on.
#[derive(Debug, Clone, Deserialize)]
pub struct Build {
    /// The version it makes.
    pub version: u32,
    /// `building`, `ready` or `failed`.
    pub status: String,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
}

/// A session.
#[derive(Debug, Deserialize)]
pub struct Session {
    /// `hsess…`.
    pub id: String,
}

/// A command that was started.
#[derive(Debug, Deserialize)]
pub struct Started {
    /// Counted within the session.
    pub id: u32,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Ended {
    /// It exited with this code.
    #[serde(default)]
    pub exit_code: Option<u8>,
    /// It was killed by this signal.
    #[serde(default)]
    pub signal: Option<i32>,
    /// It never ran; the error number says why.
    #[serde(default)]
    pub not_executed: Option<i32>,
    /// `own`, `cancelled`, `timeout`, `out_of_memory` or `session_ended`.
    #[serde(default)]
    pub cause: Option<String>,
    /// It ran into the limit on processes.
    #[serde(default)]
    pub pids_limit_hit: bool,
    /// Bytes of output that were not kept.
    #[serde(default)]
    pub lost: u64,
}

/// A file of a session's working directory.
#[derive(Debug, Clone, Deserialize)]
pub struct Artifact {
    /// `file_…`.
    pub id: String,
    /// `cntr_…`.
    pub container_id: String,
    /// Relative to the working directory.
    pub path: String,
}

/// The files of a session's working directory.
#[derive(Debug, Deserialize)]
pub struct Artifacts {
    /// Regular files only.
    pub files: Vec<Artifact>,
    /// There are more than the server lists.
    #[serde(default)]
    pub truncated: bool,
}
