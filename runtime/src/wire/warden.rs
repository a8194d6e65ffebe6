//! What the API asks of the warden, and what the warden tells it.

use crate::error::{Cause, SetupError};
use crate::ids::{CommandId, DependencyKey, EnvironmentId, SessionId, VersionNumber};
use crate::plan::Plan;
use crate::proof::ProofRecord;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Chosen by the API; the reply repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestId(pub u64);

/// A job of the worker, named by the API; unused so far on this connection. When the connection
/// ends, its jobs are cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobId(pub u64);

/// One datagram from the API to the warden.
#[derive(Debug, Serialize, Deserialize)]
pub struct Call {
    /// Repeated in the reply.
    pub id: RequestId,
    /// What is asked.
    pub request: Request,
}

/// What the API can ask. No member is a path.
#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    /// First on every connection, and answered first. A warden of another build answers it and
    /// refuses everything else. What happened while no API was connected is told after it.
    Hello {
        /// [`BUILD_ID`] of the caller.
        build: String,
    },
    /// Starts a session's isolation; makes its directories where they are missing.
    Launch(Box<Plan>),
    /// Starts a command in a running session. One descriptor is sent along: standard input.
    /// Without a descriptor, standard input is `/dev/null`.
    Exec(Box<Exec>),
    /// Sends a signal to the process group of a command's first process.
    Signal {
        /// The session.
        session: SessionId,
        /// The command.
        command: CommandId,
        /// The number, 1 to 31. SIGKILL goes through the command's cgroup and misses nobody. A
        /// command that ends after SIGKILL, SIGTERM, SIGINT, SIGHUP or SIGQUIT ends as
        /// [`EndCause::Cancelled`].
        signal: i32,
    },
    /// The descriptors of a command again, for an API that was started anew. The command can have
    /// ended and the session can have stopped; the descriptors are those of [`Answer::Started`].
    Attach {
        /// The session.
        session: SessionId,
        /// The command.
        command: CommandId,
    },
    /// Ends a session's isolation; working directory and home stay. Answered when no process,
    /// mount or cgroup is left, after the events that tell so.
    Stop {
        /// The session.
        session: SessionId,
    },
    /// Runs the worker. [`Job::Import`] sends one descriptor along: the uploaded bytes;
    /// [`Job::Compare`] as well: the file to be written.
    StartJob {
        /// Names the job in the event that ends it.
        job: JobId,
        /// What is to be done, on which of the warden's directories.
        work: Job,
        /// For the worker, not read by the warden; 64 KiB at most.
        options: Vec<u8>,
    },
    /// Kills a job's worker; the job ends with [`JobEnd::Cancelled`].
    CancelJob {
        /// The job.
        job: JobId,
    },
    /// Writes the record that makes a frozen version usable, durably; last of all steps.
    WriteRecord {
        /// The environment.
        environment: EnvironmentId,
        /// The version, already frozen.
        version: VersionNumber,
        /// Served back by [`Request::ReadRecord`], not read by the warden; 64 KiB at most.
        record: Vec<u8>,
    },
    /// The record of a version; [`RefusalCode::NotFound`] when the version never finished.
    ReadRecord {
        /// The environment.
        environment: EnvironmentId,
        /// The version.
        version: VersionNumber,
    },
    /// A detached, read-only view of a session's working directory, owned by the API's uid.
    ViewWorkspace {
        /// The session; it need not be running.
        session: SessionId,
    },
    /// The sessions that run now and their commands.
    Sessions,
    /// The proof record of a running session.
    Proof {
        /// The session.
        session: SessionId,
    },
    /// Ends every session and then the warden.
    Shutdown,
}

/// A command to be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// The session, running.
    pub session: SessionId,
    /// Chosen by the API, unused so far in this session, earlier isolations of it included.
    pub command: CommandId,
    /// What is run.
    pub program: Program,
    /// The whole environment of the command, `NAME=VALUE`.
    pub environment: Vec<Vec<u8>>,
    /// An absolute directory inside the session, resolved there.
    pub directory: Vec<u8>,
    /// Wall time after which the command is killed and ends as [`EndCause::Timeout`].
    pub timeout_ms: Option<u64>,
    /// How much of the output is kept.
    pub output: OutputLimit,
}

