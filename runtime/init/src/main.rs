//! PID 1 of every session; the warden executes it from a sealed memory file.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let ran = hangar_runtime::init::control_socket()
        .map_err(hangar_runtime::wire::WireError::from)
        .and_then(|control| hangar_runtime::init::run(hangar_runtime::steps::LAUNCH, control));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        // The warden sees that this process is gone; there is no other place to say why.
        Err(_) => ExitCode::FAILURE,
    }
}
