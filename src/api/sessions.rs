//! Sessions as objects.

use super::auth::Scope;
use super::extract::Named;
use super::{body, objects};
use crate::app::App;
use crate::config::LimitsConfig;
use crate::failure::{Code, Failure, Tried};
use crate::sessions::service::{self, NewSession, parse_network};
use crate::store::SessionRow;
use crate::tasks::engine;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use hangar_runtime::ids::{EnvironmentId, SessionId, VersionNumber};
use hangar_runtime::plan::Network;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    environment: Option<String>,
    version: Option<u32>,
    network: Option<String>,
    limits: LimitsConfig,
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let asked: Asked = body::json(&app, body).await?;
    let row = service::create(&app, &scope, parse(asked)?).await?;
    Ok(Json(objects::session(&row, true)))
}

fn parse(asked: Asked) -> Result<NewSession, Failure> {
    let environment = asked.environment.map(|id| {
        EnvironmentId::parse(&id).map_err(|_| {
            Failure::new(Code::EnvironmentNotFound, "there is no such environment")
                .with_param("environment")
        })
    });
    let version = asked.version.map(|number| {
        VersionNumber::new(number).ok_or_else(|| {
            Failure::new(Code::EnvironmentNotReady, "that version never finished")
                .with_param("version")
        })
    });
    let network = asked.network.map(|name| {
        parse_network(&name).ok_or_else(|| {
            Failure::new(Code::InvalidInput, "there is no such network").with_param("network")
        })
    });
    Ok(NewSession {
        environment: environment.transpose()?,
        version: version.transpose()?,
        network: network.transpose()?.unwrap_or(Network::Loopback),
        limits: asked.limits,
    })
}

pub(super) async fn find(app: &App, scope: &str, id: &SessionId) -> Result<SessionRow, Failure> {
    let row = app.store.session(scope, id).await.tried("reading the session")?;
    row.ok_or_else(|| Failure::new(Code::SessionNotFound, "there is no such session"))
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
) -> Result<Json<Value>, Failure> {
    let rows = app.store.sessions(Some(&scope)).await.tried("reading the sessions")?;
    let shown: Vec<_> =
        rows.iter().map(|row| objects::session(row, app.isolations.is_running(&row.id))).collect();
    Ok(Json(json!({ "sessions": shown, "next_cursor": null })))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    let row = find(&app, &scope, &id).await?;
    Ok(Json(objects::session_of_tasks(&row, app.isolations.is_running(&id))))
}

/// Ends the task that runs in the session, and removes both.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    let row = find(&app, &scope, &id).await?;
    if let Some(task) = app.tasks.of_session(&id) {
        engine::cancel(&app, &task).await?;
    }
    service::delete(&app, &row).await?;
    Ok(Json(json!({ "id": id, "deleted": true })))
}

/// What the session's isolation is, as it was proven at its start.
pub(super) async fn isolation(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    let row = find(&app, &scope, &id).await?;
    let proof = service::proof(&app, &row).await?;
    Ok(Json(serde_json::to_value(&proof).tried("writing the proof")?))
}
