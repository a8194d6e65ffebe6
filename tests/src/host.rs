//! The host as it is seen from outside of every session: what must not change.

use std::collections::BTreeSet;
use std::fs;

/// What a test compares before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The mount table of this process.
    pub mounts: BTreeSet<String>,
    /// The host's name.
    pub name: String,
    /// Kernel settings an attack would like to change.
    pub settings: Vec<(String, String)>,
}

const SETTINGS: [&str; 5] = [
    "kernel/core_pattern",
    "kernel/hostname",
    "kernel/modprobe",
    "fs/suid_dumpable",
    "vm/overcommit_memory",
];

impl Host {
    /// Looks at the host.
    ///
    /// # Panics
    /// When `/proc` cannot be read.
    #[must_use]
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let mounts = read("/proc/self/mountinfo")
            .lines()
            .map(|line| line.split(' ').skip(2).collect::<Vec<_>>().join(" "))
            .collect();
        Self {
            mounts,
            name: read("/proc/sys/kernel/hostname"),
            settings: SETTINGS
                .iter()
                .map(|name| ((*name).to_owned(), read(&format!("/proc/sys/{name}"))))
                .collect(),
        }
    }
}
