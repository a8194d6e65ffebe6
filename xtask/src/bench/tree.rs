//! A real tree to freeze and to mount: the numpy/pandas project with its dependencies.

use crate::failure::Failure;
use crate::program::run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Copies examples/market-report and installs it, or finds that this was done.
///
/// # Errors
/// When a program fails.
pub fn installed(fs: &Path) -> Result<PathBuf, Failure> {
    let project = fs.join("market-report");
    if project.exists() {
        return Ok(project);
    }
    eprintln!("installing examples/market-report to have a real tree");
    let source = crate::tree::root().join("examples/market-report");
    let partial = fs.join("market-report.partial");
    run(Command::new("cp").arg("-a").arg(source).arg(&partial))?;
    let environment = partial.join(".venv");
    run(Command::new("/usr/bin/python3").args(["-m", "venv"]).arg(&environment))?;
    run(Command::new(environment.join("bin/python"))
        .args(["-m", "pip", "install", "-q"])
        .arg(&partial))?;
    run(Command::new("mv").arg(&partial).arg(&project))?;
    Ok(project)
}
