//! Making processes and replacing them.

use crate::mount::last_errno;
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `CLONE_INTO_CGROUP`. The constant of the libc crate is 0 on this target.
pub const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// What [`clone3`] is asked for.
#[derive(Debug, Default)]
pub struct Clone<'fd> {
    /// `CLONE_NEW*` flags.
    pub namespaces: u64,
    /// A directory of the cgroup v2 hierarchy the child starts in.
    pub cgroup: Option<BorrowedFd<'fd>>,
}

/// The two returns of [`clone3`].
#[derive(Debug)]
pub enum Forked {
    /// In the parent.
    Parent {
        /// The child, as the parent's pid namespace numbers it.
        pid: i32,
        /// A descriptor of the child, close-on-exec.
        pidfd: OwnedFd,
    },
    /// In the child, a copy of the parent.
    Child,
}

/// Whether this process has one thread.
///
/// # Errors
/// When `/proc` is not there.
pub fn is_single_threaded() -> Result<bool, Errno> {
    // A directory has two links and one for each directory in it: one for each thread.
    Ok(rustix::fs::stat("/proc/self/task")?.st_nlink == 3)
}

/// Forks. The child shares nothing with the parent but open files and, unlike after `fork(2)`,
/// runs no handlers of the C library.
///
/// # Errors
/// `EDEADLK` from this function when the process has more than one thread: locks that another
/// thread holds would stay locked in the child. Otherwise what `clone3(2)` says.
pub fn clone3(clone: &Clone<'_>) -> Result<Forked, Errno> {
    if !is_single_threaded()? {
        return Err(Errno::DEADLK);
    }
    let mut pidfd: libc::c_int = -1;
    let args = libc::clone_args {
        flags: clone.namespaces
            | libc::CLONE_PIDFD as u64
            | clone.cgroup.map_or(0, |_| CLONE_INTO_CGROUP),
        pidfd: &raw mut pidfd as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: clone.cgroup.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    // SAFETY: without CLONE_VM and with no stack the child continues on a copy of this stack, as
    // after fork(2). The process has one thread (checked above), so no lock is held by a thread
    // that the child lacks. `pidfd` outlives the call; only the parent's copy is written.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) };
    match pid {
        -1 => Err(last_errno()),
        0 => Ok(Forked::Child),
        pid => {
            // SAFETY: the kernel stored a new descriptor there that nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid: i32::try_from(pid).expect("pids fit"), pidfd })
        }
    }
}

/// Leaves namespaces for new ones; the flags are `CLONE_NEW*`.
///
/// # Errors
/// `EINVAL` for a flag that is no namespace, or for a new user namespace in a process with threads.
pub fn unshare(namespaces: u64) -> Result<(), Errno> {
    const NAMESPACES: i32 = libc::CLONE_NEWNS
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP;
    let flags = i32::try_from(namespaces).map_err(|_| Errno::INVAL)?;
    if flags & !NAMESPACES != 0 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the call takes an integer. CLONE_FILES and CLONE_FS, which would change what the
    // descriptors and paths of other threads mean, are refused above.
    if unsafe { libc::unshare(flags) } == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Becomes another user and group for good and leaves all supplementary groups.
///
/// The C library's versions would signal other threads; there are none, and these do not.
///
/// # Errors
/// Without CAP_SETGID and CAP_SETUID, or for ids that are not mapped.
pub fn become_ids(uid: u32, gid: u32) -> Result<(), Errno> {
    // SAFETY: a size of 0 makes the kernel read no list; the others take integers only.
    let results = unsafe {
        [
            libc::syscall(libc::SYS_setgroups, 0usize, std::ptr::null::<libc::gid_t>()),
            libc::syscall(libc::SYS_setresgid, gid, gid, gid),
            libc::syscall(libc::SYS_setresuid, uid, uid, uid),
        ]
    };
    if results.iter().all(|&result| result == 0) { Ok(()) } else { Err(last_errno()) }
}

/// Changes the effective uid of this thread alone; real and saved uid stay, so it can go back.
///
/// # Errors
/// Without CAP_SETUID, or for an id that is neither the real nor the saved one.
pub fn set_effective_uid(uid: u32) -> Result<(), Errno> {
    // SAFETY: the call takes integers only; -1 leaves an id as it is.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, uid, u32::MAX) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Marks every descriptor from `first` on close-on-exec.
///
/// # Errors
/// `ENOSYS` before Linux 5.11.
pub fn close_from(first: u32) -> Result<(), Errno> {
    // SAFETY: close_range takes integers only and reads no memory of ours. With CLOEXEC every
    // descriptor stays open in this process, so no OwnedFd dangles.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Closes every descriptor but these, for a process that owns none of the others any more.
///
/// Meant for a fresh child of [`clone3`] that lives on before it execs: what it would hold open
/// of its parent's keeps others from seeing the end of their connections.
///
/// # Errors
/// `ENOSYS` before Linux 5.9.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut numbers: Vec<u32> =
        keep.iter().map(|fd| fd.as_raw_fd().unsigned_abs()).chain(0..=2).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let ends = numbers.iter().skip(1).map(|&number| number - 1).chain([u32::MAX]);
    for (first, last) in numbers.iter().map(|&number| number + 1).zip(ends) {
        if first > last {
            continue;
        }
        // SAFETY: the call takes integers. Owners of the closed descriptors exist in the copied
        // memory of a child that never returns to them: it execs or exits.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(last_errno());
        }
    }
    Ok(())
}

/// Makes descriptor number `number` a duplicate of `fd` that survives an exec.
///
/// Meant for a process that is about to exec: whatever had that number is closed.
///
/// # Errors
/// `EBADF` for a number beyond the limit of open files.
pub fn duplicate_to(fd: BorrowedFd<'_>, number: i32) -> Result<(), Errno> {
    // SAFETY: dup2 takes integers. The descriptor that had this number is closed; an owner of it
    // in this process would close the duplicate, which the caller rules out by exec'ing next.
    if unsafe { libc::dup2(fd.as_raw_fd(), number) } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// Takes ownership of a descriptor that the parent left at an agreed number.
///
/// # Errors
/// `EBADF` when it is not open.
pub fn adopt_descriptor(number: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: the borrow is only used to ask the kernel whether the number is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: the descriptor is open (checked above). It came across an exec at this number, so
    // no other owner of it exists in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Replaces this process by the program at `path`. Returns only on failure.
#[must_use]
pub fn execve(path: &CStr, arguments: &[CString], environment: &[CString]) -> Errno {
    let argv = pointers(arguments);
    let envp = pointers(environment);
    // SAFETY: all three are NUL-terminated and, being borrowed, live until the call returns or
    // the process image is gone.
    unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), envp.as_ptr()) };
    last_errno()
}

/// Replaces this process by the program that `file` is. Returns only on failure.
#[must_use]
pub fn execveat(file: BorrowedFd<'_>, arguments: &[CString], environment: &[CString]) -> Errno {
    let argv = pointers(arguments);
    let envp = pointers(environment);
    // SAFETY: as for execve; the path is a NUL-terminated constant and `file` is open.
    unsafe {
        libc::syscall(
            libc::SYS_execveat,
            file.as_raw_fd(),
            c"".as_ptr(),
            argv.as_ptr(),
            envp.as_ptr(),
            libc::AT_EMPTY_PATH,
        )
    };
    last_errno()
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

/// Ends this process at once: no destructor, no exit handler, no buffer of a parent is flushed.
pub fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes an integer and does not return.
    unsafe { libc::_exit(status) }
}
