//! What in a source is likely to fail later, said before anything runs. A hint decides nothing.

use super::manifests::{Files, MANIFEST_BYTES_MAX};
use super::requirements;
use super::source::Source;
use crate::app::{App, blocking};
use hangar_runtime::ids::EnvironmentId;
use serde_json::Value;
use std::collections::BTreeSet;

/// Looks for known traps in the source of an environment. A source that cannot be read is told by
/// whoever needs it.
pub async fn of_source(app: &App, id: &EnvironmentId) -> Vec<String> {
    let path = app.sources.path(id);
    blocking(move || {
        let source = Source::at(&path).ok();
        source.map_or_else(Vec::new, |source| {
            find(&|name| source.read_small(name, MANIFEST_BYTES_MAX))
        })
    })
    .await
}

/// Looks for known traps.
#[must_use]
pub fn find(files: Files<'_>) -> Vec<String> {
    let mut hints = Vec::new();
    hints.extend(files("setup.sh").iter().flat_map(|bytes| script(bytes)));
    hints.extend(files("requirements.txt").iter().filter_map(|bytes| encoding(bytes)));
    hints.extend(files("pyproject.toml").iter().filter_map(|bytes| version_from_git(bytes)));
    hints.extend(files("package-lock.json").iter().filter_map(|bytes| other_platforms(bytes)));
    hints.extend(files(".gitattributes").iter().filter_map(|bytes| large_files(bytes)));
    hints.extend(files(".gitmodules").map(|_| SUBMODULES.to_owned()));
    hints.extend(unused_locks(files));
    hints
}

/// bash takes a carriage return for a part of the last word of its line.
fn script(bytes: &[u8]) -> Vec<String> {
    let mut hints = Vec::new();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        hints.push("setup.sh begins with a byte order mark, which bash takes for text".to_owned());
    }
    let mut lines = bytes.split(|byte| *byte == b'\n');
    if let Some(at) = lines.position(|line| line.ends_with(b"\r")) {
        let line = at + 1;
        hints.push(format!(
            "CRLF line endings in setup.sh line {line}: bash takes the CR for a part of the line"
        ));
    }
    hints
}

fn encoding(bytes: &[u8]) -> Option<String> {
    let hint = "requirements.txt is neither UTF-8 nor says what else it is (`# coding: …`)";
    requirements::decode(bytes).is_none().then(|| hint.to_owned())
}

const SUBMODULES: &str =
    "the project has git submodules (.gitmodules); a build fetches none of them";

fn large_files(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let tracked: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("filter=lfs"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    (!tracked.is_empty()).then(|| {
        let tracked = tracked.join(", ");
        format!("files of git-lfs ({tracked}) can be pointers here; a build fetches none of them")
    })
}

/// Build backends that ask git for the version or for the files of the package.
const FROM_GIT: &[&str] =
    &["setuptools-scm", "setuptools_scm", "hatch-vcs", "versioningit", "dunamai", "pbr"];

fn version_from_git(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let asks = FROM_GIT.iter().find(|name| text.contains(**name))?;
    Some(format!(
        "{asks} reads the version from git, and a build has no .git; give the build a variable \
         such as SETUPTOOLS_SCM_PRETEND_VERSION"
    ))
}

/// Native parts of packages that a lock written on another system does not name.
fn other_platforms(bytes: &[u8]) -> Option<String> {
    let lock: Value = serde_json::from_slice(bytes).ok()?;
    let packages = lock.get("packages")?.as_object()?;
    let present: BTreeSet<&str> =
        packages.keys().filter_map(|path| path.rsplit("node_modules/").next()).collect();
    let optional = packages.values().filter_map(|p| p.get("optionalDependencies")?.as_object());
    let here = match std::env::consts::ARCH {
        "aarch64" => "linux-arm64",
        _ => "linux-x64",
    };
    let missing: Vec<&str> = optional
        .flat_map(|names| names.keys())
        .map(String::as_str)
        .filter(|name| name.contains(here) && !name.contains("musl") && !present.contains(name))
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "package-lock.json lacks parts for this system ({}); it was written on another one, \
             and npm does not add them: write it anew with `npm install` on Linux",
            missing.join(", ")
        )
    })
}

/// Lock files beside the one that is followed.
fn unused_locks(files: Files<'_>) -> Option<String> {
    let node = super::node::locks(files);
    let (followed, others) = node.split_first()?;
    (!others.is_empty()).then(|| format!("{} is not used beside {followed}", others.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, bytes: &[u8]) -> Vec<String> {
        find(&|asked| (asked == name).then(|| bytes.to_vec()))
    }

    #[test]
    fn traps_are_named_and_sound_files_are_not() {
        for (name, bytes, says) in [
            ("setup.sh", &b"#!/bin/bash\r\necho\r\n"[..], "CRLF line endings in setup.sh line 1"),
            ("setup.sh", b"\xef\xbb\xbf#!/bin/bash\n", "byte order mark"),
            ("requirements.txt", b"# caf\xe9\n", "neither UTF-8"),
            (".gitattributes", b"*.bin filter=lfs -text\n", "git-lfs (*.bin)"),
            (".gitmodules", b"", "submodules"),
            ("pyproject.toml", b"requires = ['setuptools-scm']", "SETUPTOOLS_SCM_PRETEND_VERSION"),
        ] {
            let hints = found(name, bytes);
            assert!(hints.len() == 1 && hints[0].contains(says), "{hints:?}");
        }
        assert!(found("setup.sh", b"#!/bin/bash\necho\n").is_empty());
        assert!(found("requirements.txt", b"six\r\n").is_empty());
        assert!(found(".gitattributes", b"*.txt text\n").is_empty());
    }

    #[test]
    fn a_lock_of_another_system_lacks_this_ones_parts() {
        let here = if std::env::consts::ARCH == "aarch64" { "arm64" } else { "x64" };
        let lock = |more: &str| {
            format!(
                r#"{{"packages": {{"node_modules/a": {{"optionalDependencies":
                {{"@a/linux-{here}": "1", "@a/darwin-arm64": "1"}}}}{more}}}}}"#
            )
        };
        let hints = found("package-lock.json", lock("").as_bytes());
        assert!(hints[0].contains(&format!("(@a/linux-{here})")), "{hints:?}");
        let whole = lock(&format!(r#", "node_modules/@a/linux-{here}": {{}}"#));
        assert!(found("package-lock.json", whole.as_bytes()).is_empty());
    }
}
