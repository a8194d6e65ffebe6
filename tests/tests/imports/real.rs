//! What registries and packers really make, imported and compared with what GNU tar unpacks.

use crate::ground::Ground;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

type Tree = BTreeMap<String, Vec<u8>>;

fn tree(root: &Path) -> Tree {
    let (mut files, mut pending) = (Tree::new(), vec![root.to_owned()]);
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => pending.push(path),
                false => {
                    let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                    files.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    files
}

#[test]
fn packages_of_pip_and_npm_land_as_tar_unpacks_them() {
    let ground = Ground::new();
    let session = ground.daemon.session(&json!({ "network": "egress" }));
    let fetched = session.bash(
        "cd $WORKSPACE && npm pack --silent ms@2.1.3 && \
         pip download -q --no-deps --no-binary :all: --no-build-isolation six==1.17.0 && ls",
    );
    assert_eq!(fetched.status(), "0", "{}{}", fetched.out(), fetched.err());
    let files = ground.daemon.get(&format!("/v1/sessions/{}/files", session.id));
    let files = files["files"].as_array().or(files.as_array()).expect("files").clone();
    for wanted in ["ms-2.1.3.tgz", "six-1.17.0.tar.gz"] {
        let named = |file: &&serde_json::Value| file.to_string().contains(&format!("\"{wanted}\""));
        let file = files.iter().find(named).unwrap_or_else(|| panic!("{wanted}: {files:?}"));
        let (container, id) = (&file["container_id"], &file["id"]);
        let path = format!(
            "/v1/containers/{}/files/{}/content",
            container.as_str().unwrap(),
            id.as_str().unwrap()
        );
        let archive = ground.daemon.ask("GET", &path, &json!({})).body;
        let answer = ground.takes(archive.clone());
        assert_eq!(answer["skipped"], 0, "{answer}");
        let (out, packed) = (ground.path("out"), ground.path("archive"));
        fs::write(&packed, &archive).unwrap();
        fs::create_dir(&out).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["-xzf"]).arg(&packed).args(["--strip-components=1", "-C"]).arg(&out);
        assert!(tar.status().unwrap().success());
        let (ours, theirs) = (tree(&ground.source()), tree(&out));
        assert!(ours.len() > 3 && ours == theirs, "{wanted}: {:?}", ours.keys());
        fs::remove_dir_all(&out).unwrap();
    }
}
