//! The files a session left in its working directory.

use super::auth::Scope;
use super::extract::Named;
use super::media::{self, Download};
use super::{objects, sessions};
use crate::app::App;
use crate::failure::{Code, Failure};
use crate::sessions::workspace;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use hangar_runtime::ids::SessionId;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    let session = sessions::find(&app, &scope, &id).await?;
    let view = workspace::view(&app, &id).await?;
    let found = workspace::list(view, app.config.session.artifacts_max).await?;
    let container = objects::container_id(&session);
    let files: Vec<_> = found
        .files
        .iter()
        .map(|file| {
            let path = String::from_utf8_lossy(&file.path);
            json!({
                "id": workspace::file_id(&file.path),
                "object": "file",
                "container_id": container,
                "path": path,
                "filename": path.rsplit('/').next(),
                "bytes": file.bytes,
                "modified_at": file.modified_s,
                "content_type": media::media_type(&path),
            })
        })
        .collect();
    Ok(Json(json!({ "files": files, "truncated": found.cut })))
}

pub(super) async fn content(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((container, file)): Named<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let none = || Failure::new(Code::FileNotFound, "there is no such file");
    let digits = container.strip_prefix("cntr_").ok_or_else(none)?;
    let id = SessionId::parse(&format!("hsess{digits}")).map_err(|_| none())?;
    sessions::find(&app, &scope, &id).await.map_err(|_| none())?;
    let path = workspace::path_of(&file).ok_or_else(none)?;
    let view = workspace::view(&app, &id).await?;
    let (file, bytes) = workspace::open(view, path.clone()).await?;
    let path = String::from_utf8_lossy(&path).into_owned();
    // A session can change the file at any time, so no tag of it would be strong.
    Download { file, bytes, path, etag: None }.answer(&method, &headers)
}
