//! Whether an answer is what the protocol, or this server's documentation, says it is.
//!
//! The schemas in `tests/schemas/uhp.json` are stricter than the protocol's own: what the server
//! always tells is required.

use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

static SCHEMAS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../schemas/uhp.json")).expect("the schemas are JSON")
});
static COMPILED: LazyLock<Mutex<HashMap<&'static str, Validator>>> = LazyLock::new(Mutex::default);

/// What each route answers: method, path with a `*` for each part that is a name, schema.
const ANSWERS: &[(&str, &str, &str)] = &[
    ("GET", "uhp", "Discovery"),
    ("POST", "environments", "Environment"),
    ("GET", "environments", "EnvironmentList"),
    ("GET", "environments/runtimes", "Runtimes"),
    ("GET", "environments/packages/check", "PackageCheck"),
    ("GET", "environments/*", "Environment"),
    ("PUT", "environments/*", "Environment"),
    ("DELETE", "environments/*", "Deleted"),
    ("GET", "environments/*/files", "FileList"),
    ("PUT", "environments/*/files/**", "FileWritten"),
    ("DELETE", "environments/*/files/**", "FileRemoved"),
    ("POST", "environments/*/directories", "DirectoryMade"),
    ("POST", "environments/*/import", "Imported"),
    ("POST", "environments/*/build", "BuildStarted"),
    ("GET", "environments/*/builds/*", "Build"),
    ("GET", "environments/*/versions", "VersionList"),
    ("POST", "environments/*/versions/*/activate", "Environment"),
    ("GET", "environments/*/harnesses", "EnvironmentHarnesses"),
    ("POST", "harnesses", "Harness"),
    ("GET", "harnesses", "HarnessList"),
    ("GET", "harnesses/*", "Harness"),
    ("PUT", "harnesses/*", "Harness"),
    ("DELETE", "harnesses/*", "Deleted"),
    ("GET", "harnesses/*/models", "HarnessModels"),
    ("GET", "harnesses/*/skills/*/files", "SkillFiles"),
    ("GET", "models", "ModelCatalog"),
    ("POST", "files", "Upload"),
    ("GET", "files", "UploadList"),
    ("GET", "files/*", "Upload"),
    ("DELETE", "files/*", "Deleted"),
    ("POST", "responses", "Response"),
    ("GET", "responses/*", "Response"),
    ("GET", "responses/*/input_items", "InputItems"),
    ("POST", "responses/*/cancel", "Response"),
    ("DELETE", "responses/*", "Deleted"),
    ("GET", "sessions/*/turns", "Turns"),
    ("POST", "sessions/*/cancel", "Session"),
    ("GET", "sessions", "SessionList"),
    ("GET", "sessions/*", "Session"),
    ("DELETE", "sessions/*", "Deleted"),
    ("POST", "sessions/*/share", "Share"),
    ("GET", "sessions/*/share", "Share"),
    ("DELETE", "sessions/*/share", "Deleted"),
    ("GET", "sessions/*/files", "ArtifactList"),
    ("GET", "shared/*", "SharedSession"),
    ("DELETE", "traces/*", "Deleted"),
    ("POST", "hangar/sessions", "Session"),
    ("GET", "hangar/ready", "Readiness"),
    ("GET", "hangar/environments/*/diff", "Diff"),
    ("GET", "hangar/environments/*/usage", "Usage"),
    ("GET", "hangar/environments/*/retention", "Retention"),
    ("PUT", "hangar/environments/*/retention", "Retention"),
    ("DELETE", "hangar/environments/*/versions/*", "Deleted"),
    ("POST", "hangar/environments/*/versions/*/verify", "Verification"),
];

/// Checks a JSON answer to a request.
///
/// # Panics
/// When no schema is known for the request, or the answer does not fit it.
pub fn check(method: &str, path: &str, status: u16, answer: &Value) {
    let name = if status < 400 { schema_of(method, path) } else { "Error" };
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let validator = compiled.entry(name).or_insert_with(|| compile(name));
    let wrong: Vec<_> = validator
        .iter_errors(answer)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{method} {path}: no {name}: {wrong:#?}\n{answer:#}");
}

fn compile(name: &str) -> Validator {
    let schema = json!({ "$ref": format!("#/$defs/{name}"), "$defs": SCHEMAS["$defs"] });
    jsonschema::draft202012::new(&schema).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn schema_of(method: &str, path: &str) -> &'static str {
    let path = path.split('?').next().unwrap_or_default();
    let path = path.strip_prefix("/v1/").unwrap_or(path);
    let fits = |pattern: &str| match pattern.strip_suffix("/**") {
        Some(begin) => {
            let count = begin.split('/').count();
            let parts: Vec<&str> = path.split('/').collect();
            parts.len() > count && is_like(begin, &parts[..count])
        }
        None => is_like(pattern, &path.split('/').collect::<Vec<_>>()),
    };
    let found = ANSWERS.iter().find(|(known, pattern, _)| *known == method && fits(pattern));
    found.unwrap_or_else(|| panic!("no schema is known for {method} {path}")).2
}

fn is_like(pattern: &str, parts: &[&str]) -> bool {
    let pattern: Vec<&str> = pattern.split('/').collect();
    pattern.len() == parts.len()
        && pattern.iter().zip(parts).all(|(one, other)| *one == "*" || one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_find_their_schemas() {
        for (method, path, name) in [
            ("GET", "/v1/environments/runtimes", "Runtimes"),
            ("GET", "/v1/environments/henv_1", "Environment"),
            ("PUT", "/v1/environments/henv_1/files/a/b%20c?x=1", "FileWritten"),
            ("GET", "/v1/environments/henv_1/files", "FileList"),
        ] {
            assert_eq!(schema_of(method, path), name);
        }
    }

    #[test]
    fn every_schema_is_one() {
        for name in SCHEMAS["$defs"].as_object().unwrap().keys() {
            compile(name);
        }
    }

    #[test]
    #[should_panic(expected = "no Deleted")]
    fn an_answer_that_does_not_fit_is_noticed() {
        check("DELETE", "/v1/environments/x", 200, &json!({ "id": "x", "deleted": false }));
    }

    #[test]
    #[should_panic(expected = "no Error")]
    fn an_error_names_no_path_of_the_host() {
        let error = json!({ "type": "server_error", "code": "x", "param": null, "detail": null,
                            "message": "opening /var/lib/hangar/db failed" });
        check("GET", "/v1/environments", 500, &json!({ "error": error }));
    }
}
