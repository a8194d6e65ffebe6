//! What a session gets: the one source for the launch, the report and the tests.

use crate::ids::{DependencyKey, EnvironmentId, SessionId, Slug, VersionNumber};
use serde::{Deserialize, Serialize};

/// What a session is for; it decides the mounts at `/env/<slug>` and the Landlock rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Profile {
    /// Reads a frozen version.
    Strict,
    /// Fills the staging tree of a new version; otherwise exactly as confined as `Strict`.
    Build,
}

/// What lies at `/env/<slug>`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Environment {
    /// Nothing: `/env` is empty.
    None,
    /// A frozen version, read-only.
    Version {
        /// The environment.
        id: EnvironmentId,
        /// Its version; the warden refuses one without a record.
        version: VersionNumber,
        /// The name of the mount point.
        slug: Slug,
    },
    /// The writable staging tree of a build, with the source at [`SOURCE_DIR`], read-only.
    Staging {
        /// The environment.
        id: EnvironmentId,
        /// The name of the mount point.
        slug: Slug,
        /// Installed dependencies of an earlier build, read-only at [`DEPENDENCIES_DIR`].
        dependencies: Option<DependencyKey>,
    },
}

/// Where a build finds the environment's source, read-only.
pub const SOURCE_DIR: &str = "/run/hangar/source";
/// Where a build finds dependencies that an earlier build installed, read-only.
pub const DEPENDENCIES_DIR: &str = "/run/hangar/dependencies";
/// The session's working directory: writable and private.
pub const WORKSPACE_DIR: &str = "/workspace";
/// The session user's home: writable and private.
pub const HOME_DIR: &str = "/home/agent";
/// Where environments appear; a session sees one entry at most.
pub const ENVIRONMENTS_DIR: &str = "/env";
/// Where harness packs appear, read-only.
pub const PACKS_DIR: &str = "/opt/hangar/harness";
/// The TCP port of the egress proxy, on 127.0.0.1 of a session with [`Network::Egress`].
pub const EGRESS_PORT: u16 = 3128;

/// What a session can reach. It always has a network namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Not even loopback is up.
    None,
    /// Loopback only.
    Loopback,
    /// Loopback, and a proxy at 127.0.0.1:[`EGRESS_PORT`] whose dialling side is outside.
    Egress,
}

/// Limits of a session as a whole; every one is read back after it was set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Processes and threads, init not counted against the caller's expectation but included.
    pub pids_max: u32,
    /// Memory in bytes, tmpfs and page cache of the session included; swap is off.
    pub memory_bytes_max: u64,
    /// CPU time per second of wall time, in thousandths of one CPU.
    pub cpu_millis_max: u32,
    /// Open files of each process.
    pub open_files_max: u32,
    /// The largest file any process can write, in bytes.
    pub file_bytes_max: u64,
    /// Bytes of each of `/tmp`, `/run` and `/dev/shm`.
    pub tmpfs_bytes_max: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            pids_max: 1024,
            memory_bytes_max: 4 << 30,
            cpu_millis_max: 2000,
            open_files_max: 16_384,
            file_bytes_max: 16 << 30,
            tmpfs_bytes_max: 1 << 30,
        }
    }
}

/// Everything that decides what a session is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The session; its directories below the state directory have this name.
    pub session: SessionId,
    /// What the session is for.
    pub profile: Profile,
    /// What lies at `/env/<slug>`.
    pub environment: Environment,
    /// What the session can reach.
    pub network: Network,
    /// What the session can use up.
    pub limits: Limits,
}

impl Plan {
    /// Checks that the parts fit each other.
    ///
    /// # Errors
    /// A build without a staging tree, a session with one, or a limit no session can run under.
    pub fn check(&self) -> Result<(), &'static str> {
        match (self.profile, &self.environment) {
            (Profile::Build, Environment::Staging { .. })
            | (Profile::Strict, Environment::None | Environment::Version { .. }) => {}
            (Profile::Build, _) => return Err("a build needs a staging tree"),
            (Profile::Strict, Environment::Staging { .. }) => {
                return Err("only a build can write a staging tree");
            }
        }
        let limits = &self.limits;
        if limits.pids_max < 4 {
            return Err("pids_max is below 4");
        }
        if limits.memory_bytes_max < 16 << 20 {
            return Err("memory_bytes_max is below 16 MiB");
        }
        if limits.cpu_millis_max < 10 {
            return Err("cpu_millis_max is below 10");
        }
        if limits.open_files_max < 64 {
            return Err("open_files_max is below 64");
        }
        if limits.tmpfs_bytes_max < 1 << 20 {
            return Err("tmpfs_bytes_max is below 1 MiB");
        }
        Ok(())
    }
}
