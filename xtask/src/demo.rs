//! `cargo xtask demo`: the main job, shown.

use crate::failure::{Failure, Step};
use crate::program::{run, shown};
use crate::setup::{For, set_up};
use crate::tree;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Builds hangar and runs content-studio twice: the second run builds nothing.
///
/// # Errors
/// When set-up, build or a run fails.
pub fn demo() -> Result<ExitCode, Failure> {
    if !tree::is_root() {
        return Err(Failure::new("hangar makes namespaces and mounts: run the demo as root"));
    }
    set_up(For::Demo)?;
    run(tree::cargo().args(["build", "--release"]))?;

    let folder = tree::target()?.join("demo");
    let artifacts = folder.join("artifacts");
    std::fs::create_dir_all(&folder).step(|| format!("making {}", folder.display()))?;
    if artifacts.exists() {
        std::fs::remove_dir_all(&artifacts).step(|| format!("removing {}", artifacts.display()))?;
    }
    println!("\n== the first run imports, builds and freezes the project ==");
    main_job(&folder, &artifacts, "12")?;
    println!("\n== the second run finds the frozen version and builds nothing ==");
    main_job(&folder, &artifacts, "7")?;

    println!("\n== what came out, in {} ==", artifacts.display());
    run(Command::new("ls").args(["-l", "--time-style=+"]).arg(&artifacts))?;
    Ok(ExitCode::SUCCESS)
}

fn main_job(folder: &Path, artifacts: &Path, episode: &str) -> Result<(), Failure> {
    let mut command = Command::new(tree::binary("hangar")?);
    command.arg("run").arg("--state-dir").arg(folder.join("state"));
    command.arg("--artifacts").arg(artifacts).arg("examples/content-studio");
    command.args(["--", "python3", "run.py", "--episode", episode]);
    command.current_dir(tree::root()).stdin(Stdio::null());
    println!("$ sudo {}", shown(&command));
    let start = Instant::now();
    run(&mut command)?;
    println!("({:.1} s)", start.elapsed().as_secs_f64());
    Ok(())
}
