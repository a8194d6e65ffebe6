//! What every part of the API process works with.

use crate::api::auth::Tokens;
use crate::config::Config;
use crate::environments::build::log::GrowingLogs;
use crate::environments::build::stop::RunningBuilds;
use crate::environments::git::GitImports;
use crate::environments::locks::SourceLocks;
use crate::environments::runtimes::Runtimes;
use crate::environments::source::Sources;
use crate::environments::tags::Tags;
use crate::environments::toolchain::Toolchain;
use crate::lookups::Lookups;
use crate::observe::audit::Audit;
use crate::rates::Rates;
use crate::sessions::isolation::Isolations;
use crate::sessions::live::LiveSessions;
use crate::store::Store;
use crate::tasks::engine::Tasks;
use crate::warden_client::WardenClient;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// The parts of the process. There is one, shared by all requests.
#[derive(Debug)]
pub struct App {
    /// The operator's configuration.
    pub config: Config,
    /// Where the API's own files are.
    pub files: ApiFiles,
    /// What survives a restart.
    pub store: Store,
    /// The way to the warden.
    pub warden: WardenClient,
    /// The sessions that run.
    pub isolations: Arc<Isolations>,
    /// The editable files of environments.
    pub sources: Sources,
    /// Tags of the files in them.
    pub tags: Tags,
    /// Who may change a source now.
    pub locks: SourceLocks,
    /// The sessions that requests use for themselves.
    pub live_sessions: LiveSessions,
    /// The repositories that are fetched.
    pub git_imports: GitImports,
    /// The builds that run.
    pub builds: RunningBuilds,
    /// The logs of builds that run.
    pub logs: GrowingLogs,
    /// When the last request was.
    pub activity: Activity,
    /// What the host offers to builds and sessions.
    pub toolchain: Toolchain,
    /// What registries said about packages.
    pub lookups: Lookups,
    /// What builds can be made with.
    pub runtimes: Runtimes,
    /// Who may ask over the network.
    pub tokens: Tokens,
    /// Who asked for what, and who was refused.
    pub audit: Audit,
    /// How much the scopes have asked for lately.
    pub rates: Rates,
    /// Held while a session is counted and added.
    pub admission: tokio::sync::Mutex<()>,
    /// The id of the host's present boot.
    pub boot: String,
    /// How many builds run at once.
    pub build_slots: Arc<Semaphore>,
    /// The tasks that run.
    pub tasks: Tasks,
}

/// When clients asked for something.
#[derive(Debug, Default)]
pub struct Activity {
    state: Mutex<(usize, Option<Instant>)>,
}

impl Activity {
    /// A request begins; it ends when the answer is dropped.
    pub fn begin(app: &Arc<App>) -> Request {
        app.activity.change(1);
        Request { app: Arc::clone(app) }
    }

    /// A request runs, or one ended less than this ago.
    #[must_use]
    pub fn within(&self, time: Duration) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 > 0 || state.1.is_some_and(|last| last.elapsed() < time)
    }

    fn change(&self, by: isize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (state.0.saturating_add_signed(by), Some(Instant::now()));
    }
}

/// A request that runs.
#[derive(Debug)]
pub struct Request {
    app: Arc<App>,
}

impl Drop for Request {
    fn drop(&mut self) {
        self.app.activity.change(-1);
    }
}

/// The API's own directory.
#[derive(Debug, Clone)]
pub struct ApiFiles {
    /// `DIR/api`, or where it is bound to.
    pub root: PathBuf,
}

impl ApiFiles {
    /// The database.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.root.join("db.sqlite")
    }

    /// One directory for each environment.
    #[must_use]
    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    /// Uploads on their way to the worker.
    #[must_use]
    pub fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    /// Uploads that are kept, one file for each.
    #[must_use]
    pub fn kept_uploads(&self) -> PathBuf {
        self.uploads().join("kept")
    }

    /// Who asked for what; full files are beside it, with a number.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit.jsonl")
    }

    /// The directory of an environment's build logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }
}

/// The id of the host's present boot; another one each time nobody can tell.
#[must_use]
pub fn boot_id() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    read.map_or_else(|_| random_hex(), |id| id.trim().to_owned())
}

/// The time as the protocol writes it in objects: milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// The time as the protocol writes it in builds: seconds since 1970.
#[must_use]
pub fn now_s() -> i64 {
    now_ms() / 1000
}

/// 32 hexadecimal digits nobody can guess, for ids.
///
/// # Panics
/// When the kernel gives no random bytes, which it does from early boot on.
#[must_use]
pub fn random_hex() -> String {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random bytes");
    hex(&bytes)
}

/// Bytes as lower-case hexadecimal digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// Runs blocking work on the bounded pool of the runtime.
///
/// # Panics
/// When the work panics.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime shuts down and drops this future too.
        Err(_) => std::future::pending().await,
    }
}
