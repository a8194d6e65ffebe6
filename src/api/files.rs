//! The source of an environment, one file at a time.

use super::auth::Scope;
use super::extract::Named;
use super::{body, media};
use crate::app::{App, blocking, now_ms, random_hex};
use crate::environments::find;
use crate::environments::source_path::SourcePath;
use crate::failure::{Failure, Tried};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use hangar_runtime::ids::EnvironmentId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

pub(super) async fn tree(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let sources = app.sources.clone();
    let entries = blocking(move || sources.open(&id)?.entries()).await?;
    let bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
    let count = entries.iter().filter(|entry| !entry.directory).count();
    let shown: Vec<_> = entries
        .iter()
        .map(|e| json!({ "path": e.path, "dir": e.directory, "bytes": e.bytes, "mtime": e.modified_s }))
        .collect();
    Ok(Json(json!({ "entries": shown, "count": count, "bytes": bytes })))
}

pub(super) async fn read(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, path)): Named<(EnvironmentId, String)>,
) -> Result<Response, Failure> {
    find(&app, &scope, &id).await?;
    let path = SourcePath::parse(&path)?;
    let (sources, wanted) = (app.sources.clone(), path.clone());
    let (file, bytes) = blocking(move || sources.open(&id)?.read(&wanted)).await?;
    Ok(media::file(file, bytes, &path.as_string()))
}

pub(super) async fn write(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, path)): Named<(EnvironmentId, String)>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let path = SourcePath::parse(&path)?;
    let upload = Upload { path: app.files.uploads().join(random_hex()) };
    let file = Arc::new(File::create_new(&upload.path).tried("storing the upload")?);
    let bytes = body::spool(body, &file, app.config.uploads.file_bytes_max).await?;
    let _changing = app.locks.changing(&id).await;
    let (sources, at, wanted) = (app.sources.clone(), id.clone(), path.clone());
    blocking(move || {
        file.sync_data().tried("storing the upload")?;
        sources.open(&at)?.put(&upload.path, &wanted)
    })
    .await?;
    changed(&app, &id).await?;
    Ok(Json(json!({ "path": path.as_string(), "bytes": bytes })))
}

/// A file on its way into a source; it goes away unless it was moved.
struct Upload {
    path: PathBuf,
}

impl Drop for Upload {
    fn drop(&mut self) {
        // After a move there is nothing of that name.
        let _ = std::fs::remove_file(&self.path);
    }
}

pub(super) async fn remove(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, path)): Named<(EnvironmentId, String)>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let path = SourcePath::parse(&path)?;
    let _changing = app.locks.changing(&id).await;
    let (sources, at, wanted) = (app.sources.clone(), id.clone(), path.clone());
    blocking(move || sources.open(&at)?.remove(&wanted)).await?;
    changed(&app, &id).await?;
    Ok(Json(json!({ "path": path.as_string(), "deleted": true })))
}

#[derive(Debug, Deserialize)]
struct NewDirectory {
    path: String,
}

pub(super) async fn make_directory(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let new: NewDirectory = body::json(&app, body).await?;
    let path = SourcePath::parse(new.path.strip_suffix('/').unwrap_or(&new.path))?;
    let _changing = app.locks.changing(&id).await;
    let (sources, at, wanted) = (app.sources.clone(), id.clone(), path.clone());
    blocking(move || sources.open(&at)?.make_directory(&wanted)).await?;
    changed(&app, &id).await?;
    Ok(Json(json!({ "path": path.as_string(), "dir": true })))
}

async fn changed(app: &App, id: &EnvironmentId) -> Result<(), Failure> {
    app.store.set_source_size(id, None, now_ms()).await.tried("storing the change")
}
