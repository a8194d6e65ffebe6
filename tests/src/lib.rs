//! What the black-box tests share: finding the built programs, scratch directories, experiments.
//!
//! The tests run as root on the programs of the same build: `cargo xtask test` builds them first.
//! A test that cannot run fails.

#![forbid(unsafe_code)]

pub mod cgroup;
pub mod checked;
pub mod crash;
pub mod daemon;
pub mod disk;
pub mod faults;
pub mod host;
pub mod http;
pub mod probing;
pub mod processes;
pub mod remains;
pub mod repositories;
pub mod run;
pub mod schema;
pub mod session;
pub mod task;
pub mod tree;

use hangar_peel::spec::{Outcome, Spec};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A program of this build.
///
/// # Panics
/// When it was not built.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test is a file");
    // target/release/deps/<test> beside target/release/<program>
    let directory = own.parent().and_then(Path::parent).expect("below the target directory");
    let path = directory.join(name);
    assert!(path.exists(), "{} is not built: cargo build --release --workspace", path.display());
    path
}

/// A directory that is removed with the value, on a filesystem that takes id maps.
///
/// # Panics
/// When it cannot be made, or the test does not run as root.
#[must_use]
pub fn scratch() -> TempDir {
    assert!(rustix::process::geteuid().is_root(), "the tests run as root");
    let parent = std::env::var_os("HANGAR_TEST_DIR").unwrap_or_else(|| "/var/tmp".into());
    tempfile::Builder::new().prefix("hangar-test-").tempdir_in(parent).expect("scratch directory")
}

/// Carries an experiment out in a process of its own.
///
/// # Panics
/// When the program dies; a launch that fails is an [`Outcome::error`].
#[must_use]
pub fn peel(spec: &Spec) -> Outcome {
    carry_out(Command::new(program("hangar-peel")), spec)
}

fn carry_out(mut command: Command, spec: &Spec) -> Outcome {
    let text = serde_json::to_string(spec).expect("a spec is JSON");
    let output = command.arg(text).output().expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&stdout).unwrap_or_else(|error| {
        panic!("{error}: {stdout}\n{}", String::from_utf8_lossy(&output.stderr))
    })
}

/// The same, from a process that possesses the canary key of probe P030.
///
/// # Panics
/// As for [`peel`].
#[must_use]
pub fn peel_with_key(spec: &Spec) -> Outcome {
    let mut command = Command::new(program("hangar-probe"));
    command.arg("with-canary-key").arg(program("hangar-peel"));
    carry_out(command, spec)
}
