//! Configured harnesses: which there are, and what can be written of one.

use crate::app::{App, hex, now_ms};
use crate::environments::source_path::SourcePath;
use crate::failure::{Code, Failure, Tried};
use crate::store::{HarnessConfig, HarnessRow};
use serde_json::Value;
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

/// Whether a configuration can be kept.
///
/// # Errors
/// [`Code::InvalidInput`] with the field that is wrong.
pub fn check(config: &HarnessConfig) -> Result<(), Failure> {
    let invalid = |param: &str, why: &str| {
        Err(Failure::new(Code::InvalidInput, why.to_owned()).with_param(param))
    };
    if config.name.trim().is_empty() || config.name.len() > NAME_BYTES_MAX {
        return invalid("name", "the name is empty or too long");
    }
    for server in &config.mcp_servers {
        let text = |field: &str| server[field].as_str().unwrap_or_default();
        let is_remote = text("url").starts_with("https://") || text("url").starts_with("http://");
        let transport = server["transport"].as_str().unwrap_or("http");
        if text("name").is_empty() || !is_remote || !["http", "sse"].contains(&transport) {
            let why = "an MCP server has a name, an http address, and the transport http or sse";
            return invalid("mcp_servers", why);
        }
        // What is stored here can be read back, and a credential must not be.
        if ["auth", "headers"].iter().any(|field| !is_empty(&server[field])) {
            let why = "this server keeps no credentials of MCP servers yet";
            return invalid("mcp_servers", why);
        }
    }
    match config.skills.iter().find_map(objection) {
        Some(why) => invalid("skills", why),
        None => Ok(()),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    }
}

/// What is wrong with a skill.
fn objection(skill: &Value) -> Option<&'static str> {
    if skill["name"].as_str().is_none_or(str::is_empty) {
        return Some("a skill has no name");
    }
    let Some(files) = skill["files"].as_array() else {
        let suppresses = skill["enabled"] == Value::Bool(false);
        return (!suppresses && !skill["content"].is_string()).then_some("a skill has no files");
    };
    let paths: Option<Vec<&str>> = files.iter().map(|file| file["path"].as_str()).collect();
    let Some(paths) = paths else { return Some("a file of a skill has no path") };
    if paths.iter().any(|path| SourcePath::parse(path).is_err()) {
        return Some("a file of a skill has a path that leads out of its folder");
    }
    (!paths.contains(&"SKILL.md")).then_some("a skill has no SKILL.md")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn checked(field: &str, value: Value) -> Result<(), Failure> {
        let mut config = json!({ "name": "x" });
        config[field] = value;
        check(&serde_json::from_value(config).unwrap())
    }

    #[test]
    fn a_skill_is_a_whole_folder() {
        let files = |paths: &[&str]| {
            let files: Vec<_> = paths.iter().map(|path| json!({ "path": path })).collect();
            json!([{ "name": "s", "files": files }])
        };
        assert!(checked("skills", files(&["SKILL.md", "scripts/x.sh"])).is_ok());
        assert!(checked("skills", json!([{ "name": "s", "content": "x" }])).is_ok());
        assert!(checked("skills", json!([{ "name": "s", "enabled": false }])).is_ok());
        for bad in [files(&["x.md"]), files(&["SKILL.md", "../x"]), json!([{ "name": "s" }])] {
            let failure = checked("skills", bad).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some("skills"));
        }
    }

    #[test]
    fn servers_are_remote_and_bring_no_credentials() {
        let server = |url: &str| json!([{ "name": "m", "url": url }]);
        assert!(checked("mcp_servers", server("https://mcp.example.com/mcp")).is_ok());
        for bad in [
            server("file:///etc/passwd"),
            json!([{ "name": "m" }]),
            json!([{ "name": "m", "url": "https://x", "transport": "stdio" }]),
            json!([{ "name": "m", "url": "https://x", "auth": "secret" }]),
            json!([{ "name": "m", "url": "https://x", "headers": { "authorization": "x" } }]),
        ] {
            assert!(checked("mcp_servers", bad.clone()).is_err(), "{bad}");
        }
        assert!(checked("name", json!(" ")).is_err());
    }
}
