//! What builds can be made with, and what registries say about packages.

use super::auth::Scope;
use super::extract::QueryOf;
use crate::app::App;
use crate::environments::spec::{Manager, Spec};
use crate::failure::{Code, Failure};
use crate::lookups;
use crate::store::Access;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) async fn runtimes(State(app): State<Arc<App>>, _: Scope) -> Json<Value> {
    let found = app.runtimes.found().await;
    Json(json!({
        "object": "environment.runtimes",
        "python": found.python,
        "node": found.node,
        "os": { "name": found.os.0, "version": found.os.1 },
        "apt": found.apt,
    }))
}

/// What a manager's registry says about a specification. What is no specification is refused; what
/// could not be learnt is `null`. To ask takes a session, so a token for reading is told only what
/// others asked before.
pub(super) async fn check(
    State(app): State<Arc<App>>,
    _: Scope,
    access: Access,
    QueryOf(query): QueryOf<HashMap<String, String>>,
) -> Result<Json<Value>, Failure> {
    let asked = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
    let manager: Manager = asked("manager")
        .parse()
        .map_err(|()| refused("manager", "the manager is none of pip, npm and apt"))?;
    let text = asked("spec");
    let spec = Spec::parse(manager, text)
        .ok_or_else(|| refused("spec", "the text is not a package specification"))?;
    let answer = match access {
        Access::Read => lookups::known(&app, manager, &spec).ok_or_else(|| {
            let message = "this token is for reading only, and asking a registry starts a session";
            Failure::new(Code::InsufficientScope, message)
        })?,
        Access::Full | Access::Run => lookups::ask(&app, manager, &spec).await?,
    };
    Ok(Json(json!({
        "object": "environment.package",
        "manager": manager.as_str(),
        "name": spec.name,
        "spec": text,
        "exists": answer.exists,
        "latest": answer.latest,
        "version": answer.version,
        "error": answer.error,
    })))
}

/// The one place where the protocol gives this code another status.
fn refused(param: &str, why: &str) -> Failure {
    Failure::new(Code::PackageInvalid, why).with_param(param)
}
