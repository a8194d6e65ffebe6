//! `hangar env` and `hangar token` on files, versions and what is kept.

use super::{Place, stderr, stdout};
use serde_json::Value;

/// Runs a command that has to succeed.
fn run(place: &Place, words: &[&str]) -> String {
    let output = place.hangar(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs a command that has to fail, and takes what it says.
fn fail(place: &Place, words: &[&str]) -> String {
    let output = place.hangar(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}");
    assert_eq!(stdout(&output), "", "{words:?}");
    stderr(&output)
}

#[test]
fn files_are_pushed_listed_and_removed() {
    let place = Place::with_server(&[]);
    run(&place, &["env", "create", "files"]);
    assert_eq!(run(&place, &["env", "push", "files", "tiny/run.py"]), "run.py: 15 bytes\n");
    place.write("brand/logo 1.txt", "logo");
    place.write("brand/node_modules/x.js", "x");
    run(&place, &["env", "push", "files", "brand", "--to", "assets/brand"]);
    run(&place, &["env", "push", "files", "tiny/run.py", "--to", "assets/100%.py"]);
    let listed = run(&place, &["env", "files", "files"]);
    for line in ["assets/", "assets/100%.py", "assets/brand/logo 1.txt", "run.py"] {
        assert!(listed.lines().any(|listed| listed.ends_with(line)), "{line}: {listed}");
    }
    assert!(!listed.contains("node_modules"), "{listed}");
    assert_eq!(run(&place, &["env", "files", "files", "assets/brand/logo 1.txt"]), "logo");
    let all = place.json(&["env", "files", "files", "--json"]);
    assert_eq!(all["count"], 3);
    run(&place, &["env", "rm", "files", "--file", "assets"]);
    assert_eq!(place.json(&["env", "files", "files", "--json"])["count"], 1);
    let gone = fail(&place, &["env", "files", "files", "assets/100%.py"]);
    assert!(gone.contains("no such file"), "{gone}");
    // An import replaces, a push does not.
    run(&place, &["env", "import", "files", "brand"]);
    assert_eq!(
        place.json(&["env", "files", "files", "--json"])["entries"][0]["path"],
        "logo 1.txt"
    );
}

#[test]
fn settings_are_changed_one_at_a_time() {
    let place = Place::with_server(&[]);
    run(&place, &["env", "create", "set", "--entry", "run", "--pip", "six==1.16.0"]);
    let set = |words: &[&str]| -> Value {
        place.json(&[&["env", "set", "set", "--json"], words].concat())
    };
    let changed = set(&["--npm", "left-pad", "--python", "3.11", "--name", "Other"]);
    assert_eq!((&changed["name"], &changed["entry"]), (&"Other".into(), &"run".into()));
    assert_eq!(changed["declared"]["pip"][0]["version"], "1.16.0");
    assert_eq!(changed["declared"]["npm"][0]["name"], "left-pad");
    assert_eq!(set(&["--pip", ""])["declared"]["pip"], serde_json::json!([]));
    let wrong = fail(&place, &["env", "set", "set", "--pip=--pre"]);
    assert!(
        wrong.contains("no package specification") || wrong.contains("not a package"),
        "{wrong}"
    );
}

#[test]
fn versions_are_compared_measured_and_removed() {
    let place = Place::with_server(&[]);
    run(&place, &["env", "create", "versions"]);
    for text in ["one", "two", "three"] {
        place.write("tiny/run.py", text);
        run(&place, &["env", "import", "versions", "tiny"]);
        run(&place, &["env", "build", "versions"]);
    }
    let diff = run(&place, &["env", "diff", "versions", "1"]);
    assert!(diff.starts_with("~ run.py 3 bytes"), "{diff}");
    assert!(diff.ends_with("0 added, 0 removed, 1 changed\n"), "{diff}");
    let diff = place.json(&["env", "diff", "versions", "1", "2", "--json"]);
    assert_eq!(diff["files"]["changed"], 1);
    let usage = run(&place, &["env", "usage", "versions"]);
    assert!(usage.contains("version 3") && usage.contains("on disk"), "{usage}");
    let active = fail(&place, &["env", "rm", "versions", "--version", "3"]);
    assert!(active.contains("activate another one"), "{active}");
    run(&place, &["env", "rm", "versions", "--version", "1"]);
    let missing = fail(&place, &["env", "diff", "versions", "1"]);
    assert!(missing.contains("no such version"), "{missing}");
    run(&place, &["env", "set", "versions", "--keep-last", "1"]);
    let left = place.json(&["env", "versions", "versions", "--json"]);
    assert_eq!(left["versions"].as_array().unwrap().len(), 1);
    assert_eq!(
        place.json(&["env", "harnesses", "versions", "--json"])["harnesses"],
        serde_json::json!([])
    );
}

#[test]
fn a_token_lets_a_client_in_until_it_is_revoked() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let place = Place::with_server(&["--listen", &address]);
    let token = run(&place, &["token", "create", "ci", "--scope", "team", "--role", "read"]);
    let url = format!("http://{address}");
    let remote = |words: &[&str]| {
        let mut command = place.hangar(words);
        command.args(["--server", &url]).env("HANGAR_TOKEN", token.trim()).output().unwrap()
    };
    assert_eq!(remote(&["env", "list"]).status.code(), Some(0));
    let refused = remote(&["env", "create", "x"]);
    assert!(stderr(&refused).contains("for reading only"), "{}", stderr(&refused));
    let managed = remote(&["token", "list"]);
    assert!(stderr(&managed).contains("local socket"), "{}", stderr(&managed));
    let listed = place.json(&["token", "list", "--json"]);
    let made = listed["tokens"].as_array().unwrap().iter().find(|one| one["name"] == "ci").unwrap();
    assert_eq!((&made["scope"], &made["role"]), (&"team".into(), &"read".into()));
    run(&place, &["token", "revoke", made["id"].as_str().unwrap()]);
    assert_eq!(remote(&["env", "list"]).status.code(), Some(1));
}
