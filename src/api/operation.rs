//! What whoever runs the server asks it.

use super::auth::{DEFAULT_SCOPE, Scope};
use crate::app::App;
use crate::failure::{Code, Failure};
use crate::observe::metrics;
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;

/// The media type of the text format of Prometheus.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The numbers of the whole server, which are nobody's but the operator's.
pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
) -> Result<([(&'static str, &'static str); 1], String), Failure> {
    if scope != DEFAULT_SCOPE {
        let message = "numbers of the whole server are for the scope `default`";
        return Err(Failure::new(Code::InsufficientScope, message));
    }
    Ok(([("content-type", TEXT_FORMAT)], metrics::text(&app)))
}

/// Whether work would be taken and done now, and what stands against it.
pub(super) async fn ready(State(app): State<Arc<App>>) -> (StatusCode, Json<Value>) {
    let warden = app.warden.is_connected();
    let store = app.store.answers().await;
    let disk = has_room(&app);
    let is_ready = warden && store && disk;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let checks = json!({ "warden": warden, "store": store, "disk": disk });
    (status, Json(json!({ "object": "hangar.readiness", "ready": is_ready, "checks": checks })))
}

/// As much as a build needs to begin.
fn has_room(app: &App) -> bool {
    let limits = &app.config.build;
    rustix::fs::statvfs(&app.files.root).is_ok_and(|disk| {
        disk.f_bavail.saturating_mul(disk.f_frsize) >= limits.disk_free_bytes_min
            && (disk.f_files == 0 || disk.f_favail >= limits.disk_free_inodes_min)
    })
}
