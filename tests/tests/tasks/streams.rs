//! Events: as they happen, without gaps, again from any place, and the same as the response.

use hangar_tests::checked::Checked;
use hangar_tests::task::{Events, begin, ended, member, run, script, text, whole};
use serde_json::{Value, json};

fn go(server: &Checked, session: &str) {
    let touch = json!({ "command": "touch go" });
    server.daemon().post(&format!("/v1/hangar/sessions/{session}/exec"), &touch);
}

const WAITS: &str = "echo one; until [ -e go ]; do sleep 0.01; done; echo two; echo x > made";

#[test]
fn output_is_told_as_it_comes_and_a_client_that_goes_away_stops_nothing() {
    let server = Checked::start();
    let mut events = Events::of_task(server.daemon(), json!({ "input": WAITS }));
    let created = events.next().unwrap();
    assert_eq!(
        (&created["type"], &created["sequence_number"]),
        (&json!("response.created"), &json!(0))
    );
    let id = member(&created, "/response/id").to_owned();
    let session = member(&created, "/response/metadata/session_id").to_owned();
    // The command waits for what comes after this.
    let delta = events.until("response.output_text.delta");
    assert_eq!(delta["delta"], "one\n");
    let now = server.get(&format!("/v1/responses/{id}"));
    assert_eq!((&now["status"], text(&now)), (&json!("in_progress"), "one\n"));
    drop(events);

    let seen = delta["sequence_number"].as_u64().unwrap();
    let mut beside = Events::resumed(server.daemon(), &id, Some(seen));
    go(&server, &session);
    let more = beside.next().unwrap();
    assert_eq!(
        (&more["delta"], more["sequence_number"].as_u64()),
        (&json!("two\n"), Some(seen + 1))
    );
    let last = beside.until("response.completed");
    assert_eq!(beside.next(), None, "the stream ends with its last event");
    let stored = server.get(&format!("/v1/responses/{id}"));
    assert_eq!(last["response"], stored);
    assert_eq!(text(&stored), "one\ntwo\n");

    // Told again from everywhere, the same.
    let all = Events::resumed(server.daemon(), &id, None).all();
    assert_eq!(*whole(&all), stored);
    assert_eq!(all[usize::try_from(seen).unwrap()], delta);
    for from in [0, seen, all.len() as u64 - 2, all.len() as u64 - 1, 10_000] {
        let rest = Events::resumed(server.daemon(), &id, Some(from)).all();
        assert_eq!(rest, all.get(usize::try_from(from).unwrap() + 1..).unwrap_or_default());
    }
    let cited = all.iter().filter(|e| e["type"] == "response.output_text.annotation.added");
    let cited: Vec<_> = cited.map(|event| member(event, "/annotation/filename")).collect();
    assert_eq!(cited, ["go", "made"]);
}

#[test]
fn a_stream_and_an_answer_say_the_same() {
    let server = Checked::start();
    let text_of_it =
        "printf 'a\\303'; sleep 0.1; printf '\\251\\377z'; echo e >&2; echo x > f; exit 4";
    let answered = script(&server, text_of_it);
    let events = Events::of_task(server.daemon(), json!({ "input": text_of_it })).all();
    let streamed = whole(&events);
    assert_eq!(text(&answered), "aé\u{fffd}ze\n", "characters are whole, however they come");
    for field in ["object", "status", "model", "store", "usage", "incomplete_details", "error"] {
        assert_eq!(answered[field], streamed[field], "{field}");
    }
    assert_eq!(text(&answered), text(streamed));
    let kinds = |response: &Value| -> Vec<Value> {
        response["output"].as_array().unwrap().iter().map(|item| item["type"].clone()).collect()
    };
    assert_eq!(kinds(&answered), kinds(streamed));
    assert_eq!(answered["metadata"]["exit_code"], streamed["metadata"]["exit_code"]);
    // Without output there is an empty message, and no delta.
    let silent = Events::of_task(server.daemon(), json!({ "input": "true" })).all();
    assert_eq!(text(whole(&silent)), "");
}

#[test]
fn many_lines_are_told_whole_and_in_order() {
    let server = Checked::start();
    let events = Events::of_task(server.daemon(), json!({ "input": "seq 30000" })).all();
    let expected: String = (1..=30_000).map(|n| format!("{n}\n")).collect();
    assert!(text(whole(&events)) == expected);
    // So many small pieces that they are told at intervals from some point on.
    let small = "i=0; while [ $i -lt 9000 ]; do i=$((i + 1)); echo $i; done";
    let events = Events::of_task(server.daemon(), json!({ "input": small })).all();
    let last = whole(&events);
    let expected: String = (1..=9000).map(|n| format!("{n}\n")).collect();
    assert!(text(last) == expected);
    let id = member(last, "/id");
    assert_eq!(Events::resumed(server.daemon(), id, None).all(), events, "told again the same");
}

#[test]
fn a_task_in_the_background_is_followed_by_its_harness() {
    let server = Checked::start();
    let made = json!({ "name": "heard", "base": "shell" });
    let harness = server.send("POST", "/v1/harnesses", &made);
    let id = member(&harness, "/id");
    let mut feed =
        Events::ask(server.daemon(), "GET", &format!("/v1/harnesses/{id}/events"), &[], "");
    assert_eq!(feed.status, 200);
    let elsewhere = begin(&server, "echo elsewhere");
    assert_eq!(elsewhere["status"], "in_progress");
    let request =
        json!({ "input": "echo heard", "background": true, "metadata": { "harness_id": id } });
    let here = run(&server, &request);
    assert_eq!((&here["status"], &here["background"]), (&json!("in_progress"), &json!(true)));
    let mut heard = Vec::new();
    while heard.last().is_none_or(|event: &Value| event["type"] != "response.completed") {
        heard.push(feed.next().unwrap());
    }
    assert!(heard.iter().all(|event| event["response_id"] == here["id"]), "of no other harness");
    assert_eq!(heard[0]["type"], "response.created");
    assert!(heard.iter().any(|event| event["delta"] == "heard\n"));
    assert_eq!(text(&ended(server.daemon(), member(&here, "/id"))), "heard\n");
    assert_eq!(text(&ended(server.daemon(), member(&elsewhere, "/id"))), "elsewhere\n");
    let nobody = format!("/v1/harnesses/chrn_{}/events", "0".repeat(32));
    assert_eq!(server.call("GET", &nobody, b"").status, 404);
}
