//! Builds and versions of an environment.

use super::auth::Scope;
use super::extract::{FromPath, Named, QueryOf};
use super::{body, environments, log_events, objects};
use crate::app::{App, blocking, now_ms};
use crate::environments::build::{self, Order, Started, When, log as build_log};
use crate::environments::{find, not_ready, sbom};
use crate::failure::{Code, Failure, Tried};
use crate::sessions::service::{failure, parse_network};
use crate::store::{VersionRow, VersionStatus};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use hangar_rootfs::job::VerifyOutcome;
use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use hangar_runtime::plan::Network;
use hangar_runtime::wire::warden::{Job, JobEnd};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How much of a log stands in the record of a build: its end.
const RECORD_LOG_BYTES: u64 = 200_000;
/// How much of a log one request gets.
const LOG_BYTES: u64 = 4 << 20;
/// How long a request waits for a log to grow.
const LOG_WAIT: Duration = Duration::from_secs(20);

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    network: Option<String>,
    if_changed: bool,
    variables: BTreeMap<String, String>,
}

pub(super) async fn start(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let environment = find(&app, &scope, &id).await?;
    let asked: Asked = body::json(&app, body).await?;
    let network = match asked.network.as_deref() {
        None => Network::Egress,
        Some(name) => parse_network(name).ok_or_else(|| {
            Failure::new(Code::InvalidInput, "there is no such network").with_param("network")
        })?,
    };
    let order = Order { network, variables: asked.variables };
    let when = if asked.if_changed { When::Changed } else { When::Always };
    let (version, status) = match build::start(&app, environment, order, when).await? {
        Started::Building(number) => (number, VersionStatus::Building),
        Started::Unchanged(row) => (row.number, row.status),
    };
    Ok(Json(json!({
        "id": id,
        "object": "environment.build",
        "version": version,
        "status": status.as_str(),
    })))
}

/// Ends a build that runs. The answer is its record, once it has ended.
pub(super) async fn cancel(
    state: State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Json<Value>, Failure> {
    version(&state, &scope, &place).await?;
    build::cancel(&state, &place.0, place.1).await;
    show(state, Scope(scope), Named(place)).await
}

pub(super) async fn version(app: &App, scope: &str, place: &Place) -> Result<VersionRow, Failure> {
    find(app, scope, &place.0).await?;
    let row = app.store.version(&place.0, place.1).await.tried("reading the version")?;
    row.ok_or_else(|| Failure::new(Code::VersionNotFound, "there is no such version"))
}

pub(super) type Place = (EnvironmentId, VersionNumber);

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Json<Value>, Failure> {
    let row = version(&app, &scope, &place).await?;
    let path = build_log::path(&app.files.logs(), &place.0, place.1);
    let log = blocking(move || tail(&path)).await.tried("reading the log")?;
    Ok(Json(objects::build(&row, &String::from_utf8_lossy(&log))))
}

fn tail(path: &PathBuf) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(mut file) => {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(RECORD_LOG_BYTES)))?;
            file.take(RECORD_LOG_BYTES).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(bytes)
}

pub(super) async fn versions(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    let environment = find(&app, &scope, &id).await?;
    let rows = app.store.versions(&id).await.tried("reading the versions")?;
    let shown: Vec<_> = rows.iter().map(objects::version).collect();
    Ok(Json(json!({ "id": id, "active": environment.active, "versions": shown })))
}

pub(super) async fn activate(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, number)): Named<(EnvironmentId, String)>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let (_, number) = Place::from_path((id.to_string(), number)).map_err(|_| not_ready(None))?;
    let activated = app.store.activate(&id, number, now_ms()).await;
    if !activated.tried("activating the version")? {
        let row = app.store.version(&id, number).await.tried("reading the version")?;
        return Err(not_ready(row.as_ref()));
    }
    environments::object(&app, &find(&app, &scope, &id).await?).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LogQuery {
    offset: u64,
    wait: Option<String>,
}

