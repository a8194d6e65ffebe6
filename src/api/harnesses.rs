//! Configured harnesses: which agent, how it is set up, and which environment its tasks read.

use super::auth::Scope;
use super::body;
use super::extract::Named;
use crate::app::{App, now_ms, random_hex};
use crate::environments::find;
use crate::failure::{Code, Failure, Tried};
use crate::harnesses::mcp::{self, McpServer};
use crate::harnesses::skills::{self, Bundle};
use crate::harnesses::{self, BASES};
use crate::store::{HarnessConfig, HarnessRow, Reference, Stored};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use hangar_runtime::ids::EnvironmentId;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use std::sync::Arc;

/// The longest body: some skills, with the binary files in base64.
const HARNESS_BYTES_MAX: usize = 24 << 20;

/// What a client writes; a field that is absent stays as it is. Written by the names of requests
/// or by those of the object, so that what was read can be sent back.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Written {
    name: Option<String>,
    base: Option<String>,
    #[serde(alias = "defaultModel", deserialize_with = "or_empty")]
    default_model: Option<String>,
    #[serde(alias = "systemPrompt", deserialize_with = "or_empty")]
    system_prompt: Option<String>,
    #[serde(alias = "mcpServers")]
    mcp_servers: Option<Vec<McpServer>>,
    skills: Option<Vec<skills::Written>>,
    plugins: Option<Vec<Value>>,
    #[serde(alias = "disabledTools")]
    disabled_tools: Option<Vec<String>>,
    #[serde(alias = "maxStep", deserialize_with = "or_none")]
    max_step: Option<Option<u64>>,
    #[serde(alias = "timeoutSeconds", deserialize_with = "or_none")]
    timeout_seconds: Option<Option<u64>>,
    #[serde(deserialize_with = "or_empty")]
    environment: Option<String>,
}

/// Null is the empty text.
fn or_empty<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Option::<String>::deserialize(from).map(|text| Some(text.unwrap_or_default()))
}

/// Null is no number, which is not the same as no field.
fn or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::<u64>::deserialize(from).map(Some)
}

impl Written {
    /// The configuration with what was written, and the files of skills that are new.
    fn over(self, base: HarnessConfig) -> Result<(HarnessConfig, Vec<Bundle>), Failure> {
        if self.plugins.is_some_and(|plugins| !plugins.is_empty()) {
            let why = "this server has no plugins";
            return Err(Failure::new(Code::InvalidInput, why).with_param("plugins"));
        }
        let environment = self.environment.map(|id| (!id.is_empty()).then_some(id));
        let mcp_servers = match self.mcp_servers {
            Some(written) => mcp::checked(written, &base.mcp_servers)?,
            None => base.mcp_servers,
        };
        let (skills, bundles) = match self.skills {
            Some(written) => skills::checked(written, &base.skills)?,
            None => (base.skills, Vec::new()),
        };
        let config = HarnessConfig {
            name: self.name.unwrap_or(base.name),
            default_model: self.default_model.unwrap_or(base.default_model),
            system_prompt: self.system_prompt.unwrap_or(base.system_prompt),
            mcp_servers,
            skills,
            disabled_tools: self.disabled_tools.unwrap_or(base.disabled_tools),
            max_step: self.max_step.unwrap_or(base.max_step),
            timeout_seconds: self.timeout_seconds.unwrap_or(base.timeout_seconds),
            environment: environment.unwrap_or(base.environment),
        };
        harnesses::check(&config)?;
        Ok((config, bundles))
    }
}

/// What a client learns of a harness that was written.
fn stored(outcome: Stored) -> Result<(), Failure> {
    match outcome {
        Stored::Whole => Ok(()),
        Stored::NoEnvironment => {
            Err(Failure::new(Code::EnvironmentNotFound, "there is no such environment")
                .with_param("environment"))
        }
        Stored::NoSkill => {
            Err(Failure::new(Code::InvalidInput, "a skill was removed by another request")
                .with_param("skills"))
        }
    }
}

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let mut written: Written = body::json_within(body, HARNESS_BYTES_MAX).await?;
    let base = written.base.take().unwrap_or_default();
    if !BASES.iter().any(|(known, _)| *known == base) {
        let known: Vec<_> = BASES.iter().map(|(base, _)| base).collect();
        return Err(Failure::new(Code::UnsupportedBase, "this server has no such harness base")
            .with_param("base")
            .with_detail(json!({ "supported": known })));
    }
    let (config, bundles) = written.over(HarnessConfig::default())?;
    let id = format!("chrn_{}", random_hex());
    let row = HarnessRow { id, scope, base, config, created_ms: now_ms() };
    stored(app.store.create_harness(row.clone(), bundles).await.tried("storing the harness")?)?;
    Ok(Json(object(&row)))
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
) -> Result<Json<Value>, Failure> {
    harnesses::default_of(&app, &scope).await?;
    let rows = app.store.harnesses(&scope, None).await.tried("reading the harnesses")?;
    Ok(Json(json!({ "harnesses": rows.iter().map(object).collect::<Vec<_>>() })))
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    Ok(Json(object(&harnesses::named(&app, &scope, &id).await?)))
}

