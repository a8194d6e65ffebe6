//! Starting the warden, or adopting one that runs.

use super::{ServeError, socket_of};
use crate::config;
use crate::warden_client::{WardenError, connect_blocking};
use hangar_runtime::wire::{
    self,
    warden::{Call, Request, RequestId},
};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Connects to the warden of a state directory; starts it where none runs.
pub(super) fn start_or_adopt(
    dir: &Path,
    settings: &config::Warden,
) -> Result<(OwnedFd, Option<Child>), ServeError> {
    match connect_blocking(&socket_of(dir)) {
        Ok(socket) => return Ok((socket, None)),
        Err(WardenError::Gone) => {}
        Err(WardenError::OtherBuild(other)) => return Err(ServeError::OtherBuild(other)),
        Err(error) => return Err(ServeError::Warden(error.to_string())),
    }
    let mut started = EndUnlessServed::new(Some(start(dir, settings)?));
    match connect_blocking(&socket_of(dir)) {
        Ok(socket) => Ok((socket, started.served())),
        Err(error) => Err(ServeError::Warden(error.to_string())),
    }
}

/// Starts the warden beside this program, and waits until it can be connected to.
fn start(dir: &Path, settings: &config::Warden) -> Result<Child, ServeError> {
    let fail = |step: &str, cause: &dyn std::fmt::Display| ServeError::step(step, cause);
    let own = std::env::current_exe().map_err(|e| fail("finding hangar-warden", &e))?;
    let program = own.with_file_name("hangar-warden");
    let orphan_timeout_ms = settings.orphan_timeout_s.saturating_mul(1000);
    let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail("making a pipe", &e))?;
    // Nothing else is started meanwhile: there is only this thread.
    fcntl_setfd(&write, FdFlags::empty()).map_err(|e| fail("passing the pipe", &e))?;
    let mut child = Command::new(&program)
        .arg("--state-dir")
        .arg(dir)
        .args(["--range-base", &settings.range_base.to_string()])
        .args(["--orphan-timeout-ms", &orphan_timeout_ms.to_string()])
        .args(["--ready-fd", &write.as_raw_fd().to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| fail(&format!("starting {}", program.display()), &e))?;
    drop(write);
    let mut byte = [0];
    match std::fs::File::from(read).read(&mut byte) {
        Ok(1) => Ok(child),
        _ => {
            let status = child.wait().map_or_else(|e| e.to_string(), |status| status.to_string());
            Err(ServeError::Warden(format!("it ended ({status})")))
        }
    }
}

/// Asks a warden that this process started to end, when the server did not come up after the
/// privileges were dropped.
pub(super) fn dismiss(socket: &OwnedFd) {
    let call = Call { id: RequestId(0), request: Request::Shutdown };
    // One that is gone already does not hear it; the error that led here is the one to tell.
    let _ = wire::send(socket, &call, &[]);
}

/// Ends a warden this process started when the server does not come up after all.
pub(super) struct EndUnlessServed {
    child: Option<Child>,
}

impl EndUnlessServed {
    pub(super) fn new(child: Option<Child>) -> Self {
        Self { child }
    }

    /// The server is up; the warden stays.
    pub(super) fn served(&mut self) -> Option<Child> {
        self.child.take()
    }
}

impl Drop for EndUnlessServed {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It has no session yet. The error that led here is the one to tell. Once the
            // privileges are gone it cannot be killed; it ends when nobody comes.
            if child.kill().is_ok() {
                let _ = child.wait();
            }
        }
    }
}
