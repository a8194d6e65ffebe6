//! Node manifests: what they ask for, and whether what they install can be kept.

use super::installers::Installer;
use super::manifests::{Files, Kept};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the Node manifests of a source ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// npm, or what wrote the lock file.
    pub installer: Installer,
    /// Yarn of its own, which a project can bring (`yarnPath` in `.yarnrc.yml`).
    pub yarn: Option<String>,
    /// There is a `package.json`.
    pub manifest: bool,
    /// There is a lock file, which is followed to the letter.
    pub locked: bool,
    /// Packages the owner named beside the manifest.
    pub declared: Vec<String>,
    /// Whether the installed dependencies can be kept, and by what.
    pub kept: Kept,
}

/// Lock files, the one that is followed first.
const LOCKS: &[&str] = &["npm-shrinkwrap.json", "package-lock.json", "pnpm-lock.yaml", "yarn.lock"];
/// Scripts npm runs when it installs; they can read any file of the source.
const LIFECYCLE: &[&str] =
    &["preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish"];
const DEPENDENCIES: &[&str] =
    &["dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "overrides"];

/// The lock files of a source, the one that is followed first: that of the manager
/// `packageManager` names, else npm's own.
#[must_use]
pub fn locks(files: Files<'_>) -> Vec<&'static str> {
    let Some(manifest) = files("package.json") else { return Vec::new() };
    let package: Value = serde_json::from_slice(&manifest).unwrap_or_default();
    let named = package.get("packageManager").and_then(Value::as_str).unwrap_or_default();
    let preferred = match named.split('@').next() {
        Some("pnpm") => "pnpm-lock.yaml",
        Some("yarn") => "yarn.lock",
        _ => "",
    };
    let mut found: Vec<_> = LOCKS.iter().copied().filter(|name| files(name).is_some()).collect();
    found.sort_by_key(|name| *name != preferred);
    found
}

/// Reads the Node manifests; `None` when there is nothing to install.
#[must_use]
pub fn detect(files: Files<'_>, declared: &[String]) -> Option<Node> {
    let manifest = files("package.json");
    if manifest.is_none() && declared.is_empty() {
        return None;
    }
    let lock = locks(files).first().and_then(|name| Some((*name, files(name)?)));
    let installer = lock.as_ref().map_or(Installer::Npm, |(name, bytes)| installer(name, bytes));
    let mut inputs = BTreeMap::new();
    let mut kept = manifest.as_ref().map_or(Ok(()), |bytes| package(bytes));
    if let Some((name, bytes)) = &lock {
        kept = kept.and(local_in_lock(installer, bytes));
        inputs.insert((*name).to_owned(), bytes.clone());
    }
    if files("binding.gyp").is_some() {
        kept = kept.and(Err("binding.gyp compiles files of the source"));
    }
    if installer == Installer::Pnpm && files("pnpm-workspace.yaml").is_some() {
        kept = kept.and(Err("there is a pnpm-workspace.yaml"));
    }
    kept = declared.iter().fold(kept, |kept, spec| kept.and(specification(spec)));
    inputs.extend(manifest.clone().map(|bytes| ("package.json".to_owned(), bytes)));
    for name in [".npmrc", ".yarnrc", ".pnpmfile.cjs"] {
        inputs.extend(files(name).map(|bytes| (name.to_owned(), bytes)));
    }
    inputs.insert("declared".to_owned(), declared.join("\n").into_bytes());
    Some(Node {
        installer,
        yarn: (installer == Installer::YarnBerry).then(|| yarn_path(files)).flatten(),
        manifest: manifest.is_some(),
        locked: lock.is_some(),
        declared: declared.to_vec(),
        kept: match kept {
            Ok(()) => Kept::By(inputs),
            Err(why) => Kept::Never(why),
        },
    })
}

/// What wrote a lock. Yarn changed the format of its own with version 2.
fn installer(name: &str, bytes: &[u8]) -> Installer {
    let is_berry = || bytes.split(|b| *b == b'\n').any(|line| line.starts_with(b"__metadata:"));
    match name {
        "pnpm-lock.yaml" => Installer::Pnpm,
        "yarn.lock" if is_berry() => Installer::YarnBerry,
        "yarn.lock" => Installer::Yarn,
        _ => Installer::Npm,
    }
}

/// The Yarn a project brings along, as a path below its root.
fn yarn_path(files: Files<'_>) -> Option<String> {
    let settings = files(".yarnrc.yml")?;
    let settings = String::from_utf8_lossy(&settings).into_owned();
    let path = settings.lines().find_map(|line| line.strip_prefix("yarnPath:"))?;
    let path = path.trim().trim_matches(['"', '\'']).to_owned();
    files(&path).map(|_| path)
}

/// Refuses locks with packages of the source in them.
fn local_in_lock(installer: Installer, bytes: &[u8]) -> Result<(), &'static str> {
    let local: &[&str] = match installer {
        Installer::Npm => return lock_file(bytes),
        // It writes beside its own files below `.yarn`, which come from the source.
        Installer::YarnBerry => {
            return Err("Yarn 2 and newer keep packages beside files of the source");
        }
        Installer::Pnpm => &[" link:", " file:", "@file:", " directory:"],
        _ => &["@file:", "@link:"],
    };
    let text = std::str::from_utf8(bytes).map_err(|_| "the lock cannot be parsed")?;
    match local.iter().any(|begin| text.contains(begin)) {
        true => Err("the lock refers to local files"),
        false => Ok(()),
    }
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

    #[test]
    fn the_lock_tells_what_wrote_it() {
        let berry = "__metadata:\n  version: 8\n";
        for (name, text, expected) in [
            ("package-lock.json", "{}", Installer::Npm),
            ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n", Installer::Pnpm),
            ("yarn.lock", "# yarn lockfile v1\n", Installer::Yarn),
            ("yarn.lock", berry, Installer::YarnBerry),
        ] {
            let found = detected(&[("package.json", "{}"), (name, text)]).unwrap();
            assert_eq!((found.installer, found.locked), (expected, true), "{name}");
        }
        let settings = (".yarnrc.yml", "nodeLinker: node-modules\nyarnPath: .yarn/y.cjs\n");
        let files = [("package.json", "{}"), ("yarn.lock", berry), settings, (".yarn/y.cjs", "")];
        assert_eq!(detected(&files).unwrap().yarn.as_deref(), Some(".yarn/y.cjs"));
        assert_eq!(detected(&files[..3]).unwrap().yarn, None, "it is not there");
    }

    #[test]
    fn of_several_locks_the_named_manager_decides() {
        let locks = [("package-lock.json", "{}"), ("pnpm-lock.yaml", "")];
        let with = |package| detected(&[("package.json", package), locks[0], locks[1]]).unwrap();
        assert_eq!(with("{}").installer, Installer::Npm);
        assert_eq!(with(r#"{"packageManager": "pnpm@9.0.0"}"#).installer, Installer::Pnpm);
    }

    #[test]
    fn words_of_a_lock_that_only_look_like_local_references_are_none() {
        let lock = "settings:\n  excludeLinksFromLockfile: false\n";
        let kept = detected(&[("package.json", "{}"), ("pnpm-lock.yaml", lock)]).unwrap().kept;
        assert!(matches!(kept, Kept::By(_)));
    }

    #[test]
    fn locks_of_other_managers_with_local_packages_are_never_kept() {
        for (name, text) in [
            ("pnpm-lock.yaml", "        version: link:lib"),
            ("yarn.lock", "\"a@file:./a\":"),
            ("yarn.lock", "__metadata:"),
        ] {
            let kept = detected(&[("package.json", "{}"), (name, text)]).unwrap().kept;
            assert!(matches!(kept, Kept::Never(_)), "{text}");
        }
    }
}
