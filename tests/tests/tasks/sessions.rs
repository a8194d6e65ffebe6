//! A task makes a session, the next one goes on in it, and both are there to be read.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::task::{member, next, run, script, text};
use serde_json::{Value, json};

#[test]
fn a_task_runs_in_a_session_that_the_next_one_continues() {
    let server = Checked::start();
    let first =
        script(&server, "echo out; echo err >&2; pwd; id -u; mkdir d; echo 1 > d/f.txt; exit 3");
    assert_eq!(first["status"], "completed", "it did what it was asked, however that ended");
    assert_eq!(text(&first), "out\nerr\n/workspace\n1000\n");
    assert_eq!(first["metadata"]["exit_code"], 3);
    let call: Value = serde_json::from_str(member(&first, "/output/0/arguments")).unwrap();
    assert!(call["command"].as_str().unwrap().starts_with("echo out"));
    let result: Value = serde_json::from_str(member(&first, "/output/1/output")).unwrap();
    assert_eq!((&result["exit_code"], &result["output"]), (&json!(3), &json!(text(&first))));
    assert_eq!(first["output"][0]["call_id"], first["output"][1]["call_id"]);

    let id = member(&first, "/id");
    assert_eq!(server.get(&format!("/v1/responses/{id}")), first);
    let items = server.get(&format!("/v1/responses/{id}/input_items"));
    assert!(member(&items, "/data/0/content/0/text").starts_with("echo out"));

    let second = next(&server, &first, "cat d/f.txt; rm d/f.txt; echo 2 > g.txt");
    assert_eq!(text(&second), "1\n");
    assert_eq!(second["metadata"]["session_id"], first["metadata"]["session_id"]);
    assert_eq!(second["previous_response_id"], first["id"]);

    let session = member(&first, "/metadata/session_id");
    let shown = server.get(&format!("/v1/sessions/{session}"));
    assert_eq!((&shown["status"], &shown["isolation"]), (&json!("completed"), &json!("running")));
    assert_eq!(shown["harness_id"], first["metadata"]["harness_id"]);
    assert!(member(&shown, "/title").starts_with("echo out"));
    let turns = server.get(&format!("/v1/sessions/{session}/turns"))["turns"].clone();
    let ids: Vec<_> = turns.as_array().unwrap().iter().map(|turn| &turn["id"]).collect();
    assert_eq!(ids, [&first["id"], &second["id"]]);
    assert_eq!(
        (member(&turns, "/0/assistant"), member(&turns, "/1/assistant")),
        (text(&first), "1\n")
    );
    assert_eq!(turns[0]["tools"][0]["name"], "shell");

    // What each turn did to the files, and no more.
    let files = |turn: usize| -> Vec<(String, String)> {
        let files = turns[turn]["files"].as_array().unwrap().iter();
        files.map(|f| (member(f, "/path").to_owned(), member(f, "/change").to_owned())).collect()
    };
    assert_eq!(files(0), [("d/f.txt".to_owned(), "created".to_owned())]);
    assert_eq!(files(1), [("g.txt".to_owned(), "created".to_owned())]);
    assert_eq!(turns[1]["deleted_files"], json!(["d/f.txt"]));
    let cited = &second["output"][2]["content"][0]["annotations"];
    assert_eq!((cited.as_array().unwrap().len(), &cited[0]["filename"]), (1, &json!("g.txt")));
    let bytes = server.call("GET", member(&cited[0], "/download_url"), b"");
    assert_eq!((bytes.status, &bytes.body[..]), (200, &b"2\n"[..]));

    assert_eq!(server.call("DELETE", &format!("/v1/sessions/{session}"), b"").status, 200);
    for (path, code) in [
        (format!("/v1/sessions/{session}"), "session_not_found"),
        (format!("/v1/sessions/{session}/turns"), "session_not_found"),
        (format!("/v1/responses/{id}"), "response_not_found"),
    ] {
        assert_eq!(refusal(&server.call("GET", &path, b"")), (404, code.to_owned()), "{path}");
    }
    let gone = json!({ "input": "true", "previous_response_id": id }).to_string();
    let gone = server.call("POST", "/v1/responses", gone.as_bytes());
    assert_eq!(refusal(&gone), (404, "response_not_found".to_owned()));
}

