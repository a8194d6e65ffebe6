//! Logs of builds, and how a build's end is told.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::{Answer, exchange};
use serde_json::{Value, json};
use std::os::unix::net::UnixStream;

fn log(server: &Checked, id: &str, number: u64, offset: usize) -> Answer {
    let path = format!("/v1/hangar/environments/{id}/builds/{number}/log?offset={offset}");
    server.call("GET", &path, b"")
}

pub fn every_attempt_has_a_log_of_its_own() {
    let mut server = Checked::start();
    let waits = "echo first attempt; while [ ! -e go ]; do sleep 0.05; done\n";
    let id = server.environment("e07", &[("setup.sh", waits)]);
    server.send("POST", &format!("/v1/environments/{id}/build"), &json!({}));
    crate::until("setup.sh runs", || {
        log(&server, &id, 1, 0).body.windows(14).any(|part| part == b"\nfirst attempt")
    });
    server.crash_and_restart();
    let first = log(&server, &id, 1, 0);
    assert_eq!(first.field("hangar-log-state"), Some("complete"));
    server.put_file(&id, "setup.sh", "echo second attempt\n");
    assert_eq!(server.build(&id)["version"], 2);
    assert_eq!(log(&server, &id, 1, 0).body, first.body, "it does not change any more");
    let second = String::from_utf8(log(&server, &id, 2, 0).body).unwrap();
    assert!(second.contains("\nsecond attempt\n") && !second.contains("first attempt"));
    let at = second.find("second attempt").unwrap();
    assert_eq!(log(&server, &id, 2, at).body, second.as_bytes()[at..], "offsets are stable");
    assert!(log(&server, &id, 2, second.len() + 5).body.is_empty());
}

/// The events of a stream: id, kind, data.
fn events(answer: &Answer) -> Vec<(Option<usize>, String, Value)> {
    let text = String::from_utf8(answer.body.clone()).unwrap();
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name).map(|v| v.trim_start().to_owned()))
    };
    let blocks = text.split("\n\n").filter(|block| block.contains("event:"));
    let parsed = blocks.map(|event| {
        let data = serde_json::from_str(&field(event, "data:").unwrap()).unwrap();
        let id = field(event, "id:").map(|id| id.parse().unwrap());
        (id, field(event, "event:").unwrap(), data)
    });
    parsed.collect()
}

fn follow(server: &Checked, id: &str, last: Option<usize>) -> Vec<(Option<usize>, String, Value)> {
    let path = format!("/v1/hangar/environments/{id}/builds/1/log");
    let last = last.map(|last| last.to_string());
    let mut fields = vec![("Accept", "text/event-stream")];
    fields.extend(last.as_deref().map(|last| ("Last-Event-ID", last)));
    let stream = UnixStream::connect(server.daemon().socket()).unwrap();
    let answer = exchange(stream, "GET", &path, &fields, b"").unwrap();
    assert_eq!(answer.field("content-type"), Some("text/event-stream"));
    events(&answer)
}

pub fn a_log_is_followed_and_resumed() {
    let server = Checked::start();
    let setup = "for i in $(seq 20); do echo \"line $i é\"; sleep 0.02; done\n";
    let id = server.environment("e07", &[("setup.sh", setup)]);
    server.send("POST", &format!("/v1/environments/{id}/build"), &json!({}));
    // Followed while it grows: the stream ends with the build.
    let all = follow(&server, &id, None);
    let (_, kind, end) = all.last().unwrap();
    assert_eq!((kind.as_str(), &end["status"]), ("end", &json!("ready")));
    let whole = String::from_utf8(log(&server, &id, 1, 0).body).unwrap();
    let text = |events: &[(Option<usize>, String, Value)]| -> String {
        events.iter().filter_map(|(_, _, data)| data["text"].as_str()).collect()
    };
    assert_eq!(text(&all), whole);
    assert!(all.len() > 2, "it came in pieces");
    // Cut off behind the first event, and resumed by its id.
    let (first, _, data) = &all[0];
    let rest = follow(&server, &id, *first);
    assert_eq!(format!("{}{}", data["text"].as_str().unwrap(), text(&rest)), whole);
    assert_eq!(follow(&server, &id, Some(whole.len())).len(), 1, "only the end is left");
}

pub fn a_failed_build_says_so_everywhere() {
    let server = Checked::start();
    let id = server.environment("e11", &[("setup.sh", "echo broken >&2; exit 3\n")]);
    let path = format!("/v1/environments/{id}");
    let started = server.send("POST", &format!("{path}/build"), &json!({}));
    // It is there at once.
    let number = started["version"].as_u64().unwrap();
    let _now = server.get(&format!("{path}/builds/{number}"));
    let build = server.ended_build(&id, number);
    let reason = build["error"].as_str().unwrap();
    assert_eq!(
        (&build["status"], reason.contains("status 3")),
        (&json!("failed"), true),
        "{build}"
    );
    assert!(build["log"].as_str().unwrap().contains("broken"));
    let shown = server.get(&path);
    assert_eq!((&shown["status"], &shown["build"]["error"]), (&json!("failed"), &json!(reason)));
    let said = |answer: Answer| {
        assert_eq!(refusal(&answer), (409, "environment_not_ready".to_owned()));
        let error = answer.json()["error"].clone();
        assert!(error["message"].as_str().unwrap().contains(reason), "{error}");
        assert_eq!(error["detail"]["status"], "failed");
    };
    said(server.call("POST", &format!("{path}/versions/1/activate"), b"{}"));
    let asked = json!({ "environment": id }).to_string();
    said(server.call("POST", "/v1/hangar/sessions", asked.as_bytes()));
    let asked = json!({ "environment": id, "version": 1 }).to_string();
    said(server.call("POST", "/v1/hangar/sessions", asked.as_bytes()));
    said(server.call("POST", &format!("/v1/hangar/environments/{id}/versions/1/verify"), b"{}"));
}

pub fn a_ready_build_says_so_everywhere() {
    let server = Checked::start();
    let id = server.environment("e11", &[("setup.sh", "echo fine\n")]);
    let path = format!("/v1/environments/{id}");
    assert_eq!(server.build(&id)["error"], "");
    assert_eq!(server.get(&path)["status"], "ready");
    server.send("POST", &format!("{path}/versions/1/activate"), &json!({}));
    let verified = format!("/v1/hangar/environments/{id}/versions/1/verify");
    assert_eq!(server.send("POST", &verified, &json!({}))["intact"], true);
    // A failed build after it changes nothing.
    server.put_file(&id, "setup.sh", "exit 1\n");
    assert_eq!(server.build(&id)["status"], "failed");
    let shown = server.get(&path);
    assert_eq!((&shown["status"], &shown["version"]), (&json!("ready"), &json!(1)));
    assert_eq!((&shown["latestVersion"], &shown["build"]["status"]), (&json!(2), &json!("failed")));
    server.daemon().session(&json!({ "environment": id })).delete();
}
