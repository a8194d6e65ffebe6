//! The source of an environment, one file at a time.

use super::auth::Scope;
use super::extract::{InSource, Named};
use super::media::Download;
use super::{body, conditions};
use crate::app::{App, blocking, now_ms, random_hex};
use crate::environments::find;
use crate::environments::source::Entry;
use crate::environments::source_path::{SourcePath, encode_into};
use crate::failure::{Code, Failure, Tried};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use hangar_runtime::ids::EnvironmentId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// An entry as it is listed. There can be very many, so they are written without a detour.
#[derive(Serialize)]
struct Listed<'a> {
    path: std::borrow::Cow<'a, str>,
    dir: bool,
    bytes: u64,
    mtime: i64,
    /// Relative to the environment: a URL that works as it stands, whatever bytes the name has.
    href: String,
}

#[derive(Serialize)]
struct Tree<'a> {
    entries: Vec<Listed<'a>>,
    count: usize,
    bytes: u64,
}

impl<'a> Listed<'a> {
    fn of(entry: &'a Entry) -> Self {
        let mut href = String::with_capacity(6 + entry.path.as_os_str().len());
        href.push_str("files/");
        encode_into(&mut href, entry.path.as_os_str().as_bytes());
        Self {
            path: entry.path.to_string_lossy(),
            dir: entry.directory,
            bytes: entry.bytes,
            mtime: entry.modified_s,
            href,
        }
    }
}

pub(super) async fn tree(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Response, Failure> {
    find(&app, &scope, &id).await?;
    let sources = app.sources.clone();
    let text = blocking(move || {
        let entries = sources.open(&id)?.entries()?;
        let tree = Tree {
            entries: entries.iter().map(Listed::of).collect(),
            count: entries.iter().filter(|entry| !entry.directory).count(),
            bytes: entries.iter().map(|entry| entry.bytes).sum(),
        };
        serde_json::to_vec(&tree).tried("listing the source")
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], text.await?).into_response())
}

pub(super) async fn read(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    InSource { id, path }: InSource,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    find(&app, &scope, &id).await?;
    let (owned, wanted) = (Arc::clone(&app), path.clone());
    let read = blocking(move || {
        let (file, bytes) = owned.sources.open(&id)?.read(&wanted)?;
        let etag = owned.tags.of(&id, &file).tried("reading the file")?;
        Ok::<_, Failure>((file, bytes, etag))
    });
    let (file, bytes, etag) = read.await?;
    Download { file, bytes, path: path.shown(), etag: Some(etag) }.answer(&method, &headers)
}

pub(super) async fn write(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    InSource { id, path }: InSource,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    find(&app, &scope, &id).await?;
    let upload = Upload { path: app.files.uploads().join(random_hex()) };
    let file = File::options().read(true).write(true).create_new(true).open(&upload.path);
    let file = Arc::new(file.tried("storing the upload")?);
    let bytes = body::spool(body, &file, app.config.uploads.file_bytes_max).await?;
    let _changing = app.locks.changing(&id).await;
    unchanged(&app, &id, &path, &headers).await?;
    let (owned, at, wanted) = (Arc::clone(&app), id.clone(), path.clone());
    let etag = blocking(move || {
        file.sync_data().tried("storing the upload")?;
        let etag = owned.tags.of(&at, &file).tried("storing the upload")?;
        owned.sources.open(&at)?.put(&upload.path, &wanted)?;
        Ok::<_, Failure>(etag)
    });
    let etag = etag.await?;
    changed(&app, &id).await?;
    let told = Json(json!({ "path": path.shown(), "bytes": bytes, "dir": false }));
    Ok(([(header::ETAG, etag)], told).into_response())
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
    InSource { id, path }: InSource,
    headers: HeaderMap,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let _changing = app.locks.changing(&id).await;
    unchanged(&app, &id, &path, &headers).await?;
    let (sources, at, wanted) = (app.sources.clone(), id.clone(), path.clone());
    blocking(move || sources.open(&at)?.remove(&wanted)).await?;
    changed(&app, &id).await?;
    Ok(Json(json!({ "path": path.shown(), "deleted": true })))
}

/// Lets a change pass whose conditions hold for what is at the path now.
async fn unchanged(
    app: &Arc<App>,
    id: &EnvironmentId,
    path: &SourcePath,
    headers: &HeaderMap,
) -> Result<(), Failure> {
    if !conditions::any(headers) {
        return Ok(());
    }
    let (owned, at, wanted) = (Arc::clone(app), id.clone(), path.clone());
    let current = blocking(move || match owned.sources.open(&at)?.read(&wanted) {
        Ok((file, _)) => owned.tags.of(&at, &file).tried("reading the file").map(Some),
        Err(failure) if failure.code == Code::FileNotFound => Ok(None),
        Err(failure) => Err(failure),
    });
    conditions::check(headers, current.await?.as_deref())
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
    Ok(Json(json!({ "path": path.shown(), "dir": true })))
}

async fn changed(app: &App, id: &EnvironmentId) -> Result<(), Failure> {
    app.store.set_source_size(id, None, now_ms()).await.tried("storing the change")
}
