//! Runs one command in a session: its output as it comes, and how it ended.

use super::client::Client;
use super::error::{CliError, While};
use super::exit;
use super::frames::{Decoder, Stream};
use super::output::Output;
use super::signals::Interrupts;
use super::terminal::{note, printable};
use super::wire::{Ended, Started};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// A command that was started.
#[derive(Debug)]
pub struct Command<'a> {
    client: &'a Client,
    path: String,
}

/// How a command and the watching of it ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Watched {
    /// How the command ended.
    pub ended: Ended,
    /// Why it was cancelled from here, as the exit status that says so.
    pub cancelled: Option<u8>,
}

/// Tries to read on after the connection broke; a server that is replaced is back by then.
const RECONNECTS_MAX: u32 = 60;
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

impl<'a> Command<'a> {
    /// Starts a command.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn start(
        client: &'a Client,
        session: &str,
        request: &Value,
    ) -> Result<Self, CliError> {
        let path = format!("/v1/hangar/sessions/{session}/exec");
        let started: Started = client.post(&path, request).await?;
        Ok(Self { client, path: format!("{path}/{}", started.id) })
    }

    /// Watches the command to its end, says what its exit status does not tell, and returns that.
    ///
    /// # Errors
    /// As for [`Command::watch`].
    pub async fn finish(
        &self,
        interrupts: &mut Interrupts,
        arguments: &[String],
    ) -> Result<u8, CliError> {
        let watched = self.watch(interrupts).await?;
        let program = arguments.first().map_or("the command", String::as_str);
        for remark in exit::remarks(&watched.ended, &printable(program)) {
            note(&remark);
        }
        Ok(watched.cancelled.unwrap_or_else(|| exit::status(&watched.ended)))
    }

    /// Passes the output on until the command has ended. The first signal cancels the command,
    /// and so does the end of whoever reads standard output; the second signal stops waiting.
    ///
    /// # Errors
    /// When the output cannot be read or written any more.
    pub async fn watch(&self, interrupts: &mut Interrupts) -> Result<Watched, CliError> {
        let output = Output::of_this_process()?;
        let unread = Arc::clone(&output.unread);
        let mut reader = Reader { client: self.client, path: &self.path, next_sequence: 0, output };
        // Never dropped before its end: a write that was begun must not be begun again.
        let mut reading = std::pin::pin!(reader.read());
        let mut cancelled = None;
        let mut signalled = false;
        loop {
            let reason = tokio::select! {
                ended = &mut reading => return Ok(Watched { ended: ended?, cancelled }),
                signal = interrupts.next() => {
                    if signalled {
                        return Err(CliError::interrupted(signal));
                    }
                    signalled = true;
                    exit::of_signal(signal)
                }
                () = unread.notified() => exit::of_signal(SIGPIPE),
            };
            cancelled.get_or_insert(reason);
            // Where it fails the command has ended, or the reader meets the same error.
            let _answer: Result<Value, _> =
                self.client.post(&format!("{}/cancel", self.path), &json!({})).await;
        }
    }
}

const SIGPIPE: i32 = 13;

/// Reads a command's output over as many connections as it takes.
struct Reader<'a> {
    client: &'a Client,
    path: &'a str,
    next_sequence: u64,
    output: Output,
}

impl Reader<'_> {
    async fn read(&mut self) -> Result<Ended, CliError> {
        let mut failures = 0;
        loop {
            match self.read_once().await {
                Ok(ended) => return Ok(ended),
                Err(Broken::For(error)) => return Err(error),
                Err(Broken::Now(error)) if failures == RECONNECTS_MAX => return Err(error),
                Err(Broken::Now(_)) => failures += 1,
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    async fn read_once(&mut self) -> Result<Ended, Broken> {
        let path = format!("{}/output?from={}", self.path, self.next_sequence);
        let response = self.client.stream(&path).await.map_err(|error| match error.code() {
            Some(_) => Broken::For(error),
            None => Broken::Now(error),
        })?;
        let mut body = response.into_body();
        let mut decoder = Decoder::default();
        while let Some(piece) = body.frame().await {
            let piece = piece.while_doing(|| "the output was cut off").map_err(Broken::Now)?;
            let Ok(bytes) = piece.into_data() else { continue };
            decoder.push(&bytes);
            while let Some(frame) = decoder.next_frame().map_err(Broken::For)? {
                if frame.stream == Stream::End {
                    return serde_json::from_slice(&frame.bytes)
                        .while_doing(|| "how the command ended is not told")
                        .map_err(Broken::For);
                }
                self.next_sequence = frame.sequence + 1;
                self.output.write(frame.stream, frame.bytes).await.map_err(Broken::For)?;
            }
        }
        Err(Broken::Now(CliError::new("the output ended before the command")))
    }
}

enum Broken {
    /// It makes no sense to try again.
    For(CliError),
    /// The connection broke.
    Now(CliError),
}
