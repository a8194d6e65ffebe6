//! The daemon `hangar run` talks to: the one that runs, or one for this run only.

use super::client::Client;
use super::error::{CliError, While};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// How long a daemon may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon may take to end its sessions.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// What is kept of a daemon's standard error.
const STDERR_BYTES_MAX: u64 = 16 << 10;

/// A daemon that lives as long as this run.
#[derive(Debug)]
pub struct Ephemeral {
    child: Child,
    /// Its standard error: a file and no pipe, so that the daemon can say something also when
    /// this process is gone. With `HANGAR_LOG` set the user wants to see it at once.
    stderr: Option<File>,
}

/// Connects to the daemon on a state directory; as root, starts one where none runs.
///
/// # Errors
/// When there is none and none can be started, with what it said.
pub async fn connect(state_dir: &Path) -> Result<(Client, Option<Ephemeral>), CliError> {
    let client = Client::local(state_dir);
    let error = match client.probe().await {
        Ok(()) => return Ok((client, None)),
        Err(error) => error,
    };
    let nobody_listens =
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
    if !nobody_listens || !geteuid().is_root() {
        return Err(client.no_server(error));
    }
    let mut started = Ephemeral::start(state_dir)?;
    let deadline = Instant::now() + START_TIMEOUT;
    loop {
        if client.probe().await.is_ok() {
            break;
        }
        if let Some(status) = started.child.try_wait().while_doing(|| "waiting for the daemon")? {
            return match another(&client).await {
                true => Ok((client, None)),
                false => Err(started.failure(format!("the daemon ended with {status}"))),
            };
        }
        if Instant::now() > deadline {
            started.stop().await?;
            return Err(CliError::new("the daemon does not listen"));
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok((client, Some(started)))
}

/// Whether somebody else's daemon came up, which is why ours ended: both wanted the directory.
async fn another(client: &Client) -> bool {
    for _ in 0..100 {
        if client.probe().await.is_ok() {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
    false
}

impl Ephemeral {
    /// Starts the daemon in a process group of its own: an interrupt from the terminal is for
    /// this process, which still needs the daemon to clean up. The daemon's standard input ends
    /// when this process does, however that happens, and the daemon with it.
    fn start(state_dir: &Path) -> Result<Self, CliError> {
        let what = || "the daemon was not started";
        let program = std::env::current_exe().while_doing(what)?;
        let stderr = match std::env::var_os("HANGAR_LOG") {
            Some(_) => None,
            None => Some(anonymous_file().while_doing(what)?),
        };
        let child = Command::new(program)
            .arg("serve")
            .arg("--ephemeral")
            .arg("--state-dir")
            .arg(state_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(match &stderr {
                Some(file) => file.try_clone().while_doing(what)?.into(),
                None => Stdio::inherit(),
            })
            .process_group(0)
            .spawn()
            .while_doing(what)?;
        Ok(Self { child, stderr })
    }

    /// Ends the daemon and waits until all it started is gone.
    ///
    /// # Errors
    /// When it does not end, or ends with a failure.
    pub async fn stop(mut self) -> Result<(), CliError> {
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // Not reaped yet, so the number is still the daemon's.
            kill_process(pid, Signal::TERM)
                .map_err(io::Error::from)
                .while_doing(|| "the daemon cannot be ended")?;
        }
        match timeout(STOP_TIMEOUT, self.child.wait()).await {
            Err(_) => Err(CliError::new("the daemon does not end")),
            Ok(Err(error)) => Err(CliError::caused("waiting for the daemon failed", error)),
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(self.failure(format!("the daemon ended with {status}"))),
        }
    }

    /// Leaves the daemon to others that use it; it ends when the last session has.
    pub fn leave(mut self) {
        drop(self.child.stdin.take());
    }

    fn failure(&self, what: String) -> CliError {
        let said = self.stderr.as_ref().and_then(|file| last_words(file).ok()).unwrap_or_default();
        match said.trim() {
            "" => CliError::new(what),
            said => CliError::caused(what, said.to_owned()),
        }
    }
}

fn anonymous_file() -> io::Result<File> {
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    Ok(rustix::fs::memfd_create("hangar-serve-stderr", flags)?.into())
}

/// The end of what a daemon wrote to its standard error.
fn last_words(stderr: &File) -> io::Result<String> {
    let length = stderr.metadata()?.len();
    let start = length.saturating_sub(STDERR_BYTES_MAX);
    let mut bytes = vec![0; usize::try_from(length - start).unwrap_or(0)];
    stderr.read_exact_at(&mut bytes, start)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
