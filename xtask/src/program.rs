//! Running other programs.

use crate::failure::{Failure, Step};
use std::process::{Command, Stdio};

/// Runs a program whose output the user sees.
///
/// # Errors
/// When it cannot be started or does not end with status 0.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.stdin(Stdio::null()).status().step(|| shown(command))?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("{} ended with {status}", shown(command))))
}

/// Runs a program and returns its standard output, without the last line's end.
///
/// # Errors
/// As [`run`].
pub fn read(command: &mut Command) -> Result<String, Failure> {
    let output =
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().step(|| shown(command))?;
    if !output.status.success() {
        return Err(Failure::new(format!("{} ended with {}", shown(command), output.status)));
    }
    let text = String::from_utf8(output.stdout).step(|| shown(command))?;
    Ok(text.trim_end().to_owned())
}

/// Runs a program without output; true when it ended with status 0.
pub fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The program and its arguments as one line.
pub fn shown(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
