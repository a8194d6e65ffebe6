//! A whole project at once.

use super::auth::Scope;
use super::body;
use super::extract::Named;
use crate::app::{App, blocking};
use crate::environments::find;
use crate::environments::import::{Existing, anonymous_upload};
use crate::failure::{Code, Failure, Tried};
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use hangar_rootfs::job::ImportOutcome;
use hangar_runtime::ids::EnvironmentId;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) async fn import(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let media_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|value| value.starts_with("application/json")) {
        let message = "this server imports archives, and no repositories yet";
        return Err(Failure::new(Code::EnvironmentInvalid, message).with_param("git"));
    }
    let existing = match query.get("replace").map(String::as_str) {
        Some("1" | "true") => Existing::Replaced,
        _ => Existing::Kept,
    };
    let spooled = Arc::clone(&app);
    let file = blocking(move || anonymous_upload(&spooled)).await.tried("storing the upload")?;
    let file = Arc::new(file);
    if body::spool(body, &file, app.config.uploads.import_bytes_max).await? == 0 {
        return Err(Failure::new(Code::EnvironmentInvalid, "the import is empty"));
    }
    let file = file.try_clone().tried("storing the upload")?;
    let outcome = crate::environments::import::import(&app, &id, file, existing).await?;
    Ok(Json(answer(&outcome)))
}

/// The four numbers of the protocol, and what they do not say.
fn answer(outcome: &ImportOutcome) -> Value {
    json!({
        "written": outcome.written,
        "skipped": outcome.skipped,
        "count": outcome.count,
        "bytes": outcome.bytes,
        "skipped_reasons": outcome.skipped_reasons,
        "skipped_examples": outcome.skipped_examples,
        "wrapper_stripped": outcome.wrapper_stripped,
        "notes": outcome.notes,
    })
}
