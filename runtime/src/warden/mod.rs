//! The warden: the only privileged process.
//!
//! It serves the verbs of [`crate::wire::warden`] to one caller at a time, in one thread. It
//! parses neither HTTP nor archives, and no path of a caller reaches it: names are resolved below
//! directories it opened at start.
//!
//! Reading order: [`state`], [`session_dir`], [`version_dir`], [`blocks`]; then `server`,
//! `requests`, `sessions`, `session`, `commands`, `jobs`, `job`, `job_plans`, `worker`, `parking`,
//! `egress`, `tidy`.

/// Writes one line to the warden's log, which is its standard error.
macro_rules! log {
    ($($text:tt)*) => {
        $crate::warden::write_log(format_args!($($text)*))
    };
}

mod api;
pub mod blocks;
mod commands;
mod egress;
mod job;
mod job_plans;
mod jobs;
mod parking;
mod requests;
mod server;
mod session;
pub mod session_dir;
mod sessions;
pub mod state;
mod tidy;
mod trees;
pub mod version_dir;
mod worker;
mod workspace;

use crate::error::{AtStep, SetupError};
use crate::ids::Range;
use crate::steps::Step;
use crate::wire::warden::ExitStatus;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// What a warden is started with.
#[derive(Debug)]
pub struct WardenConfig {
    /// The state directory; it exists.
    pub state_dir: PathBuf,
    /// The uids of this state directory.
    pub range: Range,
    /// How long sessions stay when no API is connected.
    pub orphan_timeout: Duration,
    /// The program of init, from [`seal`].
    pub init_image: OwnedFd,
    /// Arguments of init after its name; the shipped warden passes none.
    pub init_arguments: Vec<String>,
    /// The program of the worker, from [`seal`].
    pub worker_image: OwnedFd,
    /// The `hangar` program, for the egress proxy; without it no session can have egress.
    pub hangar: Option<OwnedFd>,
    /// The launch, [`crate::steps::LAUNCH`] in the shipped warden.
    pub steps: &'static [Step],
    /// Gets the byte `R` when callers can connect.
    pub ready: Option<OwnedFd>,
}

/// Runs a warden until it is told to end or no API has been there for long.
///
/// # Errors
/// When the host or the state directory cannot be used; nothing is left then.
pub fn run(config: WardenConfig) -> Result<(), SetupError> {
    server::Server::new(config)?.run()
}

/// A program as a file that nobody can change, to be executed by descriptor.
///
/// # Errors
/// When there is no memory for it.
pub fn seal(name: &str, program: &[u8]) -> Result<OwnedFd, SetupError> {
    let step = "seal-program";
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // EXEC is needed where the host forbids executing memory files by default, and unknown
    // before Linux 6.3.
    let file = match memfd_create(name, flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create(name, flags),
        other => other,
    }
    .at(step, || format!("memfd_create({name})"))?;
    let mut rest = program;
    while !rest.is_empty() {
        match rustix::io::write(&file, rest) {
            Ok(n) => rest = &rest[n..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).at(step, || format!("write({name})")),
        }
    }
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals).at(step, || format!("fcntl({name}, ADD_SEALS)"))?;
    Ok(file)
}

/// A log that nobody can write to any more, such as a closed terminal, ends no session.
fn write_log(line: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "hangar-warden: {line}");
}

/// Takes the status of a child that has ended, or waits for its end.
fn reap(pidfd: &OwnedFd) -> ExitStatus {
    use std::os::fd::AsFd;
    loop {
        match waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED) {
            Err(Errno::INTR) => {}
            Ok(Some(status)) => {
                let code = status.exit_status().and_then(|code| u8::try_from(code & 0xff).ok());
                return match (code, status.terminating_signal()) {
                    (Some(code), _) => ExitStatus::Code(code),
                    (None, signal) => ExitStatus::Signal(signal.unwrap_or(libc::SIGKILL)),
                };
            }
            // A child is reaped here and nowhere else, so there is always one.
            Ok(None) | Err(_) => return ExitStatus::Signal(libc::SIGKILL),
        }
    }
}

/// Whether a message waits on a socket.
fn has_message(socket: &OwnedFd) -> bool {
    let mut byte = [0];
    rustix::net::recv(socket, &mut byte[..], RecvFlags::DONTWAIT | RecvFlags::PEEK)
        .is_ok_and(|(_, length)| length > 0)
}

/// The number of a descriptor, to name it in `/proc/self/fd`.
fn raw(fd: BorrowedFd<'_>) -> i32 {
    fd.as_raw_fd()
}