/// What a command runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Program {
    /// A program of the session. The first argument names it; without a slash it is looked up in
    /// the `PATH` of [`Exec::environment`].
    Arguments(Vec<Vec<u8>>),
    /// Copies a tree as the session's user: regular files, directories and symlinks as they are.
    /// It needs no program of the toolchain.
    CopyTree {
        /// An absolute directory inside the session.
        from: Vec<u8>,
        /// An absolute directory inside the session; made when it is missing.
        to: Vec<u8>,
        /// Names of directory entries that are left out, at every depth.
        skip: Vec<Vec<u8>>,
    },
}

/// How much output of a command is kept: the first bytes and the last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputLimit {
    /// Bytes kept from the start.
    pub head_bytes_max: u64,
    /// Bytes kept from the end once the head is full.
    pub tail_bytes_max: u64,
}

impl Default for OutputLimit {
    fn default() -> Self {
        Self { head_bytes_max: 256 << 20, tail_bytes_max: 16 << 20 }
    }
}

/// A job of the worker. Inside the worker's root the directories have fixed names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Job {
    /// `/out`, writable: `DIR/api/sources/<environment>.import`, made by the API beforehand.
    /// Files written there belong to the API's uid.
    Import {
        /// The environment.
        environment: EnvironmentId,
    },
    /// `/in`, read-only: the staging tree of a build, whose session is stopped.
    /// `/store`, writable: the versions of the environment, to link unchanged files from.
    /// The warden makes `/store/<version>.tmp` and renames it to `/store/<version>` when the
    /// worker succeeded. Files belong to the store uid.
    Freeze {
        /// The environment.
        environment: EnvironmentId,
        /// The version that comes to be.
        version: VersionNumber,
        /// The build's session, not running.
        session: SessionId,
    },
    /// As `Freeze`, into `/store/dependencies-<key>`; the build's session can be running, but no
    /// command of it.
    FreezeDependencies {
        /// The environment.
        environment: EnvironmentId,
        /// Names the tree.
        key: DependencyKey,
        /// The build's session.
        session: SessionId,
    },
    /// `/in`, read-only: a version with its manifest.
    Verify {
        /// The environment.
        environment: EnvironmentId,
        /// The version.
        version: VersionNumber,
    },
    /// `/in/from` and `/in/to`, read-only: two versions with their manifests. The descriptor sent
    /// along is a file, to which the worker writes the differences.
    Compare {
        /// The environment.
        environment: EnvironmentId,
        /// The version before.
        from: VersionNumber,
        /// The version after.
        to: VersionNumber,
    },
    /// `/in`, read-only: all versions of an environment and what is kept beside them.
    Measure {
        /// The environment.
        environment: EnvironmentId,
    },
    /// Removes a session's directories and gives its block back. `/out` is the session's parent.
    RemoveSession {
        /// The session, not running.
        session: SessionId,
    },
    /// Removes what was kept under a key, which no session may be using.
    RemoveDependencies {
        /// The environment.
        environment: EnvironmentId,
        /// Names the tree.
        key: DependencyKey,
    },
    /// Removes one version, finished or not, that no session reads.
    RemoveVersion {
        /// The environment.
        environment: EnvironmentId,
        /// The version.
        version: VersionNumber,
    },
    /// Removes all versions of an environment, of which no session reads any.
    RemoveEnvironment {
        /// The environment.
        environment: EnvironmentId,
    },
}

/// One datagram from the warden to the API.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// The answer to a call.
    Reply {
        /// As in the call.
        id: RequestId,
        /// What came of it.
        result: Result<Answer, Refusal>,
    },
    /// Something happened.
    Event(Event),
}

/// What a request answers when it is carried out.
#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Done; there is nothing to tell.
    Done,
    /// To [`Request::Hello`].
    Hello {
        /// [`BUILD_ID`] of the warden.
        build: String,
    },
    /// To [`Request::Launch`]: the session runs and its proof was checked.
    Launched(Box<ProofRecord>),
    /// To [`Request::Exec`] and [`Request::Attach`]. Two descriptors come along: the output record,
    /// readable, and a non-blocking eventfd that is written whenever the record grew. The command
    /// ends by [`Event::CommandEnded`].
    Started,
    /// To [`Request::ReadRecord`].
    Record(Vec<u8>),
    /// To [`Request::ViewWorkspace`]. One descriptor comes along: the root of the view.
    View,
    /// To [`Request::Sessions`]. Descriptors of commands come by [`Request::Attach`].
    Sessions(Vec<RunningSession>),
    /// To [`Request::Proof`].
    Proof(Box<ProofRecord>),
}

