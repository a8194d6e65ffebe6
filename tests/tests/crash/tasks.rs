//! Tasks: what was acknowledged is there afterwards, runs once, and says how it ended.

use hangar_tests::crash::{Ground, Victim};
use hangar_tests::daemon::Daemon;
use hangar_tests::processes::{below, wait_for};
use hangar_tests::task::{Events, ended, member, text, whole};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

fn begin(daemon: &Daemon, script: &str) -> Value {
    let begun = daemon.post("/v1/responses", &json!({ "input": script, "background": true }));
    assert_eq!(begun["status"], "in_progress");
    begun
}

fn next(daemon: &Daemon, previous: &str, script: &str) -> Value {
    daemon.post("/v1/responses", &json!({ "input": script, "previous_response_id": previous }))
}

fn workdir(ground: &Ground, response: &Value) -> PathBuf {
    let session = member(response, "/metadata/session_id");
    ground.state().join("sessions").join(session).join("workdir")
}

/// Writes numbered lines until a file tells it to end.
const COUNT: &str = "echo begun >> begun; n=0; while [ ! -e stop ]; do n=$((n + 1)); echo line $n; \
                     echo $n > count; sleep 0.02; done; echo end; exit 7";

fn wait_for_lines(ground: &Ground, response: &Value, count: u64) {
    let path = workdir(ground, response).join("count");
    wait_for("the lines", || {
        let now: u64 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        (now >= count).then_some(())
    });
}

fn stop(ground: &Ground, response: &Value) {
    fs::write(workdir(ground, response).join("stop"), "").unwrap();
}

/// Every line once and in order, from the first on.
fn assert_counted(text: &str, least: usize) {
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("line ")).collect();
    assert!(lines.len() >= least, "{text}");
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(*line, format!("line {}", index + 1));
    }
}

#[test]
fn a_task_goes_on_while_there_is_no_api_and_is_told_on() {
    let ground = Ground::default();
    let daemon = ground.start();
    let mut stream = Events::of_task(&daemon, json!({ "input": COUNT }));
    let created = stream.next().unwrap()["response"].clone();
    let id = member(&created, "/id");
    let mut seen = Vec::new();
    while seen.len() < 12 {
        seen.push(stream.next().unwrap());
    }
    wait_for_lines(&ground, &created, 10);
    daemon.crash();
    wait_for_lines(&ground, &created, 30);

    let daemon = ground.start();
    let busy = json!({ "input": "true", "previous_response_id": id });
    assert_eq!(daemon.ask("POST", "/v1/responses", &busy).json()["error"]["code"], "session_busy");
    // The client goes on where it was cut off, and misses nothing.
    let last = seen.last().unwrap()["sequence_number"].as_u64();
    let mut resumed = Events::resumed(&daemon, id, last);
    assert_eq!(resumed.next().unwrap()["sequence_number"].as_u64(), last.map(|last| last + 1));
    stop(&ground, &created);
    let done = ended(&daemon, id);
    assert_eq!((&done["status"], &done["metadata"]["exit_code"]), (&json!("completed"), &json!(7)));
    assert_counted(text(&done), 30);
    assert!(text(&done).ends_with("end\n"));
    let all = Events::resumed(&daemon, id, None).all();
    assert_eq!(*whole(&all), done);
    assert_eq!(all[1..=seen.len()], seen, "the events have the numbers they had");
    assert_eq!(text(&next(&daemon, id, "cat begun")), "begun\n", "it began once");
    daemon.stop();
}

#[test]
fn a_task_that_ends_while_there_is_no_api_ended_as_it_did() {
    let ground = Ground::default();
    let daemon = ground.start();
    let script = "echo a; until [ -e stop ]; do sleep 0.01; done; echo b; exit 5";
    let created = begin(&daemon, script);
    wait_for("the session", || ground.command(member(&created, "/metadata/session_id")).map(drop));
    daemon.crash();
    stop(&ground, &created);
    let session = member(&created, "/metadata/session_id");
    wait_for("the end", || ground.command(session).is_none().then_some(()));
    let daemon = ground.start();
    let done = ended(&daemon, member(&created, "/id"));
    assert_eq!((text(&done), &done["metadata"]["exit_code"]), ("a\nb\n", &json!(5)));
    assert_eq!(done["status"], "completed");
    daemon.stop();
}

#[test]
fn the_death_of_the_warden_fails_the_task_and_the_next_one_finds_its_files() {
    let ground = Ground::default();
    // With a server that sees it, and with one that died before.
    for api_first in [false, true] {
        let daemon = ground.start();
        let created = begin(&daemon, COUNT);
        wait_for_lines(&ground, &created, 10);
        let daemon = if api_first {
            daemon.crash();
            ground.warden().kill();
            ground.start()
        } else {
            ground.kill(daemon, Victim::Warden, None)
        };
        let id = member(&created, "/id");
        let done = ended(&daemon, id);
        assert_eq!(
            (&done["status"], &done["error"]["code"]),
            (&json!("failed"), &json!("hangar_session_lost"))
        );
        assert_counted(text(&done), 5);
        let after = next(&daemon, id, "cat begun; ls");
        assert_eq!(
            (text(&after), &after["status"]),
            ("begun\nbegun\ncount\n", &json!("completed"))
        );
        assert_eq!(after["metadata"]["session_id"], created["metadata"]["session_id"]);
        daemon.stop();
    }
}

#[test]
fn a_task_that_was_accepted_and_had_not_begun_begins_once() {
    let ground = Ground::default();
    let daemon = ground.start();
    let parked = wait_for("a child to be parked", || {
        let mut children = below(&ground.warden()).into_iter();
        children.find(|process| process.is_parked() && process.command == "hangar-init")
    });
    // The launch waits for it.
    parked.stop();
    let file = json!({ "type": "input_file", "filename": "sent", "file_data": "data:,sent%0A" });
    let input = json!([{ "role": "user", "content": [
        { "type": "input_text", "text": "cat sent; echo begun >> begun" }, file,
    ]}]);
    let request = json!({ "input": input, "background": true });
    let created = daemon.post("/v1/responses", &request);
    let id = member(&created, "/id");
    daemon.crash();
    parked.proceed();
    let daemon = ground.start();
    let done = ended(&daemon, id);
    assert_eq!((&done["status"], text(&done)), (&json!("completed"), "sent\n"), "{done:#}");
    assert_eq!(text(&next(&daemon, id, "cat begun")), "begun\n");
    daemon.stop();
}

#[test]
fn a_server_that_is_told_to_end_says_how_its_tasks_ended() {
    let ground = Ground::default();
    let daemon = ground.start();
    let created = begin(&daemon, COUNT);
    wait_for_lines(&ground, &created, 5);
    daemon.stop();
    let daemon = ground.start();
    let done = daemon.get(&format!("/v1/responses/{}", member(&created, "/id")));
    assert_eq!(
        (&done["status"], &done["error"]["code"]),
        (&json!("failed"), &json!("hangar_session_lost"))
    );
    assert_counted(text(&done), 5);
    assert_eq!(text(&next(&daemon, member(&created, "/id"), "cat begun")), "begun\n");
    daemon.stop();
}
