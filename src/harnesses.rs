//! Configured harnesses: what can be written of one.
//!
//! A harness is a configuration so far: nothing runs its tasks yet, and discovery says so.

use crate::environments::source_path::SourcePath;
use crate::failure::{Code, Failure};
use crate::store::HarnessConfig;
use serde_json::Value;

/// The bases a harness can have, with their names for people.
pub const BASES: &[(&str, &str)] = &[
    ("shell", "Shell"),
    ("claude-code", "Claude Code"),
    ("codex", "Codex"),
    ("pi", "pi"),
    ("antigravity", "Antigravity"),
];

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
