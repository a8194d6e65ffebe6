//! Versions of an environment: listed, compared, measured, activated.

use super::{Named, Shown, Version, show};
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::options::Format;
use crate::cli::progress::human;
use crate::cli::table::{cell, print, print_json, table};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Versions to compare.
#[derive(Debug, Args)]
#[command(after_help = "\
A line begins with + for what is new, - for what is gone, ~ for what changed.

Example:
  hangar env diff content-studio 1")]
pub struct Diff {
    #[command(flatten)]
    environment: Named,
    /// The version before
    from: u32,
    /// The version after [default: the active one]
    to: Option<u32>,
    /// How many files are listed
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    limit: u64,
    #[command(flatten)]
    format: Format,
}

pub(super) async fn list(client: &Client, shown: &Shown) -> Result<(), CliError> {
    let path = shown.environment.path(client).await?;
    let listed: Value = client.get(&format!("{path}/versions")).await?;
    if shown.format.json {
        return print_json(&listed);
    }
    let active = &listed["active"];
    let rows: Vec<Vec<String>> = listed["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| {
            let active = if v["version"] == *active { "*" } else { "" };
            let mut row = vec![active.to_owned()];
            row.extend(
                ["version", "status", "files", "bytes", "packages", "error"].map(|n| cell(&v[n])),
            );
            row
        })
        .collect();
    print(&table(&["", "VERSION", "STATUS", "FILES", "BYTES", "PACKAGES", "ERROR"], &rows))
}

pub(super) async fn activate(client: &Client, version: &Version) -> Result<(), CliError> {
    let path = version.environment.path(client).await?;
    let path = format!("{path}/versions/{}/activate", version.version);
    show(&client.post(&path, &json!({})).await?, version.format)
}

pub(super) async fn verify(client: &Client, version: &Version) -> Result<(), CliError> {
    let id = version.environment.find(client).await?.id;
    let path = format!("/v1/hangar/environments/{id}/versions/{}/verify", version.version);
    let answer: Value = client.post(&path, &json!({})).await?;
    show(&answer, version.format)?;
    match answer["intact"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CliError::new("the version is not what was built")
            .hint("build a new version; sessions of this one read what was changed")),
    }
}

impl Diff {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let path = self.environment.path(client).await?;
        let to = match self.to {
            Some(to) => u64::from(to),
            None => {
                let environment: Value = client.get(&path).await?;
                environment["version"].as_u64().ok_or_else(|| {
                    CliError::new("the environment has no active version")
                        .hint("`hangar env versions` shows what can be compared")
                })?
            }
        };
        let id = path.rsplit('/').next().unwrap_or_default();
        let (from, limit) = (self.from, self.limit);
        let path = format!("/v1/hangar/environments/{id}/diff?from={from}&to={to}&limit={limit}");
        let diff: Value = client.get(&path).await?;
        if self.format.json {
            return print_json(&diff);
        }
        print(&text(&diff))
    }
}

fn text(diff: &Value) -> String {
    let mut text = String::new();
    let mark = |change: &Value| match (change["before"].is_null(), change["after"].is_null()) {
        (true, _) => '+',
        (_, true) => '-',
        _ => '~',
    };
    for change in diff["packages"].as_array().into_iter().flatten() {
        let name = format!("{} {}", cell(&change["manager"]), cell(&change["name"]));
        let sides = sides(change, cell);
        writeln!(text, "{} {name} {sides}", mark(change)).unwrap_or_default();
    }
    for change in diff["files"]["entries"].as_array().into_iter().flatten() {
        let sides = sides(change, node);
        writeln!(text, "{} {} {sides}", mark(change), cell(&change["path"])).unwrap_or_default();
    }
    let files = &diff["files"];
    if files["truncated"] == true {
        text.push_str("… more than are listed; --limit lists more\n");
    }
    let count = |name: &str| cell(&files[name]);
    let [added, removed, changed] = ["added", "removed", "changed"].map(count);
    writeln!(text, "{added} added, {removed} removed, {changed} changed").unwrap_or_default();
    text
}

fn sides(change: &Value, shown: fn(&Value) -> String) -> String {
    match (&change["before"], &change["after"]) {
        (Value::Null, after) => shown(after),
        (before, Value::Null) => shown(before),
        (before, after) => format!("{} -> {}", shown(before), shown(after)),
    }
}

fn node(node: &Value) -> String {
    match node["type"].as_str() {
        Some("file") => {
            let digest = cell(&node["digest"]);
            let short: String = digest.trim_start_matches("blake3:").chars().take(12).collect();
            format!("{} bytes {} {short}", cell(&node["bytes"]), cell(&node["mode"]))
        }
        Some("symlink") => format!("link to {}", cell(&node["target"])),
        _ => format!("directory {}", cell(&node["mode"])),
    }
}

pub(super) async fn usage(client: &Client, shown: &Shown) -> Result<(), CliError> {
    let id = shown.environment.find(client).await?.id;
    let usage: Value = client.get(&format!("/v1/hangar/environments/{id}/usage")).await?;
    if shown.format.json {
        return print_json(&usage);
    }
    let size = |object: &Value, name: &str| human(object[name].as_u64().unwrap_or(0));
    let mut rows = Vec::new();
    let all = [("versions", "version"), ("kept_dependencies", "kept packages")];
    for (list, what) in all {
        for tree in usage[list].as_array().into_iter().flatten() {
            let number = tree["version"].as_u64().map(|n| format!(" {n}")).unwrap_or_default();
            let sizes = ["bytes", "disk_bytes", "own_disk_bytes"].map(|name| size(tree, name));
            rows.push(
                [vec![format!("{what}{number}"), cell(&tree["files"])], sizes.to_vec()].concat(),
            );
        }
    }
    let source = &usage["source"];
    rows.push(vec!["source".to_owned(), cell(&source["files"]), size(source, "bytes")]);
    print(&table(&["", "FILES", "SIZE", "ON DISK", "OF THAT ITS OWN"], &rows))?;
    print(&format!("{} on disk, shared files once\n", size(&usage, "disk_bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_a_line() {
        let file = |bytes: u64| json!({ "type": "file", "mode": "0444", "bytes": bytes, "digest": "blake3:0123456789abcdef" });
        let diff = json!({
            "packages": [{ "manager": "pip", "name": "numpy", "before": "1", "after": "2" }],
            "files": {
                "entries": [
                    { "path": "a", "after": file(1) },
                    { "path": "b", "before": file(2) },
                    { "path": "c", "before": file(3), "after": { "type": "symlink", "target": "a" } },
                ],
                "added": 1, "removed": 1, "changed": 1, "truncated": false,
            },
        });
        assert_eq!(
            text(&diff),
            "~ pip numpy 1 -> 2\n+ a 1 bytes 0444 0123456789ab\n- b 2 bytes 0444 0123456789ab\n\
             ~ c 3 bytes 0444 0123456789ab -> link to a\n1 added, 1 removed, 1 changed\n"
        );
    }
}
