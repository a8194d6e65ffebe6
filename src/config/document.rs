//! Prints `docs/configuration.md` from the structures and their documentation.

use super::{Config, LimitsConfig};
use hangar_runtime::plan::Limits;
use std::fmt::Write as _;
use std::path::Path;

const SOURCE: &str = include_str!("../config.rs");
const HEAD: &str = "\
# Configuration

Printed from `src/config.rs`; a test compares the two. `hangar serve` reads `config.toml` in the state
directory when it starts. The file is optional, belongs to root, and every key has a default; a key
that is not known is an error. A size is a number of bytes, a time one of seconds.

A variable of the environment comes before the file, and `--set KEY=VALUE` of `hangar serve` before both:
`build.timeout_s` is `HANGAR_BUILD__TIMEOUT_S` and `--set build.timeout_s=600`. `hangar config show` tells
every value and where it comes from.
";

/// A field of a structure: its name, its type and what is said of it.
struct Key<'a> {
    name: &'a str,
    kind: &'a str,
    what: String,
}

/// The public fields of a structure of the source.
fn keys(structure: &str) -> Vec<Key<'static>> {
    let begin = format!("pub struct {structure} {{\n");
    let (_, rest) = SOURCE.split_once(&begin).expect("the structure is there");
    let (body, _) = rest.split_once("\n}\n").expect("it ends");
    let mut what = Vec::new();
    let mut keys = Vec::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("/// ") {
            what.push(text);
        } else if let Some(field) = line.strip_prefix("pub ") {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").expect("a field");
            keys.push(Key { name, kind, what: what.join(" ") });
            what.clear();
        }
    }
    keys
}

fn table(text: &mut String, structure: &str, defaults: &toml::Value) {
    text.push_str("| key | default | what it is |\n|---|---|---|\n");
    for Key { name, kind, what } in keys(structure) {
        let default = match defaults.get(name) {
            _ if kind == "LimitsConfig" => "below".to_owned(),
            Some(value) => format!("`{value}`"),
            None => "not set".to_owned(),
        };
        let _ = writeln!(text, "| `{name}` | {default} | {what} |");
    }
}

fn document() -> String {
    let defaults = toml::Value::try_from(Config::default()).unwrap();
    let mut text = HEAD.to_owned();
    for Key { name, kind, what } in keys("Config") {
        let _ = write!(text, "\n## `[{name}]`\n\n{what}\n\n");
        let none = toml::Value::Table(toml::Table::new());
        table(&mut text, kind, defaults.get(name).unwrap_or(&none));
    }
    let Limits {
        pids_max,
        memory_bytes_max,
        cpu_millis_max,
        open_files_max,
        file_bytes_max,
        tmpfs_bytes_max,
    } = Limits::default();
    let limits = LimitsConfig {
        pids_max: Some(pids_max),
        memory_bytes_max: Some(memory_bytes_max),
        cpu_millis_max: Some(cpu_millis_max),
        open_files_max: Some(open_files_max),
        file_bytes_max: Some(file_bytes_max),
        tmpfs_bytes_max: Some(tmpfs_bytes_max),
    };
    text.push_str("\n## `[build.limits]` and `[session.limits]`\n\n");
    table(&mut text, "LimitsConfig", &toml::Value::try_from(limits).unwrap());
    text
}

#[test]
fn the_document_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md");
    let wanted = document();
    if std::env::var_os("HANGAR_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    let now = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(now == wanted, "docs/configuration.md: write it with HANGAR_WRITE_DOCS=1");
    // Every key of the structures is in the document, and the other way round.
    let known: usize = [
        "Uploads",
        "Build",
        "Versions",
        "Session",
        "Tasks",
        "Warden",
        "Log",
        "Server",
        "ScopeLimits",
        "LimitsConfig",
    ]
    .map(|structure| keys(structure).len())
    .iter()
    .sum();
    assert_eq!(wanted.matches("\n| `").count(), known);
}
