//! Tokens: roles, expiry, revocation; and what a scope may use.

use crate::public::Public;
use hangar_tests::checked::refusal;
use hangar_tests::http::exchange;
use serde_json::{Value, json};

const FORBIDDEN: (u16, &str) = (403, "insufficient_scope");

fn told(refused: &(u16, String)) -> (u16, &str) {
    (refused.0, &refused.1)
}

#[test]
fn a_role_permits_what_it_says() {
    let public = Public::start();
    let [full, run, read] = ["full", "run", "read"].map(|role| public.token("team", role));
    let made = public.call(&full, "POST", "/v1/environments", &json!({ "name": "e" }));
    assert_eq!(made.status, 200);
    let environment = format!("/v1/environments/{}", made.json()["id"].as_str().unwrap());
    let harness = public.get(&full, "/v1/harnesses").json()["harnesses"][0].clone();
    let harness = format!("/v1/harnesses/{}", harness["id"].as_str().unwrap());
    // What tasks run on is changed by `full` only.
    for (method, path, body) in [
        ("PUT", harness.as_str(), json!({})),
        ("POST", "/v1/harnesses", json!({ "name": "x", "base": "shell" })),
        ("PUT", &environment, json!({ "name": "f" })),
        ("PUT", &format!("{environment}/files/x"), json!({})),
        ("DELETE", &environment, Value::Null),
        ("PUT", &format!("{}/retention", environment.replace("/v1/", "/v1/hangar/")), json!({})),
    ] {
        for token in [&run, &read] {
            let refused = refusal(&public.call(token, method, path, &body));
            assert_eq!(told(&refused), FORBIDDEN, "{method} {path}");
        }
    }
    assert_eq!(public.call(&full, "PUT", &environment, &json!({ "name": "f" })).status, 200);
    // `run` starts things and ends them.
    let session = public.call(&run, "POST", "/v1/hangar/sessions", &json!({})).json();
    let id = session["id"].as_str().unwrap();
    let exec = format!("/v1/hangar/sessions/{id}/exec");
    assert_eq!(public.call(&run, "POST", &exec, &json!({ "command": "true" })).status, 200);
    let share = format!("/v1/sessions/{id}/share");
    assert_eq!(told(&refusal(&public.call(&read, "POST", &share, &json!({})))), FORBIDDEN);
    assert_eq!(public.call(&run, "POST", &share, &json!({})).status, 200);
    // Everybody looks.
    for token in [&full, &run, &read] {
        for path in ["/v1/environments", "/v1/harnesses", "/v1/sessions", "/v1/files", "/v1/models"]
        {
            assert_eq!(public.get(token, path).status, 200, "{path}");
        }
        let tokens = refusal(&public.get(token, "/v1/hangar/tokens"));
        assert_eq!(told(&tokens), FORBIDDEN, "tokens are managed on the host");
    }
    let path = format!("/v1/sessions/{id}");
    assert_eq!(told(&refusal(&public.call(&read, "DELETE", &path, &Value::Null))), FORBIDDEN);
    assert_eq!(public.call(&run, "DELETE", &path, &Value::Null).status, 200);
    let odd = public.server.call("POST", "/v1/hangar/tokens", br#"{"role": "root"}"#);
    assert_eq!(refusal(&odd), (400, "invalid_input".to_owned()));
}

#[test]
fn what_is_in_another_scope_is_not_there() {
    let public = Public::start();
    let (mine, other) = (public.token("mine", "full"), public.token("other", "full"));
    let form = b"--b\r\nContent-Disposition: form-data; name=file; filename=f\r\n\r\nx\r\n--b--";
    let bearer = format!("Bearer {mine}");
    let fields =
        [("Authorization", bearer.as_str()), ("Content-Type", "multipart/form-data; boundary=b")];
    let sent = exchange(public.connect(), "POST", "/v1/files", &fields, form).unwrap().json();
    let file = format!("/v1/files/{}", sent["id"].as_str().unwrap());
    let made = json!({ "name": "x", "base": "shell", "skills": [{ "name": "s", "content": "x" }] });
    let made = public.call(&mine, "POST", "/v1/harnesses", &made).json();
    let harness = format!("/v1/harnesses/{}", made["id"].as_str().unwrap());
    let task =
        public.call(&mine, "POST", "/v1/responses", &json!({ "input": "echo x > f" })).json();
    let session = task["metadata"]["session_id"].as_str().unwrap();
    let artifact =
        public.get(&mine, &format!("/v1/sessions/{session}/files")).json()["files"][0].clone();
    let artifact = format!(
        "/v1/containers/{}/files/{}",
        artifact["container_id"].as_str().unwrap(),
        artifact["id"].as_str().unwrap()
    );
    let session = format!("/v1/sessions/{session}");
    for (method, path, code) in [
        ("GET", file.clone(), "file_not_found"),
        ("GET", file.clone() + "/content", "file_not_found"),
        ("DELETE", file.clone(), "file_not_found"),
        ("GET", harness.clone() + "/skills/s/files", "harness_not_found"),
        ("GET", harness.clone() + "/models", "harness_not_found"),
        ("GET", harness + "/plugins/s/files", "harness_not_found"),
        ("GET", artifact.clone() + "/content", "file_not_found"),
        ("GET", artifact + "/pdf", "file_not_found"),
        ("GET", session.clone() + "/files/archive", "session_not_found"),
        ("POST", session.clone() + "/share", "session_not_found"),
        ("DELETE", session.clone() + "/share", "session_not_found"),
        ("DELETE", session.replace("sessions", "traces"), "session_not_found"),
    ] {
        let refused = refusal(&public.call(&other, method, &path, &Value::Null));
        assert_eq!(told(&refused), (404, code), "{method} {path}");
    }
    // Neither can a task of another scope read it.
    let asked = json!({ "input": [{ "role": "user", "content": [
        { "type": "input_text", "text": "cat f" }, { "type": "input_file", "file_id": sent["id"] }] }] });
    let refused = refusal(&public.call(&other, "POST", "/v1/responses", &asked));
    assert_eq!(told(&refused), (404, "file_not_found"));
    let read = public.call(&mine, "POST", "/v1/responses", &asked).json();
    assert!(read["output"].to_string().contains("\"text\":\"x\""), "{read}");
    assert_eq!(public.get(&other, "/v1/files").json()["data"], json!([]));
    for path in [file, session] {
        assert_eq!(public.get(&mine, &path).status, 200, "it is all there");
    }
}

#[test]
fn a_token_ends_by_itself_or_is_revoked() {
    let mut public = Public::start();
    let make =
        |public: &Public, asked: Value| public.server.daemon().post("/v1/hangar/tokens", &asked);
    let short = make(&public, json!({ "expires_in_seconds": 1 }));
    let long = make(&public, json!({ "expires_in_seconds": 86_400, "role": "run" }));
    let secret = |token: &Value| token["token"].as_str().unwrap().to_owned();
    let status = |public: &Public, token: &Value| public.get(&secret(token), "/v1/sessions").status;
    crate::until("the token ends", || status(&public, &short) == 401);
    let refused = refusal(&public.get(&secret(&short), "/v1/sessions"));
    assert_eq!(told(&refused), (401, "invalid_credential"));
    assert_eq!(status(&public, &long), 200);
    let listed = public.server.daemon().get("/v1/hangar/tokens");
    let listed = |id: &Value| {
        let all = listed["tokens"].as_array().unwrap();
        all.iter().find(|token| token["id"] == *id).unwrap().clone()
    };
    assert_eq!(listed(&short["id"])["expired"], true);
    assert_eq!(
        (&listed(&long["id"])["expired"], &listed(&long["id"])["role"]),
        (&json!(false), &json!("run"))
    );
    assert!(!listed(&long["id"]).to_string().contains(&secret(&long)));
    // Both facts outlive the server.
    public.server.crash_and_restart();
    assert_eq!((status(&public, &short), status(&public, &long)), (401, 200));
    public.server.daemon().delete(&format!("/v1/hangar/tokens/{}", long["id"].as_str().unwrap()));
    assert_eq!(status(&public, &long), 401);
    for odd in [json!(0), json!(-1), json!(u64::MAX)] {
        let body = json!({ "expires_in_seconds": odd }).to_string();
        let refused = public.server.call("POST", "/v1/hangar/tokens", body.as_bytes());
        assert_eq!(refusal(&refused), (400, "invalid_input".to_owned()), "{odd}");
    }
}

#[test]
fn a_scope_that_asks_too_often_is_told_when_to_come_back() {
    let public = Public::configured("[limits]\nrequests_per_minute_max = 5\n");
    let (busy, same, other) =
        (public.token("busy", "full"), public.token("busy", "read"), public.token("other", "full"));
    for _ in 0..5 {
        assert_eq!(public.get(&busy, "/v1/sessions").status, 200);
    }
    let refused = public.get(&busy, "/v1/sessions");
    assert_eq!(refusal(&refused), (429, "rate_limited".to_owned()));
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["type"], &error["detail"]["per_minute_max"]),
        (&json!("rate_limit_error"), &json!(5))
    );
    let wait = error["detail"]["retry_after_ms"].as_u64().unwrap();
    assert!((1..=12_000).contains(&wait), "{wait}");
    assert_eq!(refused.field("retry-after"), Some(wait.div_ceil(1000).to_string().as_str()));
    assert_eq!(refused.field("uhp-version"), Some("2026-09-28"));
    // It is the scope that is counted, not the token; others go on, and so does the operator.
    assert_eq!(public.get(&same, "/v1/sessions").status, 429);
    assert_eq!(public.get(&other, "/v1/sessions").status, 200);
    assert_eq!(public.get("wrong", "/v1/sessions").status, 401, "who it is comes first");
    let tasks = Public::configured("[limits]\ntasks_per_minute_max = 1\n");
    let token = tasks.token("x", "run");
    let run = || tasks.call(&token, "POST", "/v1/responses", &json!({ "input": "true" }));
    assert_eq!(run().status, 200);
    assert_eq!(refusal(&run()), (429, "rate_limited".to_owned()));
    assert_eq!(tasks.get(&token, "/v1/sessions").status, 200, "others are not counted as tasks");
    assert_eq!(public.server.call("GET", "/v1/sessions", b"").status, 200);
}

