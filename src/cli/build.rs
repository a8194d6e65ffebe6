//! From a project directory to a version: upload, build, and the log while it runs.

use super::client::{Body, Client};
use super::error::{CliError, While};
use super::progress::Progress;
use super::project::{Contents, Project};
use super::terminal::{LogFilter, printable};
use super::wire::{Build, Imported};
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::io::{self, Write};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// The most that is written to the socket at once.
const PIECE_BYTES: usize = 256 << 10;

/// What becomes of the files that are there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// They go away.
    Replaced,
    /// They stay, but for those the project has too.
    Kept,
}

/// Uploads a project into the source of an environment, below a directory of it or at its root.
///
/// # Errors
/// When the project cannot be read or the server does not take it; the source stays as it was.
pub async fn import(
    client: &Client,
    environment: &str,
    project: Project,
    below: Option<String>,
    existing: Existing,
) -> Result<(Contents, Imported), CliError> {
    let progress = Progress::new("sent");
    let (sender, receiver) = mpsc::channel::<io::Result<Frame<Bytes>>>(4);
    let walk = tokio::task::spawn_blocking(move || {
        let body = BodyWriter { sender: sender.clone(), progress };
        let out = io::BufWriter::with_capacity(PIECE_BYTES, body);
        let written = project.write_archive(out, below.as_deref());
        if written.is_err() {
            // Breaks the upload off, so that what was sent so far is not taken for the project.
            let _stopped = sender.blocking_send(Err(io::ErrorKind::Other.into()));
        }
        written
    });
    let body: Body = BodyExt::boxed(StreamBody::new(ReceiverStream::new(receiver)));
    let replace = u8::from(existing == Existing::Replaced);
    let path = format!("/v1/environments/{environment}/import?replace={replace}");
    let uploaded = client.upload::<Imported>(&path, "application/x-tar", body).await;
    let walked = walk.await.while_doing(|| "reading the project failed")?;
    match (uploaded, walked) {
        // The server refused and stopped reading; that the walk failed is a consequence.
        (Err(refused), _) if refused.code().is_some() => Err(refused),
        (_, Err(unreadable)) => Err(unreadable),
        (Err(broken), Ok(_)) => Err(broken),
        (Ok(imported), Ok(contents)) => Ok((contents, imported)),
    }
}

/// Starts a build and follows it; with `when` the server may find that nothing changed.
///
/// # Errors
/// When the build fails, with its reason and the end of its log.
pub async fn build(
    client: &Client,
    environment: &str,
    when: When,
    variables: &[(String, String)],
    log: &mut Log,
) -> Result<Outcome, CliError> {
    let body = request(when, variables);
    let started: Build =
        client.post(&format!("/v1/environments/{environment}/build"), &body).await?;
    if started.status == "ready" {
        return Ok(Outcome::Unchanged(started.version));
    }
    follow(client, environment, started.version, log).await?;
    Ok(Outcome::Built(started.version))
}

/// The body that asks for a build.
#[must_use]
pub fn request(when: When, variables: &[(String, String)]) -> Value {
    let variables: Map<_, _> =
        variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({ "if_changed": when == When::Changed, "variables": variables })
}

/// When a build is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// In any case.
    Always,
    /// Where the active version was made of something else.
    Changed,
}

/// What came of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// This version was made.
    Built(u32),
    /// This version is what a build would make.
    Unchanged(u32),
}

impl Outcome {
    /// The version that is there now.
    #[must_use]
    pub fn version(self) -> u32 {
        match self {
            Self::Built(version) | Self::Unchanged(version) => version,
        }
    }
}

/// Follows a build that was started to its end.
///
/// # Errors
/// As for [`build`].
pub async fn follow(
    client: &Client,
    environment: &str,
    version: u32,
    log: &mut Log,
) -> Result<(), CliError> {
    follow_log(client, environment, version, log).await?;
    let ended: Build =
        client.get(&format!("/v1/environments/{environment}/builds/{version}")).await?;
    match ended.status.as_str() {
        "ready" => Ok(()),
        _ => {
            let reason = ended.error.filter(|reason| !reason.is_empty());
            let reason = reason.map_or("the server gives no reason".to_owned(), |r| printable(&r));
            Err(CliError::caused(format!("version {version} was not built"), reason)
                .hint(log.tail()))
        }
    }
}

/// Reads a build's log from its start until it is complete.
///
/// # Errors
/// Those of the request.
pub async fn follow_log(
    client: &Client,
    environment: &str,
    version: u32,
    log: &mut Log,
) -> Result<(), CliError> {
    let mut offset = 0u64;
    loop {
        let path = format!(
            "/v1/hangar/environments/{environment}/builds/{version}/log?offset={offset}&wait=1"
        );
        let response = client.stream(&path).await?;
        let complete = response
            .headers()
            .get("hangar-log-state")
            .is_some_and(|state| state.as_bytes() == b"complete");
        let mut body = response.into_body();
        let mut received = 0u64;
        while let Some(frame) = body.frame().await {
            if let Ok(bytes) = frame.while_doing(|| "the build's log was cut off")?.into_data() {
                received += bytes.len() as u64;
                log.take(&bytes);
            }
        }
        offset += received;
        if complete && received == 0 {
            return Ok(());
        }
    }
}

/// Where a build's log goes, and its last lines.
#[derive(Debug)]
pub struct Log {
    show: Show,
    filter: LogFilter,
    last: VecDeque<u8>,
}

/// Whether a log is shown as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// On standard error.
    Stderr,
    /// On standard output.
    Stdout,
    /// Only its end, and only when the build fails.
    Nowhere,
}

/// What is kept of a log for the report of a failure.
const TAIL_BYTES: usize = 4 << 10;

impl Log {
    /// A log that nothing was written to yet.
    #[must_use]
    pub fn new(show: Show) -> Self {
        Self { show, filter: LogFilter::default(), last: VecDeque::new() }
    }

    fn take(&mut self, piece: &[u8]) {
        let passed = self.filter.pass(piece);
        // Nobody reads it any more: the build goes on all the same.
        let _closed = match self.show {
            Show::Stderr => io::stderr().write_all(&passed),
            Show::Stdout => io::stdout().write_all(&passed),
            Show::Nowhere => Ok(()),
        };
        self.last.extend(&passed);
        self.last.drain(..self.last.len().saturating_sub(TAIL_BYTES));
    }

    /// What to tell beside the reason of a failure: the end of a log that was not shown.
    fn tail(&self) -> String {
        if self.show != Show::Nowhere {
            return "the log above says what failed".to_owned();
        }
        let bytes: Vec<u8> = self.last.iter().copied().collect();
        format!("the log ends with\n{}", String::from_utf8_lossy(&bytes).trim_end())
    }
}

/// The writing end of a request's body.
struct BodyWriter {
    sender: mpsc::Sender<io::Result<Frame<Bytes>>>,
    progress: Progress,
}

impl Write for BodyWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let frame = Frame::data(Bytes::copy_from_slice(bytes));
        match self.sender.blocking_send(Ok(frame)) {
            Ok(()) => {
                self.progress.add(bytes.len() as u64);
                Ok(bytes.len())
            }
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
