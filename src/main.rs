//! The `hangar` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    hangar::cli::main()
}
