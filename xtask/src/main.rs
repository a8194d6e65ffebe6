//! `cargo xtask demo | test | bench | vm`: everything that is done with the checkout, each with
//! the set-up it needs.
#![forbid(unsafe_code)]

mod bench;
mod demo;
mod failure;
mod program;
mod setup;
mod tally;
mod test;
mod test_fs;
mod tree;
mod vm;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Shows, tests and measures hangar")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds hangar and runs the main job: examples/content-studio
    Demo,
    /// Formatting, lints, every test, and the virtual machines
    Test,
    /// Measures hangar beside its peers
    Bench(bench::Arguments),
    /// Boots hangar on other kernels
    Vm(vm::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Demo => demo::demo(),
        Task::Test => test::test(),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Vm(arguments) => vm::vm(&arguments),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{}", failure.chain());
            ExitCode::FAILURE
        }
    }
}
