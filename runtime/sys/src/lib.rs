//! System calls that neither rustix nor nix wraps, as safe functions.
//!
//! This crate holds all `unsafe` code that hangar ships. Every function states what the kernel
//! guarantees; none keeps state.

#![deny(missing_docs)]

mod mount;
mod network;
mod process;
mod security;
mod signals;

pub use mount::{MountAttributes, Recursion, mount_setattr};
pub use network::{bring_loopback_up, host_addresses};
pub use process::{
    CLONE_INTO_CGROUP, Clone, Forked, adopt_descriptor, become_ids, clone3, close_all_but,
    close_from, duplicate_to, execve, execveat, exit_now, is_single_threaded, set_effective_uid,
    unshare,
};
pub use security::{
    KeyringId, SockFilter, drop_from_bounding_set, install_seccomp_filter,
    join_new_session_keyring, landlock_abi,
};
pub use signals::{SignalFd, block_signals, reset_signals};
