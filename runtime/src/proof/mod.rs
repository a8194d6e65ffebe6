//! The proof record: what a session is, as init reports it and as the warden sees it from outside.

mod check;
mod observe;

pub use check::check;
pub use observe::{NAMESPACES, observe, observe_self, own_namespaces};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Facts of a session's init after the last step of the launch; its commands inherit them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// Inode numbers of the namespaces, by the names of `/proc/<pid>/ns`.
    pub namespaces: BTreeMap<String, u64>,
    /// Lines of `uid_map` as seen inside.
    pub uid_map: Vec<IdMapLine>,
    /// Lines of `gid_map` as seen inside.
    pub gid_map: Vec<IdMapLine>,
    /// The mount table.
    pub mounts: Vec<MountLine>,
    /// The capability sets of init.
    pub capabilities: CapabilitySets,
    /// `no_new_privs` is set.
    pub no_new_privs: bool,
    /// The securebits of init.
    pub securebits: u32,
    /// `Seccomp` of `/proc/<pid>/status`: 2 is a filter.
    pub seccomp_mode: u32,
    /// `Seccomp_filters` of `/proc/<pid>/status`.
    pub seccomp_filters: u32,
    /// Landlock.
    pub landlock: LandlockFacts,
    /// The cgroup paths as init sees them, by controller list (empty for v2).
    pub cgroups: BTreeMap<String, String>,
    /// Soft and hard resource limits, by the names of `/proc/<pid>/limits`; `None` is unlimited.
    pub rlimits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    /// Real, effective, saved and filesystem uid of init, inside.
    pub uids: [u32; 4],
    /// The same for gids.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// One line of `uid_map` or `gid_map`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMapLine {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// One line of `mountinfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountLine {
    /// Mount id.
    pub id: u64,
    /// Id of the parent mount.
    pub parent: u64,
    /// Which part of the filesystem is mounted.
    pub root: String,
    /// Where, inside the session.
    pub target: String,
    /// Options of the mount, such as `ro,nosuid,nodev`.
    pub options: String,
    /// Optional fields, such as `master:1`; empty for a private mount.
    pub propagation: String,
    /// Type of the filesystem.
    pub filesystem: String,
    /// Options of the filesystem.
    pub super_options: String,
}

/// Capability sets as bit masks, as in `/proc/<pid>/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapabilitySets {
    /// `CapInh`.
    pub inheritable: u64,
    /// `CapPrm`.
    pub permitted: u64,
    /// `CapEff`.
    pub effective: u64,
    /// `CapBnd`.
    pub bounding: u64,
    /// `CapAmb`.
    pub ambient: u64,
}

/// What Landlock enforces on the session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LandlockFacts {
    /// ABI of the kernel.
    pub abi: u32,
    /// Rights that are handled, by name; each was required of the kernel, none best-effort.
    pub handled: Vec<String>,
    /// Scopes that are enforced, by name.
    pub scopes: Vec<String>,
    /// What this kernel's ABI lacks, and the barrier that holds it instead.
    pub absent: Vec<String>,
    /// The rules: a path and the access it gives.
    pub rules: Vec<(String, String)>,
    /// The kernel took the whole ruleset.
    pub fully_enforced: bool,
}
