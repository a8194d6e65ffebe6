//! `hangar` as a user calls it, on a state directory of its own.

use crate::{program, scratch};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A directory with a state directory and projects in it; all of it goes away with the value.
#[derive(Debug)]
pub struct Place {
    root: TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Self { root: scratch() }
    }
}

impl Place {
    /// A path in the directory.
    #[must_use]
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.path().join(below)
    }

    /// The state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Writes a file of a project, with the directories above it.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, below: &str, text: &str) {
        let path = self.path(below);
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("mkdir");
        fs::write(path, text).expect("write");
    }

    /// Changes a file of a project: `from` stands in it once.
    ///
    /// # Panics
    /// When it does not.
    pub fn edit(&self, below: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path(below)).expect("read");
        assert_eq!(text.matches(from).count(), 1, "{from} in {below}");
        fs::write(self.path(below), text.replace(from, to)).expect("write");
    }

    /// Copies a project of `examples/` here, so that it can be edited.
    ///
    /// # Panics
    /// When it is not there.
    pub fn copy_example(&self, name: &str) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples").join(name);
        copy(&from, &self.path(name));
    }

    /// `hangar` with this state directory.
    #[must_use]
    pub fn hangar<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(program("hangar"));
        command.args(words).arg("--state-dir").arg(self.state());
        command.current_dir(self.root.path()).stdin(Stdio::null()).env_remove("HANGAR_LOG");
        command
    }

    /// `hangar run OPTIONS PROJECT -- WORDS`.
    ///
    /// # Panics
    /// When it does not start.
    #[must_use]
    pub fn run<S: AsRef<OsStr>>(&self, options: &[&str], project: &str, words: &[S]) -> Output {
        let mut command = self.hangar(["run"]);
        command.args(options).arg(project).arg("--").args(words).output().expect("it starts")
    }

    /// The standard output of a command that succeeds.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn said(&self, words: &[&str]) -> String {
        let output = self.hangar(words).output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    }

    /// The same of a command that prints JSON.
    ///
    /// # Panics
    /// When it does not.
    #[must_use]
    pub fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.said(words)).expect("it prints JSON")
    }
}

/// Standard output as text.
#[must_use]
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
#[must_use]
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Copies a tree of directories and files, without what tools left in it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("mkdir");
    for entry in fs::read_dir(from).expect("list") {
        let entry = entry.expect("entry");
        let (name, kind) = (entry.file_name(), entry.file_type().expect("type"));
        if [".venv", "node_modules", "__pycache__"].iter().any(|left| name == *left) {
            continue;
        }
        match kind.is_dir() {
            true => copy(&entry.path(), &to.join(name)),
            false => drop(fs::copy(entry.path(), to.join(name)).expect("copy")),
        }
    }
}
