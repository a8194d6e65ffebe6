//! System calls as attackers make them: by number, with whatever arguments.
//!
//! Nothing here checks anything. Attackers do not use careful wrappers, and a wrapper that
//! refuses an odd argument itself would hide what the kernel says to it.

use std::ffi::{CStr, CString};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// An error number of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// What a call gave.
pub type Got<T> = Result<T, Errno>;

/// Numbers that the `libc` crate does not have.
pub mod number {
    #![allow(missing_docs)]
    pub const URETPROBE: i64 = 335;
    pub const UPROBE: i64 = 336;
    pub const STATMOUNT: i64 = 457;
    pub const LISTMOUNT: i64 = 458;
    pub const SETXATTRAT: i64 = 463;
    pub const OPEN_TREE_ATTR: i64 = 467;
    pub const FILE_SETATTR: i64 = 469;
}

/// One argument of a call.
pub enum Arg<'a> {
    /// A number, a descriptor, flags; all 64 bits reach the kernel.
    Number(i64),
    /// A path or a name.
    Text(&'a CStr),
    /// Memory the kernel reads.
    Reads(&'a [u8]),
    /// Memory the kernel fills.
    Fills(&'a mut [u8]),
}

impl From<i32> for Arg<'_> {
    fn from(value: i32) -> Self {
        Self::Number(i64::from(value))
    }
}

impl From<u32> for Arg<'_> {
    fn from(value: u32) -> Self {
        Self::Number(i64::from(value))
    }
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Self::Number(value)
    }
}

impl From<u64> for Arg<'_> {
    fn from(value: u64) -> Self {
        Self::Number(value as i64)
    }
}

impl<'a> From<&'a CString> for Arg<'a> {
    fn from(value: &'a CString) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a CStr> for Arg<'a> {
    fn from(value: &'a CStr) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Reads(value)
    }
}

impl<'a> From<&'a mut [u8]> for Arg<'a> {
    fn from(value: &'a mut [u8]) -> Self {
        Self::Fills(value)
    }
}

/// Makes a call: `call!(libc::SYS_open, &path, libc::O_RDWR, 0)`.
#[macro_export]
macro_rules! call {
    ($number:expr $(, $argument:expr)* $(,)?) => {
        $crate::sys::call($number, &[$($crate::sys::Arg::from($argument)),*])
    };
}