/// A session that runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunningSession {
    /// The session.
    pub session: SessionId,
    /// Its commands that have not ended.
    pub commands: Vec<CommandId>,
    /// Its commands that ended in this isolation, the last [`ENDED_MAX`] of them at most: an API that
    /// crashed can have lost the events.
    pub ended: Vec<(CommandId, CommandEnd)>,
}

/// How many ended commands of a session [`Request::Sessions`] tells.
pub const ENDED_MAX: usize = 256;

/// Why a request was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// The whole chain of causes, for the log; it can name paths of the host.
    pub message: String,
}

impl Refusal {
    /// A refusal with its reason.
    pub fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// A name that could not be resolved.
    #[must_use]
    pub fn not_found(error: SetupError) -> Self {
        match error.cause {
            Cause::Errno(Errno::NOENT) => Self::new(RefusalCode::NotFound, error.to_string()),
            _ => error.into(),
        }
    }
}

impl From<SetupError> for Refusal {
    fn from(error: SetupError) -> Self {
        let code = match error.cause {
            Cause::Mismatch { .. } => RefusalCode::Unproven,
            Cause::Errno(Errno::NOSYS | Errno::OPNOTSUPP) => RefusalCode::Unsupported,
            Cause::Errno(Errno::EXIST) => RefusalCode::Exists,
            Cause::Errno(_) | Cause::Other(_) => RefusalCode::Failed,
        };
        Self { code, message: error.to_string() }
    }
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The request makes no sense as it stands.
    Invalid,
    /// There is no such session, command, version or job.
    NotFound,
    /// It is there or runs already.
    Exists,
    /// Something else uses it now.
    Busy,
    /// The kernel or the host lacks what the plan demands.
    Unsupported,
    /// A barrier did not hold or could not be proven; the session was killed.
    Unproven,
    /// A system call failed.
    Failed,
    /// The caller is of another build.
    OtherBuild,
}

/// What the warden tells without being asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Event {
    /// A command and all its processes are gone; its output record is complete.
    CommandEnded {
        /// The session.
        session: SessionId,
        /// The command.
        command: CommandId,
        /// How it ended.
        end: CommandEnd,
    },
    /// A session's isolation is gone: no process, mount or cgroup is left.
    SessionEnded {
        /// The session.
        session: SessionId,
        /// Why.
        reason: SessionEnd,
    },
    /// A worker told how far it is; not read by the warden.
    JobProgress {
        /// The job.
        job: JobId,
        /// What the worker wrote.
        progress: Vec<u8>,
    },
    /// A worker is gone.
    JobEnded {
        /// The job.
        job: JobId,
        /// How.
        end: JobEnd,
    },
    /// The egress proxy refused to dial.
    EgressRefused {
        /// The session.
        session: SessionId,
        /// `host:port` as the session asked for it, 300 bytes at most.
        target: String,
        /// One sentence.
        reason: String,
    },
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandEnd {
    /// What the first process of the command ended with.
    pub status: ExitStatus,
    /// Why it ended.
    pub cause: EndCause,
    /// The command ran into the limit on processes at least once.
    pub pids_limit_hit: bool,
}

/// The wait status of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// Exited with this code.
    Code(u8),
    /// Killed by this signal.
    Signal(i32),
    /// It never ran: the program could not be executed. The error number says why.
    NotExecuted(i32),
}

/// Why a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EndCause {
    /// By itself, or by a signal the session sent.
    Own,
    /// The API asked for it.
    Cancelled,
    /// [`Exec::timeout_ms`] was over.
    Timeout,
    /// The session's memory was used up and the kernel killed a process of the command.
    OutOfMemory,
    /// The session's isolation ended.
    SessionEnded,
}

/// Why a session's isolation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionEnd {
    /// The API asked for it.
    Stopped,
    /// init died.
    InitDied,
    /// The warden ends.
    Shutdown,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobEnd {
    /// The worker's answer, not read by the warden.
    Done(Vec<u8>),
    /// The worker refused; its answer, not read by the warden.
    Refused(Vec<u8>),
    /// The worker died or could not be started.
    Died(String),
    /// By [`Request::CancelJob`].
    Cancelled,
}

/// Tells builds apart: version and the compiler's hash of the sources that speak this protocol.
pub const BUILD_ID: &str = env!("HANGAR_BUILD_ID");
