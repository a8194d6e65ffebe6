//! The `hangar` program.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    hangar::cli::main()
}