#[test]
fn a_file_that_is_written_again_is_changed_and_one_that_is_read_is_not() {
    let server = Checked::start();
    let first = script(&server, "echo a > a; echo b > b; echo c > c; echo d > d");
    let second = next(
        &server,
        &first,
        "cat a; echo B > b; echo x > t; touch -r c t; mv t c; mv d e; ln -s a link",
    );
    let session = member(&first, "/metadata/session_id");
    let turns = server.get(&format!("/v1/sessions/{session}/turns"));
    let files = turns["turns"][1]["files"].as_array().unwrap().iter();
    let files: Vec<_> = files.map(|f| (member(f, "/path"), member(f, "/change"))).collect();
    assert_eq!(files, [("b", "changed"), ("c", "changed"), ("e", "created")]);
    assert_eq!(turns["turns"][1]["deleted_files"], json!(["d"]));
    assert_eq!(text(&second), "a\n");
}

#[test]
fn sessions_come_in_pages() {
    let server = Checked::start();
    let harness = json!({ "name": "other", "base": "shell" });
    let harness = server.send("POST", "/v1/harnesses", &harness);
    let other = json!({ "input": "true", "metadata": { "harness_id": harness["id"], "note": 7 } });
    let other = run(&server, &other);
    assert_eq!(other["metadata"]["note"], 7, "what a client notes comes back");
    let made: Vec<Value> = (0..3).map(|_| script(&server, "true")).collect();
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server.get(&format!("/v1/sessions?limit=2&cursor={cursor}"));
        let sessions = page["sessions"].as_array().unwrap();
        assert!(sessions.len() <= 2);
        seen.extend(sessions.iter().map(|session| session["id"].clone()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = next.to_owned();
    }
    let expected: Vec<_> = made.iter().rev().chain([&other]).collect();
    let expected: Vec<_> = expected.iter().map(|r| r["metadata"]["session_id"].clone()).collect();
    let sorted = |mut ids: Vec<Value>| {
        ids.sort_by_key(|id| id.as_str().unwrap_or_default().to_owned());
        ids
    };
    assert_eq!(sorted(seen), sorted(expected), "each once");
    let of_one = server.get(&format!("/v1/sessions?harness={}", member(&harness, "/id")));
    assert_eq!(of_one["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(of_one["sessions"][0]["id"], other["metadata"]["session_id"]);
    for query in ["limit=0", "limit=101", "limit=x", "cursor=zz"] {
        let refused = refusal(&server.call("GET", &format!("/v1/sessions?{query}"), b""));
        assert_eq!(refused, (400, "invalid_input".to_owned()), "{query}");
    }
}

#[test]
fn a_response_that_is_not_kept_is_gone_and_the_session_goes_on() {
    let server = Checked::start();
    let first = run(&server, &json!({ "input": "echo 1 > f; echo secret", "store": false }));
    assert_eq!((text(&first), &first["store"]), ("secret\n", &json!(false)));
    let id = member(&first, "/id");
    let gone = server.call("GET", &format!("/v1/responses/{id}"), b"");
    assert_eq!(refusal(&gone), (404, "response_not_found".to_owned()));
    let second = next(&server, &first, "cat f");
    assert_eq!(text(&second), "1\n");
    let session = member(&first, "/metadata/session_id");
    let turns = server.get(&format!("/v1/sessions/{session}/turns"));
    assert_eq!(turns["turns"].as_array().unwrap().len(), 1);

    let path = format!("/v1/responses/{}", member(&second, "/id"));
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    for method in ["GET", "DELETE"] {
        let gone = refusal(&server.call(method, &path, b""));
        assert_eq!(gone, (404, "response_not_found".to_owned()));
    }
}
