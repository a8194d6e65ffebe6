//! PID 1 of every session; the warden executes it from a sealed memory file.

#![forbid(unsafe_code)]

use hangar_runtime::{init, steps, wire};
use std::process::ExitCode;

fn main() -> ExitCode {
    let ran = init::control_socket()
        .map_err(wire::WireError::from)
        .and_then(|control| init::run(steps::LAUNCH, control, |record| record));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        // The warden sees that this process is gone; there is no other place to say why.
        Err(_) => ExitCode::FAILURE,
    }
}
