//! `mount_setattr(2)`.

use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// What [`mount_setattr`] changes; the flags are those of `MOUNT_ATTR_*`.
#[derive(Debug, Default)]
pub struct MountAttributes<'fd> {
    /// Attributes to set, such as [`MountAttributes::RDONLY`].
    pub set: u64,
    /// Attributes to clear.
    pub clear: u64,
    /// Propagation, such as [`MountAttributes::PRIVATE`]; 0 leaves it.
    pub propagation: u64,
    /// Whose id map the mount applies; the mount must be detached and not idmapped yet.
    pub idmap: Option<BorrowedFd<'fd>>,
}

impl MountAttributes<'_> {
    /// Nothing can be written.
    pub const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;
    /// setuid bits and file capabilities have no effect.
    pub const NOSUID: u64 = libc::MOUNT_ATTR_NOSUID;
    /// Device nodes cannot be opened.
    pub const NODEV: u64 = libc::MOUNT_ATTR_NODEV;
    /// Nothing can be executed.
    pub const NOEXEC: u64 = libc::MOUNT_ATTR_NOEXEC;
    /// Propagation: no mount event goes in or out.
    pub const PRIVATE: u64 = libc::MS_PRIVATE;
}

/// Changes a mount and, with `recursive`, every mount below it, in one transaction.
///
/// # Errors
/// `ENOSYS` before Linux 5.12; `EINVAL` when the filesystem does not support id maps or the mount
/// is attached already.
pub fn mount_setattr(
    mount: impl AsFd,
    recursive: Recursion,
    attributes: &MountAttributes<'_>,
) -> Result<(), Errno> {
    let attr = libc::mount_attr {
        attr_set: attributes.set | attributes.idmap.map_or(0, |_| libc::MOUNT_ATTR_IDMAP),
        attr_clr: attributes.clear,
        propagation: attributes.propagation,
        userns_fd: attributes.idmap.map_or(0, |fd| u64::from(fd.as_raw_fd().unsigned_abs())),
    };
    let flags = libc::AT_EMPTY_PATH
        | match recursive {
            Recursion::This => 0,
            Recursion::Below => libc::AT_RECURSIVE,
        };
    // SAFETY: the path is a NUL-terminated constant; `attr` outlives the call and the size given
    // is its own, so the kernel reads no byte beyond it; the descriptors are borrowed and open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// How far [`mount_setattr`] reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recursion {
    /// The mount alone.
    This,
    /// The mount and every mount below it.
    Below,
}

pub(crate) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
