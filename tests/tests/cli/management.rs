//! `hangar env`, `session`, `audit`, and the server over TCP.

use super::{Place, stderr, stdout};
use std::net::TcpListener;

#[test]
fn an_environment_goes_through_its_life() {
    let place = Place::with_server(&[]);
    let made = place.json(&["env", "create", "Tiny One", "--entry", "python3 run.py", "--json"]);
    assert_eq!((&made["slug"], &made["status"]), (&"tiny-one".into(), &"empty".into()));
    let run = |words: &[&str]| {
        let output = place.hangar(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    };
    assert_eq!(run(&["env", "import", "tiny-one", "tiny"]), "1 files, 15 bytes\n");
    assert_eq!(run(&["env", "build", "tiny-one"]), "version 1: built\n");
    assert_eq!(run(&["env", "build", "tiny-one", "--if-changed"]), "version 1: unchanged\n");
    assert_eq!(run(&["env", "build", "tiny-one"]), "version 2: built\n");
    assert!(run(&["env", "log", "tiny-one", "1"]).contains("version 1 is ready"));
    assert!(run(&["env", "list"]).contains("tiny-one"));
    assert_eq!(place.json(&["env", "show", "tiny-one", "--json"])["version"], 2);
    run(&["env", "activate", "tiny-one", "1"]);
    let versions = place.json(&["env", "versions", "tiny-one", "--json"]);
    assert_eq!(
        (&versions["active"], versions["versions"].as_array().unwrap().len()),
        (&1.into(), 2)
    );
    assert_eq!(place.json(&["env", "verify", "tiny-one", "1", "--json"])["intact"], true);

    let id = made["id"].as_str().unwrap();
    let file = place.path(&format!("state/versions/{id}/1/tree/run.py"));
    let before = std::fs::metadata(&file).unwrap();
    std::fs::write(&file, "print('hellO')\n").unwrap();
    assert_eq!(std::fs::metadata(&file).unwrap().len(), before.len());
    let output = place.hangar(["env", "verify", "tiny-one", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("run.py"), "{}", stdout(&output));

    run(&["env", "rm", "tiny-one"]);
    let gone = place.hangar(["env", "show", "tiny-one"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(stderr(&gone).contains("there is no environment"), "{}", stderr(&gone));
}

#[test]
fn a_session_runs_commands_until_it_is_deleted() {
    let place = Place::with_server(&[]);
    place.run(&["--quiet"], &["true"]);
    let made = place.json(&["session", "create", "--environment", "tiny", "--json"]);
    let id = made["id"].as_str().unwrap();
    let exec = |text: &str| {
        let mut command = place.hangar(["session", "exec", id]);
        command.args(["--", "sh", "-c", text]).output().unwrap()
    };
    assert_eq!(exec("echo 1 > kept; exit 5").status.code(), Some(5));
    assert_eq!(stdout(&exec("cat kept; python3 $PROJECT_ROOT/run.py")), "1\nhello\n");
    assert_eq!(place.json(&["session", "show", id, "--json"])["status"], "running");
    let proof = place.json(&["audit", id, "--json"]);
    assert_eq!(proof["seccomp_mode"], 2);
    let shown = place.hangar(["audit", id]).output().unwrap();
    assert!(stdout(&shown).contains("no_new_privs: yes"), "{}", stdout(&shown));
    assert!(place.hangar(["session", "rm", id]).status().unwrap().success());
    assert_eq!(place.sessions(), [""; 0]);
    assert_eq!(exec("true").status.code(), Some(125));
}

#[test]
fn over_tcp_the_token_is_what_counts() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let place = Place::with_server(&["--listen", &address]);
    let url = format!("http://{address}");
    let list = |token: Option<&str>| {
        let mut command = place.hangar(["env", "list", "--server", &url]);
        command.env_remove("HANGAR_TOKEN");
        if let Some(token) = token {
            command.env("HANGAR_TOKEN", token);
        }
        command.output().unwrap()
    };
    let token = std::fs::read_to_string(place.path("state/token")).unwrap();
    assert_eq!(list(Some(token.trim())).status.code(), Some(0));
    for wrong in [None, Some("wrong")] {
        let output = list(wrong);
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
        assert!(stderr(&output).contains("--token-file"), "{}", stderr(&output));
    }
    let file = place.path("state/token");
    let mut command = place.hangar(["run", "--quiet", "--server", &url]);
    command.arg("--token-file").arg(file).args(["tiny", "--", "python3", "run.py"]);
    let output = command.output().unwrap();
    assert_eq!(stdout(&output), "hello\n", "{}", stderr(&output));
}
