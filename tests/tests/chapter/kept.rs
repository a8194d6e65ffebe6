//! Versions beside each other: what differs, what they take, and which stay.

use hangar_tests::checked::{Checked, refusal};
use serde_json::{Value, json};

fn numbers(server: &Checked, id: &str) -> Vec<u64> {
    let listed = server.get(&format!("/v1/environments/{id}/versions"));
    let versions = listed["versions"].as_array().unwrap();
    versions.iter().map(|version| version["version"].as_u64().unwrap()).collect()
}

#[test]
fn two_versions_differ_in_what_was_changed() {
    let server = Checked::start();
    let id = server.environment("diff", &[("same", "x"), ("gone", "x"), ("run.py", "one")]);
    assert_eq!(server.build(&id)["status"], "ready");
    server.put_file(&id, "run.py", "two!");
    server.put_file(&id, "new/file", "new");
    let gone = format!("/v1/environments/{id}/files/gone");
    assert_eq!(server.call("DELETE", &gone, b"").status, 200);
    assert_eq!(server.build(&id)["status"], "ready");
    let path = format!("/v1/hangar/environments/{id}/diff");
    let diff = server.get(&format!("{path}?from=1&to=2"));
    let entries = diff["files"]["entries"].as_array().unwrap();
    let paths: Vec<_> = entries.iter().map(|entry| entry["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["gone", "new", "new/file", "run.py"]);
    assert_eq!(
        (&entries[3]["before"]["bytes"], &entries[3]["after"]["bytes"]),
        (&json!(3), &json!(4))
    );
    assert_eq!((&entries[0]["after"], &entries[2]["before"]), (&Value::Null, &Value::Null));
    let files = &diff["files"];
    let counts = ["added", "removed", "changed"].map(|name| files[name].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 1]);
    let same = server.get(&format!("{path}?from=2&to=2"));
    assert_eq!((&same["files"]["entries"], &same["packages"]), (&json!([]), &json!([])));
    assert_eq!(server.get(&format!("{path}?from=1&to=2&limit=1"))["files"]["truncated"], true);
    for (query, expected) in [
        ("from=1&to=9", (404, "hangar_version_not_found")),
        ("from=1", (400, "invalid_input")),
        ("from=1&to=x", (400, "invalid_input")),
    ] {
        let refused = refusal(&server.call("GET", &format!("{path}?{query}"), b""));
        assert_eq!((refused.0, refused.1.as_str()), expected, "{query}");
    }
    // Nothing of a comparison is left behind.
    let left = std::fs::read_dir(server.state().join("api/uploads")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kept"], "what clients sent ahead has a place of its own");
}

#[test]
fn a_file_that_versions_share_costs_once() {
    let server = Checked::start();
    let id = server.environment("usage", &[("run.py", "one")]);
    let large = vec![b'x'; 4 << 20];
    server.put_file(&id, "large", &large);
    let path = format!("/v1/hangar/environments/{id}/usage");
    assert_eq!(server.get(&path)["versions"], json!([]), "never built");
    for text in ["one", "two", "three"] {
        server.put_file(&id, "run.py", text);
        assert_eq!(server.build(&id)["status"], "ready");
    }
    let usage = server.get(&path);
    let versions = usage["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 3);
    for version in versions {
        assert!(version["disk_bytes"].as_u64().unwrap() >= large.len() as u64, "{usage}");
        assert!(version["own_disk_bytes"].as_u64().unwrap() < large.len() as u64, "{usage}");
    }
    let all = usage["disk_bytes"].as_u64().unwrap();
    assert!((large.len() as u64..2 * large.len() as u64).contains(&all), "{usage}");
    assert_eq!(usage["source"]["files"], 2);
}

#[test]
fn a_version_in_use_stays() {
    let server = Checked::start();
    let id = server.environment("in-use", &[("run.py", "x")]);
    for _ in 0..3 {
        assert_eq!(server.build(&id)["status"], "ready");
    }
    let version = |number: u64| format!("/v1/hangar/environments/{id}/versions/{number}");
    let session = server.daemon().session(&json!({ "environment": id, "version": 1 }));
    for number in [1, 3] {
        let refused = refusal(&server.call("DELETE", &version(number), b""));
        assert_eq!(refused, (409, "hangar_version_in_use".to_owned()), "version {number}");
    }
    assert_eq!(session.bash("cat $PROJECT_ROOT/run.py").out(), "x");
    assert_eq!(server.call("DELETE", &version(2), b"").status, 200);
    assert_eq!(numbers(&server, &id), [3, 1]);
    let gone = refusal(&server.call("DELETE", &version(2), b""));
    assert_eq!(gone, (404, "hangar_version_not_found".to_owned()));
    let tree = server.state().join(format!("versions/{id}"));
    assert!(!tree.join("2").exists() && tree.join("1").exists());
    session.delete();
    assert_eq!(server.call("DELETE", &version(1), b"").status, 200);
    assert_eq!(server.build(&id)["version"], 4, "no number is used twice");
}

#[test]
fn only_the_newest_versions_are_kept() {
    let server = Checked::configured("[versions]\nkeep_last = 2\n", &[]);
    let id = server.environment("kept", &[("run.py", "x")]);
    assert_eq!(server.build(&id)["status"], "ready");
    let session = server.daemon().session(&json!({ "environment": id }));
    for _ in 0..4 {
        assert_eq!(server.build(&id)["status"], "ready");
    }
    // They go right after the build is told to be ready.
    crate::until("two are kept, and the one that is read", || numbers(&server, &id) == [5, 4, 1]);
    assert_eq!(session.bash("cat $PROJECT_ROOT/run.py").out(), "x");
    let log = server.state().join(format!("api/logs/{id}/2.log"));
    assert!(!log.exists() && !server.state().join(format!("versions/{id}/2")).exists());
    session.delete();
    let retention = format!("/v1/hangar/environments/{id}/retention");
    assert_eq!(server.get(&retention)["default_keep_last"], 2);
    let activate = format!("/v1/environments/{id}/versions/4/activate");
    server.send("POST", &activate, &json!({}));
    assert_eq!(server.send("PUT", &retention, &json!({ "keep_last": 1 }))["keep_last"], 1);
    assert_eq!(numbers(&server, &id), [5, 4], "the newest and the active one");
    let zero = refusal(&server.call("PUT", &retention, br#"{"keep_last": 0}"#));
    assert_eq!(zero, (400, "invalid_input".to_owned()));
}

/// The directories of kept packages of an environment.
fn kept_trees(server: &Checked, id: &str) -> Vec<String> {
    let versions = server.state().join("versions").join(id);
    let names = std::fs::read_dir(versions).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("dependencies-")).collect()
}

#[test]
fn packages_go_with_the_last_version_that_has_them() {
    let server = Checked::start();
    let id = server.environment("packages", &[("requirements.txt", "# one\n")]);
    assert_eq!(server.build(&id)["status"], "ready");
    let first = kept_trees(&server, &id);
    assert_eq!(first.len(), 1);
    server.put_file(&id, "requirements.txt", "# two\n");
    // Two versions are kept, and so are the packages of both.
    assert_eq!(server.build(&id)["status"], "ready");
    assert_eq!(kept_trees(&server, &id).len(), 2);
    let path = format!("/v1/hangar/environments/{id}/retention");
    // What was kept in the second in which a build began is given up with the next one.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    server.put_file(&id, "run.py", "pass");
    let again = server.build(&id);
    assert!(again["log"].as_str().unwrap().contains("packages of an earlier build"), "{again}");
    assert_eq!(server.call("PUT", &path, br#"{"keep_last": 1}"#).status, 200);
    super::until("the packages of the first version go", || kept_trees(&server, &id).len() == 1);
    assert_ne!(kept_trees(&server, &id), first);
    server.put_file(&id, "run.py", "1");
    let last = server.build(&id);
    assert!(last["log"].as_str().unwrap().contains("packages of an earlier build"), "{last}");
    assert_eq!(
        server.call("POST", &format!("/v1/hangar/environments/{id}/versions/4/verify"), b"").status,
        200
    );
}
