//! Descriptors with agreed numbers, between a process and the program it starts.

use crate::mount::last_errno;
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_getfd, fcntl_setfd};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Places these descriptors at 0, 1, 2 and so on for the program that is executed next, and marks
/// all others close-on-exec.
///
/// For a child that goes on to exec or to exit: whatever had those numbers is replaced.
///
/// # Errors
/// When the process has no descriptors left.
pub fn place_descriptors(descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let count = i32::try_from(descriptors.len()).map_err(|_| Errno::INVAL)?;
    // First out of the way: a descriptor can have the number that another one is to get.
    let copies = descriptors
        .iter()
        .map(|fd| fcntl_dupfd_cloexec(fd, count))
        .collect::<Result<Vec<_>, Errno>>()?;
    for (number, copy) in (0..count).zip(&copies) {
        // SAFETY: dup2 takes integers only. An owner of the number keeps a valid descriptor, of
        // another file; the caller promised to exec or exit, so nobody reads through it.
        if unsafe { libc::dup2(copy.as_raw_fd(), number) } < 0 {
            return Err(last_errno());
        }
    }
    crate::process::close_from(u32::try_from(count).map_err(|_| Errno::INVAL)?)
}

/// Takes ownership of a descriptor that this process was started with, and marks it
/// close-on-exec.
///
/// Call it once for a number, before anything else is opened: a number that is not inherited can
/// belong to a later file.
///
/// # Errors
/// `EBADF` when the process was started without it; `EINVAL` for standard streams.
pub fn inherited_descriptor(number: i32) -> Result<OwnedFd, Errno> {
    if number < 3 {
        return Err(Errno::INVAL);
    }
    // SAFETY: borrowed for the next two calls only, which fail with EBADF if it is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(borrowed)?;
    fcntl_setfd(borrowed, flags | FdFlags::CLOEXEC)?;
    // SAFETY: it is open (just checked), and by the caller's promise nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
