//! Node manifests: what they ask for, and whether what they install can be kept.

use super::manifests::{Files, Kept};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the Node manifests of a source ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// There is a `package.json`.
    pub manifest: bool,
    /// There is a lock file, so that `npm ci` is possible.
    pub locked: bool,
    /// Packages the owner named beside the manifest.
    pub declared: Vec<String>,
    /// Whether the installed dependencies can be kept, and by what.
    pub kept: Kept,
}

/// Lock files of npm, the one it prefers first.
const LOCKS: &[&str] = &["npm-shrinkwrap.json", "package-lock.json"];
/// Scripts npm runs when it installs; they can read any file of the source.
const LIFECYCLE: &[&str] =
    &["preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish"];
const DEPENDENCIES: &[&str] =
    &["dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides"];

/// Reads the Node manifests; `None` when there is nothing to install.
#[must_use]
pub fn detect(files: Files<'_>, declared: &[String]) -> Option<Node> {
    let manifest = files("package.json");
    if manifest.is_none() && declared.is_empty() {
        return None;
    }
    let lock = LOCKS.iter().find_map(|name| Some((*name, files(name)?)));
    let mut inputs = BTreeMap::new();
    let mut kept = manifest.as_ref().map_or(Ok(()), |bytes| package(bytes));
    if let Some((name, bytes)) = &lock {
        kept = kept.and(lock_file(bytes));
        inputs.insert((*name).to_owned(), bytes.clone());
    }
    if files("binding.gyp").is_some() {
        kept = kept.and(Err("binding.gyp compiles files of the source"));
    }
    kept = declared.iter().fold(kept, |kept, spec| kept.and(specification(spec)));
    inputs.extend(manifest.clone().map(|bytes| ("package.json".to_owned(), bytes)));
    inputs.extend(files(".npmrc").map(|bytes| (".npmrc".to_owned(), bytes)));
    inputs.insert("declared".to_owned(), declared.join("\n").into_bytes());
    Some(Node {
        manifest: manifest.is_some(),
        locked: lock.is_some(),
        declared: declared.to_vec(),
        kept: match kept {
            Ok(()) => Kept::By(inputs),
            Err(why) => Kept::Never(why),
        },
    })
}

fn package(bytes: &[u8]) -> Result<(), &'static str> {
    // npm itself says what is wrong with a manifest that is no JSON.
    let package: Value =
        serde_json::from_slice(bytes).map_err(|_| "package.json cannot be parsed")?;
    if package.get("workspaces").is_some() {
        return Err("package.json has workspaces");
    }
    let scripts = package.get("scripts");
    if LIFECYCLE.iter().any(|name| scripts.and_then(|all| all.get(name)).is_some()) {
        return Err("package.json has scripts that run on installation");
    }
    for list in DEPENDENCIES {
        package.get(list).map_or(Ok(()), versions)?;
    }
    Ok(())
}

/// Looks at every version in a list of dependencies; lists of overrides nest.
fn versions(value: &Value) -> Result<(), &'static str> {
    match value {
        Value::String(text) => specification(text),
        Value::Object(all) => all.values().try_for_each(versions),
        _ => Ok(()),
    }
}

/// Refuses what refers to files of the source: they can change while the manifest stays.
fn specification(text: &str) -> Result<(), &'static str> {
    let local = ["file:", "link:", "portal:", "workspace:", "./", "../", "/", "~/"];
    // A declared package can be written `name@file:…`.
    let version = text.rsplit_once('@').map_or(text, |(_, version)| version);
    if local.iter().any(|begin| text.starts_with(begin) || version.starts_with(begin)) {
        return Err("a package refers to local files");
    }
    Ok(())
}

fn lock_file(bytes: &[u8]) -> Result<(), &'static str> {
    let lock: Value = serde_json::from_slice(bytes).map_err(|_| "the lock cannot be parsed")?;
    let packages = lock.get("packages").and_then(Value::as_object);
    let local = packages.into_iter().flatten().any(|(_, package)| {
        let resolved = package.get("resolved").and_then(Value::as_str).unwrap_or_default();
        package.get("link") == Some(&Value::Bool(true)) || resolved.starts_with("file:")
    });
    if local { Err("the lock refers to local files") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(files: &[(&str, &str)]) -> Option<Node> {
        let read = |name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
        };
        detect(&read, &[])
    }

    #[test]
    fn a_lock_means_npm_ci_and_belongs_to_the_key() {
        let plain = detected(&[("package.json", "{}")]).unwrap();
        assert!(!plain.locked);
        let locked = detected(&[("package.json", "{}"), ("package-lock.json", "{}")]).unwrap();
        assert!(locked.locked);
        assert_ne!(plain.kept, locked.kept);
        assert!(matches!(locked.kept, Kept::By(_)));
        assert!(detected(&[("package-lock.json", "{}")]).is_none());
    }

    #[test]
    fn what_reads_the_source_is_never_kept() {
        for text in [
            r#"{"scripts": {"postinstall": "node make.js"}}"#,
            r#"{"scripts": {"prepare": "tsc"}}"#,
            r#"{"workspaces": ["packages/*"]}"#,
            r#"{"dependencies": {"a": "file:../a"}}"#,
            r#"{"devDependencies": {"a": "link:./a"}}"#,
            r#"{"dependencies": {"a": "./a"}}"#,
            r#"{"overrides": {"a": {"b": "file:b"}}}"#,
            "no json",
        ] {
            let kept = detected(&[("package.json", text)]).unwrap().kept;
            assert!(matches!(kept, Kept::Never(_)), "{text}");
        }
        let lock = r#"{"packages": {"node_modules/a": {"link": true, "resolved": "a"}}}"#;
        let files = [("package.json", "{}"), ("package-lock.json", lock)];
        assert!(matches!(detected(&files).unwrap().kept, Kept::Never(_)));
        let gyp = [("package.json", "{}"), ("binding.gyp", "{}")];
        assert!(matches!(detected(&gyp).unwrap().kept, Kept::Never(_)));
    }

    #[test]
    fn what_comes_from_a_registry_is_kept() {
        for text in [
            r#"{"scripts": {"test": "node t.js", "build": "tsc"}, "dependencies": {"sharp": "^0.34"}}"#,
            r#"{"dependencies": {"a": "npm:b@1", "c": "git+https://example.org/c.git#v1"}}"#,
        ] {
            let kept = detected(&[("package.json", text)]).unwrap().kept;
            assert!(matches!(kept, Kept::By(_)), "{text}");
        }
    }
}
