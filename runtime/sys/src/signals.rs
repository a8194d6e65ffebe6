//! Signal masks, dispositions and signalfd.

use crate::mount::last_errno;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Blocks these signals in this thread, on top of those that are blocked.
///
/// # Errors
/// For a number that is no signal.
pub fn block_signals(signals: &[i32]) -> Result<(), Errno> {
    let set = signal_set(signals)?;
    // SAFETY: `set` is initialised and outlives the call; no old set is asked for.
    let result =
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

fn signal_set(signals: &[i32]) -> Result<libc::sigset_t, Errno> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the whole set.
    let mut set = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    };
    for &signal in signals {
        // SAFETY: `set` is initialised; the call checks the number.
        if unsafe { libc::sigaddset(&raw mut set, signal) } != 0 {
            return Err(Errno::INVAL);
        }
    }
    Ok(set)
}

/// Gives a process that is about to exec the default dispositions and an empty mask.
///
/// The Rust runtime ignores SIGPIPE, and ignored and blocked signals survive an exec.
///
/// # Errors
/// None is expected; the kernel's answer is passed on.
pub fn reset_signals() -> Result<(), Errno> {
    for signal in 1..=libc::SIGRTMAX() {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP || (32..=33).contains(&signal) {
            continue;
        }
        // SAFETY: SIG_DFL installs no code of ours.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(last_errno());
        }
    }
    let set = signal_set(&[])?;
    // SAFETY: `set` is initialised and outlives the call; no old set is asked for.
    let result =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

/// A descriptor that reads as ready while one of its signals is pending.
#[derive(Debug)]
pub struct SignalFd(OwnedFd);

impl SignalFd {
    /// Blocks the signals and makes a non-blocking, close-on-exec descriptor for them.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn new(signals: &[i32]) -> Result<Self, Errno> {
        block_signals(signals)?;
        let set = signal_set(signals)?;
        // SAFETY: `set` is initialised and outlives the call; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(last_errno());
        }
        // SAFETY: the descriptor is new and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Takes one pending signal, if there is one.
    ///
    /// # Errors
    /// What `read(2)` says.
    pub fn take(&self) -> Result<Option<i32>, Errno> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Ok(_) => Ok(Some(u32::from_ne_bytes([info[0], info[1], info[2], info[3]]) as i32)),
            Err(Errno::AGAIN) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for SignalFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