/// The log from an offset, as it was written, or as events that follow it. With `wait=1` an answer that would be empty waits
/// until the log grows or is complete.
pub(super) async fn log(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
    QueryOf(query): QueryOf<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let mut row = version(&app, &scope, &place).await?;
    if log_events::are_wanted(&headers) {
        let offset = log_events::resumed_at(&headers).unwrap_or(query.offset);
        return Ok(log_events::stream(app, place, offset).into_response());
    }
    let wait = query.wait.as_deref() == Some("1");
    if wait && row.status == VersionStatus::Building {
        wait_for_growth(&app, &place, query.offset).await;
        row = version(&app, &scope, &place).await?;
    }
    // Asked for before the bytes are read: a log that is complete does not grow any more.
    let growing = row.status == VersionStatus::Building;
    let path = build_log::path(&app.files.logs(), &place.0, place.1);
    let bytes = blocking(move || from_offset(&path, query.offset, LOG_BYTES))
        .await
        .tried("reading the log")?;
    let more = growing || bytes.len() as u64 == LOG_BYTES;
    let state = if more { "growing" } else { "complete" };
    let headers = [("content-type", "application/octet-stream"), ("hangar-log-state", state)];
    Ok((headers, bytes).into_response())
}

pub(super) async fn wait_for_growth(app: &App, place: &Place, offset: u64) {
    let deadline = tokio::time::Instant::now() + LOG_WAIT;
    // Between its row and its log a build waits for a slot.
    let mut length = loop {
        match app.logs.length(&place.0, place.1) {
            Some(length) => break length,
            None if tokio::time::Instant::now() >= deadline => return,
            None => tokio::time::sleep(Duration::from_millis(20)).await,
        }
        let row = app.store.version(&place.0, place.1).await;
        if !row.is_ok_and(|row| row.is_some_and(|row| row.status == VersionStatus::Building)) {
            return;
        }
    };
    // An error means that the log is complete.
    let grown = length.wait_for(|length| *length > offset);
    let _ = tokio::time::timeout_at(deadline, grown).await;
}

/// At most `bytes_max` bytes of a log; none where it does not reach so far yet.
pub(super) fn from_offset(path: &PathBuf, offset: u64, bytes_max: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Ok(mut file) => {
            file.seek(SeekFrom::Start(offset))?;
            file.take(bytes_max).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(bytes)
}

/// A version that is finished.
pub(super) async fn ready(app: &App, scope: &str, place: &Place) -> Result<VersionRow, Failure> {
    let row = version(app, scope, place).await?;
    if row.status == VersionStatus::Ready { Ok(row) } else { Err(not_ready(Some(&row))) }
}

/// The bill of materials of a finished version, as CycloneDX.
pub(super) async fn sbom(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Response, Failure> {
    let environment = find(&app, &scope, &place.0).await?;
    let row = ready(&app, &scope, &place).await?;
    let headers = [("content-type", sbom::CONTENT_TYPE)];
    Ok((headers, sbom::cyclonedx(&environment, &row).to_string()).into_response())
}

/// Reads every file of a version again and compares it with what was frozen.
pub(super) async fn verify(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(place): Named<Place>,
) -> Result<Json<Value>, Failure> {
    let row = ready(&app, &scope, &place).await?;
    let what = "verifying the version";
    let work = Job::Verify { environment: place.0.clone(), version: place.1 };
    let end = app.warden.job(work, b"{}".to_vec(), &[]).await;
    match end.map_err(|error| failure(what, &error))? {
        JobEnd::Done(bytes) => {
            let outcome: VerifyOutcome = serde_json::from_slice(&bytes).tried(what)?;
            let same = row.root_digest.as_deref() == Some(outcome.root_digest.as_str());
            Ok(Json(json!({
                "id": place.0,
                "object": "hangar.verification",
                "version": place.1,
                "intact": same && outcome.mismatch_count == 0,
                "root_digest": outcome.root_digest,
                "recorded_root_digest": row.root_digest,
                "files": outcome.files,
                "bytes": outcome.bytes,
                "mismatch_count": outcome.mismatch_count,
                "mismatches": outcome.mismatches,
            })))
        }
        other => Err(Failure::internal(what, describe(&other))),
    }
}

pub(super) fn describe(end: &JobEnd) -> String {
    match end {
        JobEnd::Refused(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        other => format!("{other:?}"),
    }
}
