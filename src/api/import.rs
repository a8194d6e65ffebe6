//! A whole project at once.

use super::auth::Scope;
use super::body;
use super::extract::Named;
use crate::app::{App, blocking};
use crate::environments::find;
use crate::environments::git::{self, Repository};
use crate::environments::hints;
use crate::environments::import::{self, Existing, Upload, anonymous_upload};
use crate::failure::{Code, Failure, Tried};
use axum::Json;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use hangar_rootfs::job::{ImportOutcome, Wrapper};
use hangar_runtime::ids::EnvironmentId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) async fn import_project(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let existing = match query.get("replace").map(String::as_str) {
        Some("1" | "true") => Existing::Replaced,
        _ => Existing::Kept,
    };
    let media_type = headers.get("content-type").and_then(|value| value.to_str().ok());
    if media_type.is_some_and(|value| value.starts_with("application/json")) {
        let request: RepositoryImport = body::json(&app, body).await?;
        return import_repository(&app, &id, request, existing).await;
    }
    let spooled = Arc::clone(&app);
    let file = blocking(move || anonymous_upload(&spooled)).await.tried("storing the upload")?;
    let file = Arc::new(file);
    if body::spool(body, &file, app.config.uploads.import_bytes_max).await? == 0 {
        return Err(Failure::new(Code::EnvironmentInvalid, "the import is empty"));
    }
    let file = file.try_clone().tried("storing the upload")?;
    let upload = Upload { file, existing, wrapper: Wrapper::Strip };
    let outcome = import::import(&app, &id, upload).await?;
    if existing == Existing::Replaced
        && let Err(error) = app.store.set_imported(&id, None).await
    {
        tracing::error!("that {id} was imported from an archive was not stored: {error}");
    }
    Ok(Json(answer(&outcome, hints::of_source(&app, &id).await)))
}

/// The body that names a repository.
#[derive(Debug, Deserialize)]
struct RepositoryImport {
    git: Option<NamedRepository>,
    #[serde(default)]
    replace: bool,
}

#[derive(Debug, Deserialize)]
struct NamedRepository {
    url: String,
    r#ref: Option<String>,
}

async fn import_repository(
    app: &Arc<App>,
    id: &EnvironmentId,
    request: RepositoryImport,
    existing: Existing,
) -> Result<Json<Value>, Failure> {
    let Some(git) = request.git else {
        let message = "the import is neither an archive nor a repository";
        return Err(Failure::new(Code::EnvironmentInvalid, message).with_param("git"));
    };
    let existing = if request.replace { Existing::Replaced } else { existing };
    let repository = Repository::parse(&git.url, git.r#ref.as_deref())?;
    let (outcome, fetched) = git::import(app, id, &repository, existing).await?;
    let mut told = answer(&outcome, hints::of_source(app, id).await);
    told["git"] = json!({
        "url": git.url,
        "ref": git.r#ref,
        "commit": fetched.commit,
        "submodules": fetched.submodule_count,
        "submodule_paths": fetched.submodules,
        "lfs_pointers": fetched.lfs_pointers,
    });
    Ok(Json(told))
}

/// The four numbers of the protocol, what they do not say, and what will probably fail later.
fn answer(outcome: &ImportOutcome, hints: Vec<String>) -> Value {
    json!({
        "written": outcome.written,
        "skipped": outcome.skipped,
        "count": outcome.count,
        "bytes": outcome.bytes,
        "skipped_reasons": outcome.skipped_reasons,
        "skipped_examples": outcome.skipped_examples,
        "wrapper_stripped": outcome.wrapper_stripped,
        "notes": outcome.notes,
        "hints": hints,
    })
}
