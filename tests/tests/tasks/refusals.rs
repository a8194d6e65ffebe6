//! What a task is not begun for, and what of a request has no effect.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::task::{begin, ended, member, run, script, text};
use serde_json::{Value, json};

fn refused(server: &Checked, request: &Value) -> (u16, String, Value) {
    let answer = server.call("POST", "/v1/responses", request.to_string().as_bytes());
    let (status, code) = refusal(&answer);
    (status, code, answer.json()["error"]["param"].clone())
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_starts() {
    let server = Checked::start();
    let nobody = "0".repeat(32);
    let file = |fields: Value| {
        json!({ "input": [{ "role": "user", "content": [
        { "type": "input_text", "text": "true" }, fields,
    ]}] })
    };
    for (request, status, code, param) in [
        (json!([]), 400, "invalid_input", "body"),
        (json!({}), 400, "invalid_input", "input"),
        (json!({ "input": "" }), 400, "invalid_input", "input"),
        (json!({ "input": 7 }), 400, "invalid_input", "input"),
        (json!({ "input": "true", "stream": 1 }), 400, "invalid_input", "stream"),
        (
            json!({ "input": "true", "timeout_seconds": -1 }),
            400,
            "invalid_input",
            "timeout_seconds",
        ),
        (
            json!({ "input": "true", "metadata": { "harness_id": format!("chrn_{nobody}") } }),
            404,
            "harness_not_found",
            "metadata.harness_id",
        ),
        (
            json!({ "input": "true", "previous_response_id": format!("resp_{nobody}") }),
            404,
            "response_not_found",
            "previous_response_id",
        ),
        (
            json!({ "input": "true", "metadata": { "environment": format!("henv_{nobody}") } }),
            404,
            "environment_not_found",
            "metadata.environment",
        ),
        (
            file(json!({ "type": "input_file", "file_id": "file_nobody" })),
            404,
            "file_not_found",
            "input[0].content[1]",
        ),
        (file(json!({ "type": "input_thing" })), 400, "invalid_input", "input[0].content[1]"),
    ] {
        let told = refused(&server, &request);
        assert_eq!(told, (status, code.to_owned(), json!(param)), "{request}");
    }
    assert_eq!(server.get("/v1/sessions")["sessions"], json!([]), "nothing was started");
    for path in ["/v1/responses/resp_x", "/v1/responses/resp_x/input_items"] {
        let gone = refusal(&server.call("GET", path, b""));
        assert_eq!(gone, (404, "response_not_found".to_owned()));
    }
    // The same requests, made right.
    assert_eq!(script(&server, "true")["status"], "completed");
}

#[test]
fn a_session_runs_one_task_and_has_one_harness() {
    let server = Checked::start();
    let running = begin(&server, "until [ -e go ]; do sleep 0.01; done");
    let id = member(&running, "/id");
    let second = json!({ "input": "true", "previous_response_id": id });
    assert_eq!(refused(&server, &second).1, "session_busy");
    assert_eq!(refused(&server, &second).0, 409);
    assert_eq!(script(&server, "echo beside")["status"], "completed", "another session is free");
    let other = json!({ "name": "other", "base": "shell" });
    let other = server.send("POST", "/v1/harnesses", &other);
    let mismatch = json!({
        "input": "true", "previous_response_id": id, "metadata": { "harness_id": other["id"] },
    });
    let told = refused(&server, &mismatch);
    assert_eq!(told, (409, "harness_mismatch".to_owned(), json!("metadata.harness_id")));
    let session = member(&running, "/metadata/session_id");
    let shown = server.get(&format!("/v1/sessions/{session}"));
    assert_eq!(shown["status"], "in_progress");
    let go = json!({ "command": "touch go" });
    server.daemon().post(&format!("/v1/hangar/sessions/{session}/exec"), &go);
    assert_eq!(ended(server.daemon(), id)["status"], "completed");
    assert_eq!(run(&server, &second)["status"], "completed");
}

#[test]
fn what_has_no_effect_is_named() {
    let server = Checked::start();
    let plain = script(&server, "true");
    assert!(plain["metadata"].get("ignored_fields").is_none(), "{plain}");
    assert_eq!((&plain["model"], &plain["usage"]), (&json!("none"), &Value::Null));
    let odd = run(
        &server,
        &json!({
            "input": [
                { "role": "system", "content": "be brief" },
                { "role": "user", "content": "echo x" },
            ],
            "tools": [{ "type": "web_search" }], "include": ["x"], "instructions": "i",
            "temperature": 0.5, "model": "some-model", "max_step": 5, "timeout_seconds": 60,
            "metadata": { "session_id": "mine", "exit_code": 9, "note": "kept" },
        }),
    );
    let mut ignored: Vec<_> = odd["metadata"]["ignored_fields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f.as_str().unwrap())
        .collect();
    ignored.sort_unstable();
    assert_eq!(ignored, ["include", "input[0]", "instructions", "temperature", "tools"]);
    assert_eq!(text(&odd), "x\n");
    let metadata = &odd["metadata"];
    assert_eq!((&metadata["note"], &metadata["exit_code"]), (&json!("kept"), &json!(0)));
    assert!(member(metadata, "/session_id").starts_with("hsess"));
    assert_eq!(odd["model"], "none");
    assert_eq!(metadata["requested_model"], "some-model");
    assert_eq!(metadata["model_fallback"], true);
    assert!(!member(metadata, "/model_fallback_reason").is_empty());
}

#[test]
fn older_versions_of_the_protocol_are_spoken() {
    let server = Checked::start();
    let kind = ("Content-Type", "application/json");
    for version in ["2026-09-28", "2026-09-12", "2026-08-11"] {
        let fields = [kind, ("UHP-Version", version)];
        let answer = server.call_with("POST", "/v1/responses", &fields, br#"{"input": "true"}"#);
        assert_eq!((answer.status, answer.field("uhp-version")), (200, Some(version)));
    }
    for version in ["2026-10-04", "1999-01-01", ""] {
        let fields = [kind, ("UHP-Version", version)];
        let answer = server.call_with("POST", "/v1/responses", &fields, br#"{"input": "true"}"#);
        assert_eq!(refusal(&answer), (400, "unsupported_protocol_version".to_owned()));
        let supported = &answer.json()["error"]["detail"]["supported"];
        assert_eq!(*supported, server.get("/v1/uhp")["versions"]);
    }
}

#[test]
fn a_request_to_an_agent_is_taken_off_the_command() {
    let server = Checked::start();
    let request = "Run this shell command and reply with its output only: echo a: b; exit 2";
    let told = script(&server, request);
    assert_eq!((text(&told), &told["metadata"]["exit_code"]), ("a: b\n", &json!(2)));
    let lines = script(&server, "Run this script for me:\nx=1\necho $x\n");
    assert_eq!(text(&lines), "1\n");
}
