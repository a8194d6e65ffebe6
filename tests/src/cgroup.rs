//! The control groups of a session, as the host sees them.

use crate::processes::{self, wait_for};
use crate::remains::hierarchies;
use crate::session::Session;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// The directories of a session in every hierarchy.
#[derive(Debug)]
pub struct Cgroup {
    directories: Vec<PathBuf>,
}

impl Cgroup {
    /// Finds them by a process of the session: inside, its group is the root of all it sees, and
    /// the name of a group need not be that of its session.
    ///
    /// # Panics
    /// When the process is not found.
    #[must_use]
    pub fn of(session: &Session<'_>) -> Self {
        let mark = format!("mark-{}", session.id);
        let script = format!("exec -a {mark} sleep 1000");
        let number = session.start_command(&json!({ "command": ["bash", "-c", script] }));
        let marked = wait_for("a process of the session", || {
            processes::all().into_iter().find(|process| process.command.starts_with(&mark))
        });
        session.cancel(number);
        let _ended = session.finish(number);
        let paths = marked.cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let mut directories = Vec::new();
        for path in paths.filter(|path| path.contains("/hangar/")) {
            // In the v2 hierarchy each command has a leaf of its own.
            let leaf = Path::new(path).file_name().is_some_and(|name| !is_session(name));
            let path = if leaf { Path::new(path).parent() } else { Some(Path::new(path)) };
            let path = path.expect("a leaf has a parent").strip_prefix("/").expect("absolute");
            directories.extend(hierarchies().into_iter().map(|h| h.join(path)));
        }
        Self { directories }
    }

    /// The number in a control file, from the hierarchy that has it.
    ///
    /// # Panics
    /// When none has it.
    #[must_use]
    pub fn number(&self, file: &str) -> u64 {
        let found = self.texts(file).find_map(|text| text.trim().parse().ok());
        found.unwrap_or_else(|| panic!("no {file} in {:?}", self.directories))
    }

    /// The number after a key in a control file of such lines; the v2 hierarchy has files of
    /// controllers that it does not have, with fewer lines.
    ///
    /// # Panics
    /// When the key is not there.
    #[must_use]
    pub fn counter(&self, file: &str, key: &str) -> u64 {
        let value = |text: String| {
            let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            value?.parse().ok()
        };
        let found = self.texts(file).find_map(value);
        found.unwrap_or_else(|| panic!("no {key} in {file} in {:?}", self.directories))
    }

    fn texts(&self, file: &str) -> impl Iterator<Item = String> {
        self.directories.iter().filter_map(move |path| fs::read_to_string(path.join(file)).ok())
    }
}

fn is_session(name: &std::ffi::OsStr) -> bool {
    name.to_string_lossy().starts_with("hsess")
}
