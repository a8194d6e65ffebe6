//! Bringing a tree to disk while it is still being written.

use rustix::io::Errno;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Between two rounds. Shorter gains nothing; longer leaves more for the end.
const INTERVAL: Duration = Duration::from_millis(100);

/// Runs `work`, and meanwhile has the file system of `directory` write out what is there already,
/// so that the disk is busy while the processor is. Nothing is promised about what is on disk
/// afterwards; for that the caller ends with a `syncfs` of its own.
///
/// # Errors
/// A failed write, which the kernel reports only once and so would be missed at the end.
pub(crate) fn while_flushing<T>(
    directory: BorrowedFd<'_>,
    work: impl FnOnce() -> T,
) -> (T, Result<(), Errno>) {
    let (done, is_done) = channel::<()>();
    thread::scope(|scope| {
        let flusher = scope.spawn(move || {
            while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                rustix::fs::syncfs(directory)?;
            }
            Ok(())
        });
        let result = work();
        drop(done);
        let flushed = flusher.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, flushed)
    })
}
