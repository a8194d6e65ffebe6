//! Bodies of requests, bounded in size and time.

use super::pace::is_late;
use crate::app::{App, blocking};
use crate::failure::{Code, Failure};
use axum::body::Body;
use bytes::Bytes;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// How long a client may send nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// How much is gathered before it is written.
const WRITE_BYTES: usize = 1 << 20;

/// Reads a JSON body; an empty one is an empty object.
///
/// # Errors
/// [`Code::InvalidInput`] when it does not parse, [`Code::FileTooLarge`] when it is too long.
pub async fn json<T: DeserializeOwned>(app: &App, body: Body) -> Result<T, Failure> {
    json_within(body, app.config.uploads.json_bytes_max).await
}

/// The same for a body that can be longer than others.
///
/// # Errors
/// As for [`json`].
pub async fn json_within<T: DeserializeOwned>(body: Body, max: usize) -> Result<T, Failure> {
    let mut bytes = Vec::new();
    let mut stream = body.into_data_stream();
    while let Some(chunk) = next(&mut stream).await? {
        if bytes.len() + chunk.len() > max {
            return Err(too_large(max as u64));
        }
        bytes.extend_from_slice(&chunk);
    }
    let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
    serde_json::from_slice(text).map_err(|error| {
        Failure::new(Code::InvalidInput, format!("the body cannot be read: {error}"))
            .with_param("body")
    })
}

/// Writes a body to a file, and says how long it was.
///
/// # Errors
/// [`Code::FileTooLarge`] as soon as it is longer than `bytes_max`.
pub async fn spool(body: Body, file: &Arc<File>, bytes_max: u64) -> Result<u64, Failure> {
    let mut stream = body.into_data_stream();
    let mut spool = Spool::new(file, bytes_max);
    while let Some(chunk) = next(&mut stream).await? {
        spool.add(&chunk).await?;
    }
    spool.finish().await
}

/// A file that is written as its bytes arrive; only the last megabyte is in memory.
#[derive(Debug)]
pub struct Spool {
    file: Arc<File>,
    bytes_max: u64,
    total: u64,
    gathered: Vec<u8>,
}

impl Spool {
    /// Nothing has arrived yet.
    #[must_use]
    pub fn new(file: &Arc<File>, bytes_max: u64) -> Self {
        Self { file: Arc::clone(file), bytes_max, total: 0, gathered: Vec::new() }
    }

    /// Takes what arrived.
    ///
    /// # Errors
    /// [`Code::FileTooLarge`] when it is too much.
    pub async fn add(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        self.total += chunk.len() as u64;
        if self.total > self.bytes_max {
            return Err(too_large(self.bytes_max));
        }
        self.gathered.extend_from_slice(chunk);
        if self.gathered.len() >= WRITE_BYTES {
            write(&self.file, std::mem::take(&mut self.gathered)).await?;
        }
        Ok(())
    }

    /// Writes the rest, and says how long the file is.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn finish(self) -> Result<u64, Failure> {
        write(&self.file, self.gathered).await?;
        Ok(self.total)
    }
}

async fn write(file: &Arc<File>, bytes: Vec<u8>) -> Result<(), Failure> {
    let file = Arc::clone(file);
    let written = blocking(move || (&*file).write_all(&bytes)).await;
    written.map_err(|error| Failure::not_stored("the upload", &error))
}

/// The next part of a body as it arrives.
///
/// # Errors
/// When it is cut off, or nothing comes for too long.
pub async fn next(stream: &mut axum::body::BodyDataStream) -> Result<Option<Bytes>, Failure> {
    match tokio::time::timeout(SILENCE, stream.next()).await {
        Err(_) => Err(Failure::new(Code::RequestTimeout, "the body did not arrive in time")),
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(error))) if is_late(&error) => {
            Err(Failure::new(Code::RequestTimeout, "the body did not arrive in time"))
        }
        Ok(Some(Err(error))) => {
            Err(Failure::new(Code::InvalidInput, "the body did not arrive whole").with_cause(error))
        }
    }
}

fn too_large(bytes_max: u64) -> Failure {
    Failure::new(Code::FileTooLarge, "the upload is larger than this server takes")
        .with_detail(serde_json::json!({ "max_bytes": bytes_max }))
}