#[test]
fn a_scope_has_so_many_sessions() {
    let public = Public::configured("[limits]\nsessions_max = 2\n");
    let (one, other) = (public.token("one", "run"), public.token("other", "run"));
    let create = |token: &str| public.call(token, "POST", "/v1/hangar/sessions", &json!({}));
    // At once, so that they are counted one after the other.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..5).map(|_| scope.spawn(|| create(&one).status)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 2, "{statuses:?}");
    let refused = create(&one);
    assert_eq!(refusal(&refused), (429, "quota_exhausted".to_owned()));
    assert_eq!(refused.json()["error"]["detail"]["max_sessions"], 2);
    assert_eq!(create(&other).status, 200);
    let listed = public.get(&one, "/v1/sessions").json();
    let id = listed["sessions"][0]["id"].as_str().unwrap();
    assert_eq!(
        public.call(&one, "DELETE", &format!("/v1/sessions/{id}"), &Value::Null).status,
        200
    );
    assert_eq!(create(&one).status, 200, "there is room again");
    // A task that makes a session needs a place for it; one that continues does not.
    let task = |token: &str, body: Value| public.call(token, "POST", "/v1/responses", &body);
    let refused = task(&one, json!({ "input": "echo x" }));
    assert_eq!(refusal(&refused), (429, "quota_exhausted".to_owned()));
    let first = task(&other, json!({ "input": "echo x" }));
    assert_eq!(first.status, 200);
    let next =
        task(&other, json!({ "input": "echo y", "previous_response_id": first.json()["id"] }));
    assert_eq!(next.status, 200);
}
