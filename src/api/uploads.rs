//! Files that clients send ahead of the tasks that read them.

use super::auth::Scope;
use super::body::Spool;
use super::extract::Named;
use super::media::{self, Download};
use super::multipart::{Form, Part};
use crate::app::App;
use crate::failure::{Code, Failure, Tried};
use crate::store::UploadRow;
use crate::uploads::{self, About, Incoming};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use serde_json::{Value, json};
use std::sync::Arc;

/// What a file is for where the form does not say.
const PURPOSE: &str = "user_data";
const PURPOSE_BYTES_MAX: usize = 64;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let mut form = Form::new(content_type, body)?;
    let (mut purpose, mut found) = (None, None);
    while let Some(part) = form.part().await? {
        match part.name.as_str() {
            "file" if found.is_some() => return Err(invalid("file", "the form has two files")),
            "file" => found = Some(receive(&app, &mut form, part).await?),
            "purpose" => purpose = Some(text(&mut form).await?),
            _ => {}
        }
    }
    let (incoming, mut about) = found.ok_or_else(|| invalid("file", "the form has no file"))?;
    about.purpose = purpose.unwrap_or_else(|| PURPOSE.to_owned());
    // To its end, also when the client goes away: a file is kept with its row or not at all.
    let kept = tokio::spawn(async move { incoming.keep(&app, &scope, about).await });
    Ok(Json(object(&kept.await.tried("storing the upload")??)))
}

/// Writes the file of a form to disk as it arrives.
async fn receive(app: &App, form: &mut Form, part: Part) -> Result<(Incoming, About), Failure> {
    let name = part.file_name.ok_or_else(|| invalid("file", "the file has no name"))?;
    let media_type = part.media_type.filter(|kind| media::is_media_type(kind));
    let media_type = media_type.unwrap_or_else(|| media::media_type(&name).to_owned());
    let incoming = Incoming::start(app).await?;
    let mut spool = Spool::new(&incoming.file, app.config.uploads.input_bytes_max);
    while let Some(chunk) = form.chunk().await? {
        spool.add(&chunk).await?;
    }
    let bytes = spool.finish().await?;
    Ok((incoming, About { name, media_type, purpose: String::new(), bytes }))
}

async fn text(form: &mut Form) -> Result<String, Failure> {
    let odd = || invalid("purpose", "the purpose is too long or no plain text");
    let mut bytes = Vec::new();
    while let Some(chunk) = form.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > PURPOSE_BYTES_MAX {
            return Err(odd());
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| odd())?;
    match text.chars().any(char::is_control) {
        true => Err(odd()),
        false => Ok(text),
    }
}

fn invalid(param: &str, why: &str) -> Failure {
    Failure::new(Code::InvalidInput, why).with_param(param)
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
) -> Result<Json<Value>, Failure> {
    let rows = app.store.uploads(Some(&scope)).await.tried("reading the uploads")?;
    let data: Vec<_> = rows.iter().map(object).collect();
    Ok(Json(json!({ "object": "list", "data": data, "has_more": false })))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(object(&uploads::find(&app, &scope, &id).await?)))
}

pub(super) async fn content(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (row, file) = uploads::open(&app, &scope, &id).await?;
    // What has this id never changes.
    let etag = Some(format!("\"{}\"", row.id));
    Download { file, bytes: row.bytes, path: row.name, etag }.answer(&method, &headers)
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    uploads::delete(&app, &scope, &id).await?;
    Ok(Json(json!({ "id": id, "object": "file", "deleted": true })))
}

fn object(row: &UploadRow) -> Value {
    json!({
        "id": row.id,
        "object": "file",
        "filename": row.name,
        "bytes": row.bytes,
        "created_at": row.created_ms / 1000,
        "content_type": row.media_type,
        "purpose": row.purpose,
    })
}
