//! The environment a task reads: named by the task or its harness, kept for the session.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::task::{member, next, run, text};
use serde_json::{Value, json};

fn built(server: &Checked, name: &str, says: &str) -> String {
    let id = server.environment(name, &[("hello.txt", says)]);
    assert_eq!(server.build(&id)["status"], "ready");
    id
}

fn version(response: &Value) -> (&Value, &Value) {
    (&response["metadata"]["environment"], &response["metadata"]["environment_version"])
}

#[test]
fn a_session_keeps_its_version_and_says_which() {
    let server = Checked::start();
    let one = built(&server, "one", "first\n");
    let other = built(&server, "other", "other\n");
    let empty = server.environment("empty", &[]);
    let harness = json!({ "name": "reader", "base": "shell", "environment": one });
    let harness = server.send("POST", "/v1/harnesses", &harness);
    let of_harness =
        |input: &str| json!({ "input": input, "metadata": { "harness_id": harness["id"] } });
    let read = "cat $PROJECT_ROOT/hello.txt; ls /env; touch $PROJECT_ROOT/x 2> /dev/null; echo $?";
    let first = run(&server, &of_harness(read));
    assert_eq!(text(&first), "first\none\n1\n");
    assert_eq!(version(&first), (&json!(one), &json!(1)));
    let session = format!("/v1/sessions/{}", member(&first, "/metadata/session_id"));
    assert_eq!(server.get(&session)["environment"], json!(one));

    // Another version is active; the session stays with its own.
    server.put_file(&one, "hello.txt", "second\n");
    assert_eq!(server.build(&one)["version"], 2);
    let kept = next(&server, &first, read);
    assert_eq!((text(&kept), version(&kept)), ("first\none\n1\n", (&json!(one), &json!(1))));
    let fresh = run(&server, &of_harness(read));
    assert_eq!((text(&fresh), version(&fresh)), ("second\none\n1\n", (&json!(one), &json!(2))));

    // A task can name another one: in its metadata, or at the top as it once was.
    for request in [
        json!({ "input": read, "metadata": { "environment": other } }),
        json!({ "input": read, "environment": other }),
        json!({ "input": read, "environment": other, "metadata": { "environment": other } }),
    ] {
        assert_eq!(text(&run(&server, &request)), "other\nother\n1\n", "{request}");
    }
    // And a session goes over to it, with its files.
    let mut over = json!({ "input": "echo kept > f", "previous_response_id": kept["id"] });
    let before = run(&server, &over);
    over["input"] = json!(format!("cat f; {read}"));
    over["metadata"] = json!({ "environment": other });
    let over = run(&server, &over);
    assert_eq!(text(&over), "kept\nother\nother\n1\n");
    assert_eq!(server.get(&session)["environment"], json!(other));
    let turns = server.get(&format!("{session}/turns"));
    let read_by: Vec<_> =
        turns["turns"].as_array().unwrap().iter().map(|turn| &turn["environment"]).collect();
    assert_eq!(read_by, [&json!(one), &json!(one), &json!(one), &json!(other)]);
    assert_eq!(version(&before), (&json!(one), &json!(1)));

    let count = || server.get("/v1/sessions?limit=100")["sessions"].as_array().unwrap().len();
    let sessions = count();
    for (request, status, code, param) in [
        (
            json!({ "input": "true", "environment": one, "metadata": { "environment": other } }),
            400,
            "invalid_input",
            json!("environment"),
        ),
        (
            json!({ "input": "true", "metadata": { "environment": empty } }),
            409,
            "environment_not_ready",
            json!("metadata.environment"),
        ),
        (
            json!({ "input": "true", "environment": "x" }),
            404,
            "environment_not_found",
            json!("environment"),
        ),
    ] {
        let answer = server.call("POST", "/v1/responses", request.to_string().as_bytes());
        assert_eq!(refusal(&answer), (status, code.to_owned()), "{request}");
        assert_eq!(answer.json()["error"]["param"], param);
    }
    assert_eq!(count(), sessions, "nothing was started");
}

#[test]
fn an_environment_that_is_gone_is_read_no_more() {
    let server = Checked::start();
    let id = built(&server, "gone", "x\n");
    let harness = json!({ "name": "reader", "base": "shell", "environment": id });
    let harness = server.send("POST", "/v1/harnesses", &harness);
    let request = json!({ "input": "true", "metadata": { "harness_id": harness["id"] } });
    let first = run(&server, &request);
    assert_eq!(server.call("DELETE", &format!("/v1/environments/{id}"), b"").status, 200);
    let mut continued = request.clone();
    continued["previous_response_id"] = first["id"].clone();
    for request in [request, continued] {
        let answer = server.call("POST", "/v1/responses", request.to_string().as_bytes());
        assert_eq!(refusal(&answer), (404, "environment_not_found".to_owned()));
    }
}