/// Changes the configuration; id, base and time of creation stay.
pub(super) async fn update(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let mut row = harnesses::named(&app, &scope, &id).await?;
    let written: Written = body::json_within(body, HARNESS_BYTES_MAX).await?;
    if written.base.as_ref().is_some_and(|base| *base != row.base) {
        let why = "the base of a harness does not change; make another one";
        return Err(Failure::new(Code::InvalidInput, why).with_param("base"));
    }
    let reference = match written.environment {
        Some(_) => Reference::Written,
        None => Reference::Left,
    };
    let (config, bundles) = written.over(row.config)?;
    row.config = config;
    let outcome = app.store.update_harness(row.clone(), reference, bundles).await;
    stored(outcome.tried("storing the harness")?)?;
    Ok(Json(object(&row)))
}

pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    if id == harnesses::default_id(&scope) {
        let why = "the harness of tasks that name none cannot be deleted";
        return Err(Failure::new(Code::InsufficientScope, why));
    }
    if !app.store.delete_harness(&scope, &id).await.tried("removing the harness")? {
        return Err(Failure::new(Code::HarnessNotFound, "there is no such harness"));
    }
    Ok(Json(json!({ "id": id, "deleted": true })))
}

/// Every file of a skill.
pub(super) async fn skill_files(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, name)): Named<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let row = harnesses::named(&app, &scope, &id).await?;
    let none = || Failure::new(Code::FileNotFound, "the harness has no such skill");
    let skill = row.config.skills.iter().find(|skill| skill.name == name).ok_or_else(none)?;
    let files = match &skill.blob {
        Some(blob) => app.store.skill_files(&row.id, blob).await.tried("reading the skill")?,
        None => Some(Vec::new()),
    };
    Ok(Json(json!({ "files": files.ok_or_else(none)? })))
}

/// There are no plugins here, so no harness has one of that name.
pub(super) async fn plugin_files(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named((id, _)): Named<(String, String)>,
) -> Result<Json<Value>, Failure> {
    harnesses::named(&app, &scope, &id).await?;
    Err(Failure::new(Code::PluginNotFound, "the harness has no such plugin"))
}

/// The models of every base. A shell has none.
pub(super) async fn all_models(_: Scope) -> Json<Value> {
    Json(json!({ "backends": {} }))
}

/// The models that can be asked for in a harness. There is neither a default nor a fallback where
/// there is no model, so none is named.
pub(super) async fn models(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    let row = harnesses::named(&app, &scope, &id).await?;
    Ok(Json(json!({ "harness_id": row.id, "backend": row.base, "models": [] })))
}

/// The harnesses that name an environment: what a rebuild will reach.
pub(super) async fn of_environment(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<EnvironmentId>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    let rows = app.store.harnesses(&scope, Some(id.as_str())).await;
    let rows = rows.tried("reading the harnesses")?;
    let shown: Vec<_> = rows
        .iter()
        .map(|row| json!({ "id": row.id, "name": row.config.name, "base": row.base }))
        .collect();
    Ok(Json(json!({ "id": id, "harnesses": shown })))
}

fn object(row: &HarnessRow) -> Value {
    let config = &row.config;
    json!({
        "id": row.id,
        "object": "harness",
        "name": config.name,
        "base": row.base,
        "baseLabel": BASES.iter().find(|(base, _)| *base == row.base).map_or("", |(_, label)| label),
        "defaultModel": config.default_model,
        "systemPrompt": config.system_prompt,
        "mcpServers": config.mcp_servers.iter().map(McpServer::told).collect::<Vec<_>>(),
        "skills": config.skills,
        "plugins": [],
        "environment": config.environment.as_deref().unwrap_or_default(),
        "disabledTools": config.disabled_tools,
        "maxStep": config.max_step,
        "timeoutSeconds": config.timeout_seconds,
        "createdAt": row.created_ms,
    })
}
