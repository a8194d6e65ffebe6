//! Keyrings, seccomp and the version of Landlock.

use crate::mount::last_errno;
use rustix::io::Errno;

/// The serial number of a keyring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyringId(pub i32);

/// Gives the process a new, empty session keyring. Keys of the old one are no longer possessed.
///
/// # Errors
/// `ENOSYS` where the kernel has no keys; then there is nothing to leave either.
pub fn join_new_session_keyring() -> Result<KeyringId, Errno> {
    // SAFETY: a null name asks for an anonymous keyring; no memory is read.
    let id = unsafe {
        libc::syscall(libc::SYS_keyctl, libc::KEYCTL_JOIN_SESSION_KEYRING, std::ptr::null::<u8>())
    };
    if id < 0 { Err(last_errno()) } else { Ok(KeyringId(i32::try_from(id).unwrap_or(i32::MAX))) }
}

/// One instruction of a classic BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct SockFilter {
    /// Operation.
    pub code: u16,
    /// Jump if true.
    pub jt: u8,
    /// Jump if false.
    pub jf: u8,
    /// Operand.
    pub k: u32,
}

/// Adds a seccomp filter to this thread, on top of those it has. It can never be removed.
///
/// # Errors
/// `EINVAL` for a program the kernel does not accept; `EACCES` without `no_new_privs`.
pub fn install_seccomp_filter(program: &[SockFilter]) -> Result<(), Errno> {
    const { assert!(size_of::<SockFilter>() == size_of::<libc::sock_filter>()) };
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let fprog = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut().cast() };
    // SAFETY: SockFilter has the layout of sock_filter (same fields, repr(C), size asserted). The
    // kernel reads `length` instructions, all of which the slice holds, and writes none.
    let result = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0u32, &raw const fprog)
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The Landlock ABI of this kernel; 0 when Landlock is not there or not enabled.
#[must_use]
pub fn landlock_abi() -> u32 {
    const LANDLOCK_CREATE_RULESET_VERSION: u32 = 1;
    // SAFETY: with this flag the attribute must be null and the size 0; no memory is read.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<u8>(),
            0usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    };
    u32::try_from(abi).unwrap_or(0)
}

/// Removes a capability, by number, from this thread's bounding set.
///
/// # Errors
/// `EINVAL` for a number this kernel does not know, `EPERM` without CAP_SETPCAP.
pub fn drop_from_bounding_set(capability: u32) -> Result<(), Errno> {
    // SAFETY: the call takes integers only.
    let result =
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(capability), 0, 0, 0) };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}
