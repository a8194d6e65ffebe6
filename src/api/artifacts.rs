//! The files a session left in its working directory.

use super::auth::Scope;
use super::extract::Named;
use super::media::{self, Download};
use super::{objects, sessions};
use crate::app::App;
use crate::failure::{Code, Failure};
use crate::sessions::{archive, workspace};
use crate::store::SessionRow;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use hangar_runtime::ids::SessionId;
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    let session = sessions::find(&app, &scope, &id).await?;
    Ok(Json(of(&app, &session).await?))
}

/// The files of a session, as they are listed.
pub(super) async fn of(app: &App, session: &SessionRow) -> Result<Value, Failure> {
    let view = workspace::view(app, &session.id).await?;
    let found = workspace::list(view, app.config.session.artifacts_max).await?;
    let container = objects::container_id(session);
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
    Ok(json!({ "files": files, "truncated": found.cut }))
}

pub(super) async fn content(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((container, file)): Named<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let (id, path) = named(&app, &scope, &container, &file).await?;
    let view = workspace::view(&app, &id).await?;
    let (file, bytes) = workspace::open(view, path.clone()).await?;
    let path = String::from_utf8_lossy(&path).into_owned();
    // A session can change the file at any time, so no tag of it would be strong.
    Download { file, bytes, path, etag: None }.answer(&method, &headers)
}

/// The session of a container and the path in a file's id.
async fn named(
    app: &App,
    scope: &str,
    container: &str,
    file: &str,
) -> Result<(SessionId, Vec<u8>), Failure> {
    let none = || Failure::new(Code::FileNotFound, "there is no such file");
    let digits = container.strip_prefix("cntr_").ok_or_else(none)?;
    let id = SessionId::parse(&format!("hsess{digits}")).map_err(|_| none())?;
    sessions::find(app, scope, &id).await.map_err(|_| none())?;
    Ok((id, workspace::path_of(file).ok_or_else(none)?))
}

/// Says of a file that is there that nothing renders it here.
pub(super) async fn preview(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((container, file)): Named<(String, String)>,
) -> Result<Response, Failure> {
    let (id, path) = named(&app, &scope, &container, &file).await?;
    workspace::open(workspace::view(&app, &id).await?, path).await?;
    Err(Failure::new(Code::PreviewUnavailable, "this server renders no previews"))
}

/// Every file of a session as one archive, made while it is sent.
pub(super) async fn archive(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Response, Failure> {
    sessions::find(&app, &scope, &id).await?;
    let archive = archive::stream(workspace::view(&app, &id).await?).await?;
    let name = format!("attachment; filename=\"{id}.zip\"");
    let fields = [
        (header::CONTENT_TYPE, "application/zip"),
        (header::CONTENT_DISPOSITION, name.as_str()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((fields, Body::from_stream(archive)).into_response())
}