/// Makes a call with up to six arguments; those left out are 0.
pub fn call(number: i64, arguments: &[Arg<'_>]) -> Got<i64> {
    let mut raw = [0_i64; 6];
    for (slot, argument) in raw.iter_mut().zip(arguments) {
        *slot = match argument {
            Arg::Number(value) => *value,
            Arg::Text(text) => text.as_ptr() as i64,
            Arg::Reads(bytes) => bytes.as_ptr() as i64,
            Arg::Fills(bytes) => bytes.as_ptr() as i64,
        };
    }
    let [a, b, c, d, e, f] = raw;
    // SAFETY: every pointer is to memory borrowed for the whole call. The probes pass buffers of
    // the size the call works on, and no number that changes memory of this process by address
    // (munmap, mremap, brk, mprotect on memory in use).
    let result = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if result == -1 { Err(last()) } else { Ok(result) }
}

/// `errno`.
pub fn last() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// The errno of a library error.
pub fn errno(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

/// A text for the kernel.
///
/// # Panics
/// On a NUL byte inside; the probes have none.
pub fn c(text: &str) -> CString {
    CString::new(text).expect("no NUL byte in a probe's text")
}

/// Opens a path.
pub fn open(path: &str, flags: i32) -> Got<RawFd> {
    call!(libc::SYS_open, &c(path), flags | libc::O_CLOEXEC, 0o666).map(|fd| fd as RawFd)
}

/// Closes a descriptor.
pub fn close(fd: RawFd) {
    // An attacker does not care whether closing worked.
    let _ = call!(libc::SYS_close, fd);
}

/// A descriptor as an owned one.
pub fn own(fd: RawFd) -> OwnedFd {
    // SAFETY: the probes pass a descriptor they have just opened and keep no other copy of.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Reads up to `length` bytes of a file.
pub fn read(path: &str, length: usize) -> Got<Vec<u8>> {
    let fd = open(path, libc::O_RDONLY)?;
    let mut bytes = vec![0; length];
    let got = call!(libc::SYS_read, fd, bytes.as_mut_slice(), length as u64);
    close(fd);
    bytes.truncate(got? as usize);
    Ok(bytes)
}

/// Opens a file for writing and writes to it.
pub fn write(path: &str, bytes: &[u8]) -> Got<i64> {
    let fd = open(path, libc::O_WRONLY)?;
    let got = call!(libc::SYS_write, fd, bytes, bytes.len() as u64);
    close(fd);
    got
}

/// A pipe: the reading end, the writing end.
pub fn pipe() -> Got<(RawFd, RawFd)> {
    let mut ends = [0_u8; 8];
    call!(libc::SYS_pipe2, ends.as_mut_slice(), libc::O_CLOEXEC)?;
    let end = |at: usize| i32::from_ne_bytes([ends[at], ends[at + 1], ends[at + 2], ends[at + 3]]);
    Ok((end(0), end(4)))
}

/// How a child ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// It got an answer.
    Answer(Got<String>),
    /// A signal ended it.
    Signal(i32),
    /// It exited without an answer.
    Exit(i32),
}

/// Does something that may end the process, in a child.
pub fn in_child(body: impl FnOnce() -> Got<String>) -> Ended {
    let Ok((reader, writer)) = pipe() else { return Ended::Exit(-1) };
    // SAFETY: the probe has one thread here, so the child has a whole copy of its state.
    match unsafe { libc::fork() } {
        -1 => Ended::Answer(Err(last())),
        0 => {
            let line = match body() {
                Ok(text) => format!("+{text}"),
                Err(Errno(errno)) => format!("-{errno}"),
            };
            let _ = call!(libc::SYS_write, writer, line.as_bytes(), line.len() as u64);
            // SAFETY: leaves without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
        child => {
            close(writer);
            let answer = read_all(reader);
            close(reader);
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } == -1
                && last() == Errno(libc::EINTR)
            {}
            match answer.split_at_checked(1) {
                Some(("+", text)) => Ended::Answer(Ok(text.to_owned())),
                Some(("-", errno)) => Ended::Answer(Err(Errno(errno.parse().unwrap_or(0)))),
                _ if libc::WIFSIGNALED(status) => Ended::Signal(libc::WTERMSIG(status)),
                _ => Ended::Exit(libc::WEXITSTATUS(status)),
            }
        }
    }
}

fn read_all(fd: RawFd) -> String {
    let mut text = Vec::new();
    let mut bytes = [0; 4096];
    while let Ok(length @ 1..) = call!(libc::SYS_read, fd, bytes.as_mut_slice(), 4096) {
        text.extend_from_slice(&bytes[..length as usize]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            libc::EPERM => "EPERM",
            libc::ENOENT => "ENOENT",
            libc::ESRCH => "ESRCH",
            libc::EINTR => "EINTR",
            libc::EIO => "EIO",
            libc::ENXIO => "ENXIO",
            libc::E2BIG => "E2BIG",
            libc::ENOEXEC => "ENOEXEC",
            libc::EBADF => "EBADF",
            libc::ECHILD => "ECHILD",
            libc::EAGAIN => "EAGAIN",
            libc::ENOMEM => "ENOMEM",
            libc::EACCES => "EACCES",
            libc::EFAULT => "EFAULT",
            libc::ENOTBLK => "ENOTBLK",
            libc::EBUSY => "EBUSY",
            libc::EEXIST => "EEXIST",
            libc::EXDEV => "EXDEV",
            libc::ENODEV => "ENODEV",
            libc::ENOTDIR => "ENOTDIR",
            libc::EISDIR => "EISDIR",
            libc::EINVAL => "EINVAL",
            libc::ENFILE => "ENFILE",
            libc::EMFILE => "EMFILE",
            libc::ENOTTY => "ENOTTY",
            libc::ETXTBSY => "ETXTBSY",
            libc::EFBIG => "EFBIG",
            libc::ENOSPC => "ENOSPC",
            libc::ESPIPE => "ESPIPE",
            libc::EROFS => "EROFS",
            libc::EMLINK => "EMLINK",
            libc::EPIPE => "EPIPE",
            libc::ERANGE => "ERANGE",
            libc::ENAMETOOLONG => "ENAMETOOLONG",
            libc::ENOSYS => "ENOSYS",
            libc::ENOTEMPTY => "ENOTEMPTY",
            libc::ELOOP => "ELOOP",
            libc::ENODATA => "ENODATA",
            libc::EOVERFLOW => "EOVERFLOW",
            libc::EUSERS => "EUSERS",
            libc::EADDRINUSE => "EADDRINUSE",
            libc::EADDRNOTAVAIL => "EADDRNOTAVAIL",
            libc::ENETUNREACH => "ENETUNREACH",
            libc::ECONNREFUSED => "ECONNREFUSED",
            libc::EOPNOTSUPP => "EOPNOTSUPP",
            libc::EAFNOSUPPORT => "EAFNOSUPPORT",
            libc::EPROTONOSUPPORT => "EPROTONOSUPPORT",
            libc::ESOCKTNOSUPPORT => "ESOCKTNOSUPPORT",
            libc::EALREADY => "EALREADY",
            libc::ESTALE => "ESTALE",
            libc::EDQUOT => "EDQUOT",
            libc::ENOKEY => "ENOKEY",
            number => return write!(f, "errno {number}"),
        })
    }
}

/// The name of a signal.
pub fn signal_name(signal: i32) -> String {
    match signal {
        libc::SIGSYS => "SIGSYS".to_owned(),
        libc::SIGSEGV => "SIGSEGV".to_owned(),
        libc::SIGKILL => "SIGKILL".to_owned(),
        libc::SIGILL => "SIGILL".to_owned(),
        libc::SIGTRAP => "SIGTRAP".to_owned(),
        other => format!("signal {other}"),
    }
}
