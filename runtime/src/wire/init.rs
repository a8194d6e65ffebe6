//! What the warden tells a session's init, and what init reports.

use crate::ids::CommandId;
use crate::plan::{Limits, Network};
use crate::proof::ProofRecord;
use crate::wire::warden::{ExitStatus, OutputLimit, Program};
use serde::{Deserialize, Serialize};

/// The descriptor of the control socket in init.
pub const CONTROL_FD: i32 = 3;

/// The warden to init.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// First and once: confine yourself. The descriptors are the mounts of [`Setup::mounts`].
    Setup(Box<Setup>),
    /// Start a command. Descriptors: the output record (read-write), an eventfd, the cgroup the
    /// command starts in (a directory of the v2 hierarchy), and standard input where
    /// [`Start::stdin`] says so.
    Start(Box<Start>),
    /// Signal the process group of a command's first process.
    Signal {
        /// The command.
        command: CommandId,
        /// The number.
        signal: i32,
    },
}

/// What init needs to know of the plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setup {
    /// The mounts, in the order they are attached; one descriptor each.
    pub mounts: Vec<Mount>,
    /// Symbolic links of the root: name and target, such as `bin` to `usr/bin`.
    pub links: Vec<(String, String)>,
    /// Decides whether loopback is brought up and a listener is made.
    pub network: Network,
    /// For the limits init sets itself: rlimits and the sizes of tmpfs.
    pub limits: Limits,
    /// The first id of hangar's range; init maps the owner of frozen trees into the session.
    pub range_base: u32,
    /// The Landlock ABI of this kernel; init refuses to go on where it finds another.
    pub landlock_abi: u32,
    /// The system call filters, compiled once by the warden.
    pub filters: Filters,
}

/// System call filters in the order they are installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filters {
    /// For init; every command inherits them.
    pub init: Vec<Vec<Instruction>>,
    /// For each command, on top of those of init.
    pub command: Vec<Vec<Instruction>>,
}

/// One instruction of classic BPF: code, jump if true, jump if false, operand.
pub type Instruction = (u16, u8, u8, u32);

/// A detached mount and where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Absolute, without `..`; the directory is made by init in its own tmpfs.
    pub target: String,
    /// Whether the mount is writable. Landlock and the proof follow it.
    pub access: Access,
}

/// What a session can do with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and execute.
    ReadOnly,
    /// Everything but devices.
    ReadWrite,
}

/// A command for init; the cgroup and the record come as descriptors.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// Names the command in reports.
    pub command: CommandId,
    /// What is run.
    pub program: Program,
    /// `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    /// An absolute directory.
    pub directory: Vec<u8>,
    /// How much of the output is kept.
    pub output: OutputLimit,
    /// Whether a fourth descriptor is standard input; otherwise it is `/dev/null`.
    pub stdin: bool,
}

/// init to the warden.
#[derive(Debug, Serialize, Deserialize)]
pub enum Report {
    /// Every step was done and read back. With [`Network::Egress`] a descriptor comes along: the
    /// listening socket.
    Ready(Box<ProofRecord>),
    /// A step failed; init exits.
    Failed {
        /// The step's name.
        step: String,
        /// The call, its arguments and the cause.
        cause: String,
    },
    /// A command's first process ended and all its output is in the record.
    Ended {
        /// The command.
        command: CommandId,
        /// Its status.
        status: ExitStatus,
    },
}
