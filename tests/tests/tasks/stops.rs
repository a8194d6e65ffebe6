//! Tasks that are stopped: by their client, by a budget, and by nothing else.

use hangar_tests::checked::Checked;
use hangar_tests::processes::{self, below, wait_for};
use hangar_tests::task::{Events, begin, ended, member, next, run, text, whole};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Processes in the background, in sessions and groups of their own, that catch signals.
const TREE: &str = "trap '' TERM INT HUP; for i in 1 2 3; do \
                    (trap '' TERM INT HUP; setsid sh -c 'trap \"\" TERM; sleep 987654' &) & done; \
                    echo begun; wait; sleep 987654";

/// How many processes of this server's sessions sleep so.
fn sleepers(server: &Checked) -> usize {
    let warden = processes::warden(server.state()).expect("a warden");
    below(&warden).iter().filter(|process| process.command.contains("987654")).count()
}

fn wait_for_output(server: &Checked, id: &str) {
    wait_for("the output", || {
        let now = server.get(&format!("/v1/responses/{id}"));
        let text = now["output"][2]["content"][0]["text"].as_str().unwrap_or_default();
        text.contains("begun").then_some(())
    });
}

#[test]
fn a_cancelled_task_is_gone_with_all_it_started() {
    let server = Checked::start();
    for scope in ["responses", "sessions"] {
        let running = begin(&server, TREE);
        let id = member(&running, "/id");
        wait_for_output(&server, id);
        wait_for("all processes", || (sleepers(&server) >= 7).then_some(()));
        let session = member(&running, "/metadata/session_id");
        let path = match scope {
            "responses" => format!("/v1/responses/{id}/cancel"),
            _ => format!("/v1/sessions/{session}/cancel"),
        };
        let asked = Instant::now();
        let told = server.send("POST", &path, &json!({}));
        // What the protocol asks of the answer; the end is waited for beside it.
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        let last = ended(server.daemon(), id);
        assert_eq!((&last["status"], &last["error"]), (&json!("cancelled"), &Value::Null));
        assert_eq!(text(&last), "begun\n", "what it said before is kept");
        assert_eq!(sleepers(&server), 0);
        assert_eq!(told["status"], "cancelled", "{told}");
        // Again, and nothing changes.
        assert_eq!(server.send("POST", &path, &json!({}))["status"], "cancelled");
        assert_eq!(server.get(&format!("/v1/responses/{id}")), last);
        let after = next(&server, &running, "echo goes on");
        assert_eq!(text(&after), "goes on\n");
        assert_eq!(
            server.send("POST", &path, &json!({}))["status"].as_str().unwrap(),
            if scope == "responses" { "cancelled" } else { "completed" }
        );
    }
}

#[test]
fn a_stream_of_a_cancelled_task_ends_as_failed_and_says_cancelled() {
    let server = Checked::start();
    let mut events =
        Events::of_task(server.daemon(), json!({ "input": "echo begun; sleep 987654" }));
    let created = events.next().unwrap();
    let id = member(&created, "/response/id").to_owned();
    let mut all = vec![created];
    while all.last().unwrap()["type"] != "response.output_text.delta" {
        all.push(events.next().unwrap());
    }
    server.send("POST", &format!("/v1/responses/{id}/cancel"), &json!({}));
    all.extend(events.all());
    let last = whole(&all);
    assert_eq!((&last["status"], text(last)), (&json!("cancelled"), "begun\n"));
    assert_eq!(all.last().unwrap()["type"], "response.failed");
}

