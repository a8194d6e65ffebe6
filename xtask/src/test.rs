//! `cargo xtask test`: everything that has to hold before a change is taken.

use crate::failure::{Failure, Step};
use crate::program::{run, shown, succeeds};
use crate::setup::{For, set_up};
use crate::tally::Tally;
use crate::test_fs::TestFs;
use crate::{tree, vm};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Where tests keep their state. It lives longer than `/tmp` and is no tmpfs.
const STATE_DIR: &str = "/var/tmp";

/// Sets up, checks, builds, runs every test and boots the virtual machines.
///
/// A failed check does not end the run: the closing line counts all of them.
///
/// # Errors
/// When set-up or the build fails, so that nothing could be tested.
pub fn test() -> Result<ExitCode, Failure> {
    if !tree::is_root() {
        return Err(Failure::new("hangar makes namespaces and mounts: run the tests as root"));
    }
    let start = Instant::now();
    set_up(For::Test)?;
    let mut tally = Tally::default();
    stage("formatting", start);
    tally.check("formatting", run(tree::cargo().args(["fmt", "--all", "--check"])));
    stage("lints", start);
    tally.check("lints", run(tree::cargo().args(LINTS)));
    stage("build", start);
    run(tree::cargo().args(["build", "--release", "--workspace"]))?;
    stage("tests", start);
    tally.add(&workspace_tests()?);
    stage("virtual machines", start);
    tally.add(&vm::check_all()?);
    stage("end", start);
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// With the profile of the build, so that what both need is compiled once.
const LINTS: &[&str] =
    &["clippy", "--release", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];

fn stage(name: &str, start: Instant) {
    println!("== {name} ({} s) ==", start.elapsed().as_secs());
}

/// Cargo in a mount namespace of its own, where the tests' state directory is the file system.
///
/// Nothing else on the machine sees that mount, and it goes away with the tests.
fn with_state_on(fs: &TestFs) -> Command {
    let mut command = Command::new("unshare");
    let mount = format!("mount --bind \"$0\" {STATE_DIR} && exec \"$@\"");
    command.args(["--mount", "--", "sh", "-ec", &mount]).arg(fs.path());
    command.arg(tree::cargo().get_program()).current_dir(tree::root());
    command.env("TMPDIR", STATE_DIR);
    command
}

/// Runs the tests of the workspace, each in a process of its own where nextest is installed.
///
/// A runner that ends with a failure although it counted none did not run everything: that counts
/// as one failure. A run that counted no test does too.
fn workspace_tests() -> Result<Tally, Failure> {
    let fs = TestFs::mount("test-fs")?;
    let mut command = with_state_on(&fs);
    if succeeds(tree::cargo().args(["nextest", "--version"])) {
        command.args(["nextest", "run", "--release", "--workspace", "--no-fail-fast"]);
    } else {
        command.args(["test", "--release", "--workspace", "--no-fail-fast"]);
        command.args(["--", "--test-threads=1"]);
    }
    command.env("CARGO_TERM_COLOR", "never");
    // Both streams into one pipe: nextest tells on one of them, cargo test on the other.
    let (reader, writer) = std::io::pipe().step(|| "making a pipe for the tests".to_owned())?;
    let errors = writer.try_clone().step(|| "copying the tests' pipe".to_owned())?;
    command.stdin(Stdio::null()).stdout(writer).stderr(errors);
    let line = shown(&command);
    let mut runner = command.spawn().step(|| line.clone())?;
    // The command holds the pipe's writing ends; without them the reader sees the end.
    drop(command);

    let mut tally = Tally::default();
    for said in BufReader::new(reader).lines() {
        let said = said.step(|| format!("reading what {line} said"))?;
        println!("{said}");
        tally.read_line(&said);
    }
    let status = runner.wait().step(|| line.clone())?;
    if tally.failed == 0 && (!status.success() || tally.passed == 0) {
        tally.check(
            "test runner",
            Err(Failure::new(format!("{line} ended with {status}, {} passed", tally.passed))),
        );
    }
    Ok(tally)
}
