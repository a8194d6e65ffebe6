//! Read-only links to sessions: made and revoked by whoever sees the session, opened by whoever has
//! the link.

use super::auth::Scope;
use super::extract::Named;
use super::media::Download;
use super::{artifacts, body, objects, sessions, turns};
use crate::app::{App, now_ms, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::sessions::workspace;
use crate::store::{SessionRow, ShareRow};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use hangar_runtime::ids::SessionId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The body, which may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    /// False asks for what `DELETE` does.
    enabled: Option<bool>,
}

/// Shares a session. One that is shared keeps its link.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    sessions::find(&app, &scope, &id).await?;
    let asked: Asked = body::json(&app, body).await?;
    if asked.enabled == Some(false) {
        let was = app.store.unshare(&id).await.tried("revoking the link")?;
        return Ok(Json(object(&was.ok_or_else(not_shared)?, false)));
    }
    let new = ShareRow {
        id: format!("share_{}", random_hex()),
        secret: format!("{}{}", random_hex(), random_hex()),
        created_ms: now_ms(),
    };
    let share = app.store.share(&id, new).await.tried("sharing the session")?;
    let gone = || Failure::new(Code::SessionNotFound, "there is no such session");
    Ok(Json(object(&share.ok_or_else(gone)?, true)))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    sessions::find(&app, &scope, &id).await?;
    let share = app.store.share_of(&id).await.tried("reading the link")?;
    Ok(Json(object(&share.ok_or_else(not_shared)?, true)))
}

/// Makes the link lead nowhere. It may be done twice.
pub(super) async fn revoke(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    sessions::find(&app, &scope, &id).await?;
    app.store.unshare(&id).await.tried("revoking the link")?;
    Ok(Json(json!({ "id": id, "object": "session.share", "deleted": true })))
}

fn not_shared() -> Failure {
    Failure::new(Code::ShareNotFound, "the session is not shared")
}

fn object(share: &ShareRow, enabled: bool) -> Value {
    json!({
        "id": share.id,
        "object": "session.share",
        "url": format!("/v1/shared/{}", share.secret),
        "enabled": enabled,
        "created_at": share.created_ms / 1000,
    })
}

/// The session behind a link. Whether there never was one, it was revoked or its session is gone is
/// not told.
async fn behind(app: &App, secret: &str) -> Result<SessionRow, Failure> {
    let nothing = || Failure::new(Code::ShareNotFound, "the link leads nowhere");
    let found = app.store.shared(secret).await.tried("reading the link")?;
    let (id, scope) = found.ok_or_else(nothing)?;
    sessions::find(app, &scope, &id).await.map_err(|_| nothing())
}

/// What a session was about, for whoever has the link: what was said and the files that came of it,
/// and nothing of who owns it or how it was configured.
pub(super) async fn view(
    State(app): State<Arc<App>>,
    Named(secret): Named<String>,
) -> Result<Response, Failure> {
    let session = behind(&app, &secret).await?;
    let mut files = artifacts::of(&app, &session).await?;
    for file in files["files"].as_array_mut().into_iter().flatten() {
        let id = file["id"].as_str().unwrap_or_default();
        file["url"] = json!(format!("/v1/shared/{secret}/files/{id}/content"));
    }
    let mut turns = turns::of(&app, &session.id).await?;
    // How the session was set up is its owner's business.
    for turn in turns.iter_mut().filter_map(Value::as_object_mut) {
        turn.retain(|field, _| !field.starts_with("environment"));
    }
    let view = json!({
        "object": "session.shared",
        "id": session.id,
        "title": session.title,
        "status": objects::session_of_tasks(&session, app.isolations.is_running(&session.id))["status"],
        "created_at": session.created_ms / 1000,
        "updated_at": session.updated_ms / 1000,
        "turns": turns,
        "files": files["files"],
        "truncated": files["truncated"],
    });
    Ok(private(Json(view).into_response()))
}

/// The bytes of a file of a shared session.
pub(super) async fn content(
    State(app): State<Arc<App>>,
    Named((secret, file)): Named<(String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let session = behind(&app, &secret).await?;
    let none = || Failure::new(Code::FileNotFound, "there is no such file");
    let path = workspace::path_of(&file).ok_or_else(none)?;
    let view = workspace::view(&app, &session.id).await?;
    let (file, bytes) = workspace::open(view, path.clone()).await?;
    let path = String::from_utf8_lossy(&path).into_owned();
    Download { file, bytes, path, etag: None }.answer(&method, &headers).map(private)
}

/// The address is the permission: it is not kept in caches, sent to other places or found by
/// searching.
fn private(mut response: Response) -> Response {
    let fields = response.headers_mut();
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    fields.insert("x-robots-tag", HeaderValue::from_static("noindex, nofollow"));
    response
}