#[test]
fn a_budget_ends_a_task_as_incomplete_and_says_which() {
    let server = Checked::configured("[tasks]\noutput_bytes_max = 100000\n", &[]);
    let endless = "while :; do echo 0123456789; done";
    for (request, reason, bytes) in [
        (
            json!({ "input": "echo begun; sleep 987654", "timeout_seconds": 1 }),
            "timeout_seconds",
            6,
        ),
        (json!({ "input": endless, "max_output_tokens": 5 }), "max_output_tokens", 20),
        (json!({ "input": endless }), "hangar_output_bytes_max", 100_000),
        (json!({ "input": "echo x", "max_step": 0 }), "max_step", 0),
    ] {
        let last = run(&server, &request);
        assert_eq!(last["status"], "incomplete", "{request}");
        assert_eq!(last["incomplete_details"]["reason"], reason);
        assert_eq!(last["error"], Value::Null);
        let text = last["output"][2]["content"][0]["text"].as_str().unwrap_or_default();
        assert_eq!(text.len(), bytes, "{request}");
        assert_eq!(sleepers(&server), 0);
        let after = next(&server, &last, "echo goes on");
        assert_eq!(after["status"], "completed");
    }
    // The narrower bound of the harness counts; what fits into a budget is complete.
    let harness = json!({ "name": "brief", "base": "shell", "timeout_seconds": 1 });
    let harness = server.send("POST", "/v1/harnesses", &harness);
    let long = json!({
        "input": "sleep 987654", "timeout_seconds": 600, "metadata": { "harness_id": harness["id"] },
    });
    assert_eq!(run(&server, &long)["incomplete_details"]["reason"], "timeout_seconds");
    let fits = json!({
        "input": "echo x", "timeout_seconds": 600, "max_step": 1, "max_output_tokens": 1,
    });
    assert_eq!(run(&server, &fits)["status"], "completed");
}

#[test]
fn an_end_by_itself_is_complete_and_a_lost_session_is_a_failure() {
    let server = Checked::start();
    let killed = run(&server, &json!({ "input": "echo x; kill -9 $$" }));
    assert_eq!(
        (&killed["status"], &killed["metadata"]["signal"]),
        (&json!("completed"), &json!(9))
    );
    let running = begin(&server, "echo begun; sleep 987654");
    let id = member(&running, "/id");
    wait_for_output(&server, id);
    let warden = processes::warden(server.state()).expect("a warden");
    let sleeper = wait_for("the sleeper", || {
        below(&warden).into_iter().find(|process| process.command.contains("987654"))
    });
    let block = sleeper.uid / 65_536;
    let init = below(&warden).into_iter().find(|p| p.is_first() && p.uid / 65_536 == block);
    init.expect("it has an init").kill();
    let last = ended(server.daemon(), id);
    assert_eq!((&last["status"], text(&last)), (&json!("failed"), "begun\n"));
    assert_eq!(last["error"]["code"], "hangar_session_lost");
    assert_eq!(text(&next(&server, &running, "echo again")), "again\n");
}

#[test]
fn deleting_a_response_stops_nothing_and_deleting_a_session_stops_its_task() {
    let server = Checked::start();
    let running = begin(&server, "echo begun; until [ -e go ]; do sleep 0.01; done; echo x > done");
    let (id, session) = (member(&running, "/id"), member(&running, "/metadata/session_id"));
    wait_for_output(&server, id);
    assert_eq!(server.call("DELETE", &format!("/v1/responses/{id}"), b"").status, 200);
    assert_eq!(server.call("GET", &format!("/v1/responses/{id}"), b"").status, 404);
    assert_eq!(server.get(&format!("/v1/sessions/{session}"))["status"], "in_progress");
    let go = json!({ "command": "touch go" });
    server.daemon().post(&format!("/v1/hangar/sessions/{session}/exec"), &go);
    wait_for("the end", || {
        let shown = server.get(&format!("/v1/sessions/{session}"));
        (shown["status"] == "completed").then_some(())
    });
    let files = server.daemon().get(&format!("/v1/sessions/{session}/files"));
    assert!(files["files"].as_array().unwrap().iter().any(|file| file["path"] == "done"));
    assert_eq!(server.call("GET", &format!("/v1/responses/{id}"), b"").status, 404);

    let running = begin(&server, TREE);
    let (id, session) = (member(&running, "/id"), member(&running, "/metadata/session_id"));
    wait_for_output(&server, id);
    let mut events = Events::resumed(server.daemon(), id, None);
    assert_eq!(server.call("DELETE", &format!("/v1/sessions/{session}"), b"").status, 200);
    assert_eq!(sleepers(&server), 0);
    assert_eq!(events.until("response.failed")["response"]["status"], "cancelled");
    assert_eq!(server.call("GET", &format!("/v1/responses/{id}"), b"").status, 404);
}
