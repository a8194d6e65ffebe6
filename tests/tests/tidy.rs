//! Rules of the project that a compiler does not check.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the root").to_owned()
}

/// Every tracked or new file of the project with this suffix, relative to the root.
fn files(suffix: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![root()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).expect("list").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            if entry.file_type().expect("type").is_dir() {
                let skipped = ["target", ".git", "node_modules", ".venv"];
                if !skipped.iter().any(|skipped| name == *skipped) {
                    pending.push(path);
                }
            } else if name.to_string_lossy().ends_with(suffix) {
                found.push(path.strip_prefix(root()).expect("below").to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn crates_depend_in_one_direction() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("hangar", &["hangar-runtime", "hangar-rootfs", "hangar-runtime-sys"][..]),
        ("hangar-runtime", &["hangar-runtime-sys", "hangar-seccomp"]),
        ("hangar-runtime-sys", &[]),
        ("hangar-seccomp", &[]),
        ("hangar-rootfs", &[]),
        ("hangar-init", &["hangar-runtime"]),
        ("hangar-warden", &["hangar-runtime", "hangar-runtime-sys"]),
    ]);
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let mut seen = 0;
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("name");
        let Some(allowed) = allowed.get(name) else { continue };
        seen += 1;
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let on = dependency["name"].as_str().expect("name");
            let shipped = dependency["kind"] != "dev";
            if shipped && on.starts_with("hangar") {
                assert!(allowed.contains(&on), "{name} must not depend on {on}");
            }
        }
    }
    assert_eq!(seen, allowed.len(), "a crate is missing or has another name");
}

#[test]
fn unsafe_is_only_where_it_may_be() {
    let may = ["runtime/sys/", "tests/probe/", "seccomp/tests/"];
    for path in files(".rs") {
        let text = fs::read_to_string(root().join(&path)).expect("read");
        let name = path.to_string_lossy();
        if may.iter().any(|prefix| name.starts_with(prefix)) {
            continue;
        }
        let is_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
        if is_root {
            assert!(text.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
        }
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let word = ["un", "safe "].concat();
        for line in code.filter(|line| !line.contains("forbid(")) {
            let uses = line.trim_start().starts_with(&word) || line.contains(&format!(" {word}{{"));
            assert!(!uses, "{name}: {line}");
        }
    }
}

#[test]
fn links_between_documents_lead_somewhere() {
    for document in files(".md") {
        let text = fs::read_to_string(root().join(&document)).expect("read");
        let parent = document.parent().unwrap_or(Path::new(""));
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = target.split('#').next().unwrap_or("");
            if target.is_empty() || target.contains("://") {
                continue;
            }
            assert!(
                root().join(parent).join(target).exists(),
                "{}: {target} is not there",
                document.display()
            );
        }
    }
}
