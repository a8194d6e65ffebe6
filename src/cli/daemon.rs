//! The daemon `hangar run` talks to: the one that runs, or one for this run only.

use super::client::Client;
use super::error::{CliError, While};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long a daemon may take to listen.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a daemon may take to end its sessions.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// What is kept of a daemon's standard error.
const STDERR_BYTES_MAX: usize = 16 << 10;

/// A daemon that lives as long as this run.
#[derive(Debug)]
pub struct Ephemeral {
    child: Child,
    stderr: JoinHandle<String>,
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
                false => Err(started.failure(format!("the daemon ended with {status}")).await),
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
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--ephemeral")
            .arg("--state-dir")
            .arg(state_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .while_doing(what)?;
        let pipe = child.stderr.take().ok_or_else(|| CliError::new(what()))?;
        let stderr = tokio::spawn(last_words(pipe));
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
            Ok(Ok(status)) => Err(self.failure(format!("the daemon ended with {status}")).await),
        }
    }

    /// Leaves the daemon to others that use it; it ends when the last session has.
    pub fn leave(mut self) {
        drop(self.child.stdin.take());
    }

    async fn failure(self, what: String) -> CliError {
        // A descendant that keeps the pipe open must not keep us.
        let said = match timeout(Duration::from_secs(1), self.stderr).await {
            Ok(Ok(said)) => said,
            _ => String::new(),
        };
        match said.trim() {
            "" => CliError::new(what),
            said => CliError::caused(what, said.to_owned()),
        }
    }
}

/// Reads a daemon's standard error to its end and keeps the last of it. With `HANGAR_LOG` set the
/// user wants to see what the daemon logs while it runs.
async fn last_words(mut pipe: ChildStderr) -> String {
    let show = std::env::var_os("HANGAR_LOG").is_some();
    let mut kept = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut piece).await {
        if show {
            let _unread = io::stderr().write_all(&piece[..count]);
        }
        kept.extend_from_slice(&piece[..count]);
        kept.drain(..kept.len().saturating_sub(STDERR_BYTES_MAX));
    }
    String::from_utf8_lossy(&kept).into_owned()
}
