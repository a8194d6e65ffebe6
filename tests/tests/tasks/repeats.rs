//! `Idempotency-Key`: the same request again is the same task.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::Answer;
use hangar_tests::task::{Events, member, text, whole};
use serde_json::{Value, json};

fn ask(server: &Checked, key: &str, request: &Value) -> Answer {
    let fields = [("Content-Type", "application/json"), ("Idempotency-Key", key)];
    server.call_with("POST", "/v1/responses", &fields, request.to_string().as_bytes())
}

fn count(server: &Checked) -> usize {
    server.get("/v1/sessions?limit=100")["sessions"].as_array().unwrap().len()
}

#[test]
fn the_same_request_again_is_the_same_task() {
    let mut server = Checked::start();
    let request = json!({ "input": "echo $RANDOM $RANDOM; sleep 0.3", "max_step": 3 });
    // Both at once: one begins, the other waits for it.
    let both: Vec<Value> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(|| ask(&server, "k1", &request))).collect();
        asked.into_iter().map(|one| one.join().unwrap().json()).collect()
    });
    assert_eq!(both[0]["status"], "completed", "{}", both[0]);
    assert!(both.iter().all(|one| *one == both[0]));
    assert_eq!(count(&server), 1, "it ran once");
    // Members in another order are the same request.
    let again = r#"{"max_step": 3, "input": "echo $RANDOM $RANDOM; sleep 0.3"}"#;
    let fields = [("Content-Type", "application/json"), ("Idempotency-Key", "k1")];
    let again = server.call_with("POST", "/v1/responses", &fields, again.as_bytes());
    assert_eq!(again.json(), both[0]);

    let other = ask(&server, "k1", &json!({ "input": "echo other" }));
    assert_eq!(refusal(&other), (400, "invalid_input".to_owned()));
    assert_eq!(other.json()["error"]["param"], "Idempotency-Key");
    for key in ["", &"x".repeat(256)] {
        assert_eq!(refusal(&ask(&server, key, &request)).0, 400);
    }
    // Another key, or a request that was refused before, begins.
    assert_ne!(ask(&server, "k2", &request).json()["id"], both[0]["id"]);
    let odd = json!({ "input": "" });
    assert_eq!(ask(&server, "k3", &odd).status, 400);
    assert_eq!(ask(&server, "k3", &json!({ "input": "true" })).status, 200);

    // As a stream too, also when the answer is not kept otherwise.
    let request = json!({ "input": "echo once", "stream": true, "store": false });
    let stream = || {
        let fields = [("Content-Type", "application/json"), ("Idempotency-Key", "k4")];
        let body = request.to_string();
        Events::ask(server.daemon(), "POST", "/v1/responses", &fields, &body).all()
    };
    let first = stream();
    assert_eq!(text(whole(&first)), "once\n");
    assert_eq!(stream(), first);
    let path = format!("/v1/responses/{}", member(whole(&first), "/id"));
    assert_eq!(server.call("GET", &path, b"").status, 404);

    let before = count(&server);
    server.crash_and_restart();
    let request = json!({ "input": "echo $RANDOM $RANDOM; sleep 0.3", "max_step": 3 });
    assert_eq!(ask(&server, "k1", &request).json(), both[0], "a restart forgets nothing");
    assert_eq!(count(&server), before);
    // What was deleted is not begun again.
    let path = format!("/v1/responses/{}", member(&both[0], "/id"));
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    assert_eq!(count(&server), before);
}
