//! Configured harnesses: which there are, and what can be written of one.

pub mod mcp;
pub mod skills;

use crate::app::{App, hex, now_ms};
use crate::failure::{Code, Failure, Tried};
use crate::store::{HarnessConfig, HarnessRow};
use sha2::{Digest, Sha256};

/// The bases a harness can have, with their names for people. A base that cannot run tasks is not
/// one: who asked for it would learn so too late.
pub const BASES: &[(&str, &str)] = &[("shell", "Shell")];

/// The id of the harness that runs the tasks of a scope which name none. It is the same at every
/// start and no secret: whoever asks has to be of the scope all the same.
#[must_use]
pub fn default_id(scope: &str) -> String {
    let digest = Sha256::new().chain_update("hangar default harness\0").chain_update(scope);
    format!("chrn_{}", hex(&digest.finalize()[..16]))
}

/// The harness that runs the tasks of a scope which name none. It is made when it is first asked
/// for; its owner can change it and cannot delete it.
///
/// # Errors
/// When the database fails.
pub async fn default_of(app: &App, scope: &str) -> Result<HarnessRow, Failure> {
    let id = default_id(scope);
    if let Some(row) = app.store.harness(scope, &id).await.tried("reading the harness")? {
        return Ok(row);
    }
    let config = HarnessConfig { name: "shell".to_owned(), ..HarnessConfig::default() };
    let base = BASES[0].0.to_owned();
    let row = HarnessRow { id, scope: scope.to_owned(), base, config, created_ms: now_ms() };
    // Two requests can find none at once; both read what one of them stored.
    app.store.ensure_harness(row.clone()).await.tried("storing the harness")
}

/// The harness with this id.
///
/// # Errors
/// [`Code::HarnessNotFound`] when the scope has none of that id.
pub async fn named(app: &App, scope: &str, id: &str) -> Result<HarnessRow, Failure> {
    if id == default_id(scope) {
        return default_of(app, scope).await;
    }
    let row = app.store.harness(scope, id).await.tried("reading the harness")?;
    row.ok_or_else(|| Failure::new(Code::HarnessNotFound, "there is no such harness"))
}

/// The harness a task runs in: the one it names, or that of its scope.
///
/// # Errors
/// As for [`named`].
pub async fn for_task(app: &App, scope: &str, id: Option<&str>) -> Result<HarnessRow, Failure> {
    match id {
        Some(id) => named(app, scope, id).await,
        None => default_of(app, scope).await,
    }
}

const NAME_BYTES_MAX: usize = 200;
const PROMPT_BYTES_MAX: usize = 256 << 10;
const TOOLS_MAX: usize = 200;

/// Whether a configuration can be kept, but for its servers and skills.
///
/// # Errors
/// [`Code::InvalidInput`] with the field that is wrong.
pub fn check(config: &HarnessConfig) -> Result<(), Failure> {
    let is_name = |text: &str| text.len() <= NAME_BYTES_MAX && !text.chars().any(char::is_control);
    let tools = &config.disabled_tools;
    for (fits, param, why) in [
        (
            is_name(&config.name) && !config.name.trim().is_empty(),
            "name",
            "the name is empty, too long or has control characters",
        ),
        (is_name(&config.default_model), "default_model", "no model is called like that"),
        (
            config.system_prompt.len() <= PROMPT_BYTES_MAX,
            "system_prompt",
            "the system prompt is too long",
        ),
        (
            tools.len() <= TOOLS_MAX && tools.iter().all(|tool| is_name(tool) && !tool.is_empty()),
            "disabled_tools",
            "a tool has no name, or there are too many",
        ),
        (config.max_step != Some(0), "max_step", "a task has at least one step"),
        (config.timeout_seconds != Some(0), "timeout_seconds", "a task has at least one second"),
    ] {
        if !fits {
            return Err(Failure::new(Code::InvalidInput, why).with_param(param));
        }
    }
    Ok(())
}
