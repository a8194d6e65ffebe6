//! `hangar doctor`: what this host enforces and what it lacks.

use super::error::{CliError, While};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Becomes the warden in its examining role: what is tried are the calls of a launch, and those
/// are the warden's. As root it launches a session below the state directory and takes it down.
///
/// # Errors
/// When the warden is not beside this program; otherwise it does not return.
pub fn run(state_dir: &Path) -> Result<u8, CliError> {
    let own = std::env::current_exe().while_doing(|| "this program is not found")?;
    let warden = own.with_file_name("hangar-warden");
    let failed = Command::new(&warden).arg("--state-dir").arg(state_dir).arg("--doctor").exec();
    Err(failed).while_doing(|| format!("{} cannot be executed", warden.display()))
}
