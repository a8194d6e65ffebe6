//! Bodies of requests, bounded in size and time.

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
    let max = app.config.uploads.json_bytes_max;
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
    let (mut total, mut gathered) = (0u64, Vec::new());
    while let Some(chunk) = next(&mut stream).await? {
        total += chunk.len() as u64;
        if total > bytes_max {
            return Err(too_large(bytes_max));
        }
        gathered.extend_from_slice(&chunk);
        if gathered.len() >= WRITE_BYTES {
            write(file, std::mem::take(&mut gathered)).await?;
        }
    }
    write(file, gathered).await?;
    Ok(total)
}

async fn write(file: &Arc<File>, bytes: Vec<u8>) -> Result<(), Failure> {
    let file = Arc::clone(file);
    let written = blocking(move || (&*file).write_all(&bytes)).await;
    written.map_err(|error| Failure::not_stored("the upload", &error))
}

async fn next(stream: &mut axum::body::BodyDataStream) -> Result<Option<Bytes>, Failure> {
    match tokio::time::timeout(SILENCE, stream.next()).await {
        Err(_) => Err(Failure::new(Code::RequestTimeout, "the body did not arrive in time")),
        Ok(None) => Ok(None),
        Ok(Some(Ok(chunk))) => Ok(Some(chunk)),
        Ok(Some(Err(error))) => {
            Err(Failure::new(Code::InvalidInput, "the body did not arrive whole").with_cause(error))
        }
    }
}

fn too_large(bytes_max: u64) -> Failure {
    Failure::new(Code::FileTooLarge, "the upload is larger than this server takes")
        .with_detail(serde_json::json!({ "max_bytes": bytes_max }))
}
