//! What a test asks for and what it gets back, as JSON on the command line and on stdout.

use hangar_runtime::proof::ProofRecord;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One experiment: sessions launched by one warden's code, and commands in them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Spec {
    /// An empty directory on a filesystem that takes id maps.
    pub directory: PathBuf,
    /// Names of steps that are left out.
    #[serde(default)]
    pub without: Vec<String>,
    /// The field of the proof record that init lies about.
    #[serde(default)]
    pub lie: Option<String>,
    /// The block of the first session, the next one for the next; tests that run side by side
    /// take different ones.
    #[serde(default)]
    pub first_block: Option<u16>,
    /// A directory the launcher holds open as careless programs do: any program it starts gets it.
    #[serde(default)]
    pub inherited: Option<PathBuf>,
    /// Pretends to the launcher that the kernel has this Landlock ABI.
    #[serde(default)]
    pub landlock_abi: Option<u32>,
    /// The sessions, launched in this order.
    pub sessions: Vec<Session>,
    /// The commands, started in this order.
    pub commands: Vec<Command>,
}

/// One session.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Session {
    /// A tree that is mounted at `/env/probe`.
    #[serde(default)]
    pub environment: Option<PathBuf>,
    /// The tree is the staging tree of a build: writable.
    #[serde(default)]
    pub staging: bool,
    /// `none`, `loopback` or `egress`; loopback where nothing is said.
    #[serde(default)]
    pub network: Option<String>,
    /// Fewer processes than the default.
    #[serde(default)]
    pub pids_max: Option<u32>,
    /// Less memory than the default.
    #[serde(default)]
    pub memory_bytes_max: Option<u64>,
}

/// One command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Command {
    /// Index of the session.
    pub session: usize,
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// Working directory, `/workspace` where nothing is said.
    #[serde(default)]
    pub directory: Option<String>,
    /// Goes on in the background: the next command starts once this one has printed a line.
    #[serde(default)]
    pub background: bool,
    /// Goes on in the background, and the sessions are taken down only after its end.
    #[serde(default)]
    pub awaited: bool,
}

/// What came of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Why a session was not launched; then there is nothing else.
    pub error: Option<String>,
    /// The proof record of each session.
    pub proofs: Vec<ProofRecord>,
    /// The host pid of each session's init.
    pub inits: Vec<i32>,
    /// The first host id of each session's block.
    pub blocks: Vec<u32>,
    /// What each command did.
    pub commands: Vec<CommandOutcome>,
    /// Mounts, processes and cgroups left after the end, in words; empty when all is well.
    pub left: Vec<String>,
}

/// What a command did.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// `code N`, `signal N`, `not-executed ERRNO`, or `killed` for one in the background that
    /// was not awaited.
    pub end: String,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}
