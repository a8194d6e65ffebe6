//! `cargo xtask vm`: hangar on other kernels, in virtual machines.
//!
//! A machine is a kernel package of some Debian suite, a Debian root file system, and the built
//! binaries, emulated by QEMU without hardware help. It has no network. Its first process runs
//! the scripts of `vm-tests/checks` and tells their exit status over the serial line.

mod apt;
mod images;
mod kernel;
mod machine;
mod serial;

use crate::failure::Failure;
use crate::program::run;
use crate::setup::{For, set_up};
use crate::tally::Tally;
use crate::tree;
use kernel::KERNELS;
use std::process::ExitCode;

/// Which machines are booted.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only the machine with this kernel, such as 6.1
    #[arg(long)]
    kernel: Option<String>,
    /// Only checks whose name contains this
    #[arg(long)]
    check: Option<String>,
}

/// Builds hangar and boots the machines that were asked for.
///
/// # Errors
/// When set-up or build fails, or a machine cannot be made.
pub fn vm(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if !tree::is_root() {
        return Err(Failure::new("making a root file system takes root"));
    }
    set_up(For::Vm)?;
    run(tree::cargo().args(["build", "--release"]))?;
    let tally = boot(arguments.kernel.as_deref(), arguments.check.as_deref())?;
    println!("{tally}");
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Boots every machine, with hangar built already.
///
/// # Errors
/// When a machine cannot be made.
pub fn check_all() -> Result<Tally, Failure> {
    boot(None, None)
}

fn boot(kernel: Option<&str>, check: Option<&str>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let chosen = KERNELS.iter().filter(|one| kernel.is_none_or(|name| name == one.name));
    for kernel in chosen {
        tally.add(&machine::boot(kernel, check)?);
    }
    if tally == Tally::default() {
        let names: Vec<&str> = KERNELS.iter().map(|one| one.name).collect();
        return Err(Failure::new(format!("no check ran; kernels: {}", names.join(", "))));
    }
    Ok(tally)
}
