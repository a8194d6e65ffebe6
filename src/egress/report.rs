//! Reports to the warden.

use hangar_runtime::ids::SessionId;
use hangar_runtime::wire::egress::{Report, TARGET_BYTES_MAX};
use hangar_runtime::wire::{WireError, send};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

/// Reports that wait for the warden; what comes on top is dropped.
const QUEUED_MAX: usize = 256;

/// Sends reports without ever waiting.
#[derive(Debug, Clone)]
pub(super) struct Reports(mpsc::Sender<Report>);

impl Reports {
    /// Starts the task that writes reports to the control socket, in order.
    pub(super) fn to(control: Arc<UnixStream>) -> Self {
        let (sender, mut queue) = mpsc::channel(QUEUED_MAX);
        tokio::spawn(async move {
            while let Some(report) = queue.recv().await {
                if write(&control, &report).await.is_err() {
                    // The reader of orders meets the same error and ends the proxy.
                    return;
                }
            }
        });
        Self(sender)
    }

    /// A report is news for a log: a session that makes the proxy refuse faster than the warden
    /// reads loses some of its own.
    pub(super) fn send(&self, report: Report) {
        let _full_or_ending = self.0.try_send(report);
    }

    /// Tells that a target was not dialled.
    pub(super) fn refused(&self, session: &SessionId, target: &str, reason: &str) {
        let (target, reason) = (printable(target), printable(reason));
        self.send(Report::Refused { session: session.clone(), target, reason });
    }
}

/// The control socket as the runtime takes it. It keeps the borders of messages, which a stream
/// socket would not: only its readiness is used, the bytes go through [`hangar_runtime::wire`].
pub(super) fn socket(control: OwnedFd) -> io::Result<UnixStream> {
    let socket = std::os::unix::net::UnixStream::from(control);
    socket.set_nonblocking(true)?;
    UnixStream::from_std(socket)
}

/// Calls the socket once; when it would have to wait, the runtime forgets that it was ready.
pub(super) fn without_waiting<T>(
    socket: &UnixStream,
    interest: Interest,
    call: impl FnOnce() -> Result<T, WireError>,
) -> Result<T, WireError> {
    let mut outcome = Err(WireError::WouldBlock);
    let _readiness = socket.try_io(interest, || {
        outcome = call();
        match outcome {
            Err(WireError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(()),
        }
    });
    outcome
}

async fn write(control: &UnixStream, report: &Report) -> Result<(), WireError> {
    loop {
        control.writable().await.map_err(|_| WireError::Socket(rustix::io::Errno::IO))?;
        let sent =
            without_waiting(control, Interest::WRITABLE, || send(control.as_fd(), report, &[]));
        match sent {
            Err(WireError::WouldBlock) => {}
            other => return other,
        }
    }
}

/// The text as it can stand in any log or on any terminal.
fn printable(text: &str) -> String {
    let printable = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
    text.chars().take(TARGET_BYTES_MAX).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_printable_ascii_is_reported() {
        assert_eq!(printable("a\u{1b}[2Jb\0\u{202e}é\n:80"), "a?[2Jb????:80");
        assert_eq!(printable(&"é".repeat(500)).len(), TARGET_BYTES_MAX);
    }
}
