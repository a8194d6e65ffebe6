//! What an operator learns of a running server: its numbers, its audit log, whether it is ready.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::{Answer, exchange};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};

struct Public {
    server: Checked,
    address: String,
}

impl Public {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let address = format!("127.0.0.1:{port}");
        Self { server: Checked::configured("", &["--listen", &address]), address }
    }

    fn call(&self, token: &str, method: &str, path: &str, body: &str) -> Answer {
        let bearer = format!("Bearer {token}");
        let fields = [("Authorization", bearer.as_str()), ("X-Request-Id", "of-the-client")];
        let stream = TcpStream::connect(&self.address).unwrap();
        exchange(stream, method, path, &fields, body.as_bytes()).unwrap()
    }

    fn token(&self, request: &Value) -> (String, String) {
        let made = self.server.daemon().post("/v1/hangar/tokens", request);
        let text = |key: &str| made[key].as_str().unwrap().to_owned();
        (text("id"), text("token"))
    }

    /// The lines of the audit log, once the one that is waited for is there.
    fn audited(&self, path: &str, status: u16) -> Value {
        hangar_tests::processes::wait_for(&format!("{status} for {path} in the audit log"), || {
            let text = std::fs::read_to_string(self.server.state().join("api/audit.jsonl"));
            let lines = text.unwrap_or_default();
            let mut entries = lines.lines().map(|line| serde_json::from_str(line).unwrap());
            entries.find(|entry: &Value| entry["path"] == path && entry["status"] == status)
        })
    }
}

/// The number of a series, 0 where it is not there.
fn number(metrics: &str, series: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

#[test]
fn numbers_count_requests_refusals_and_launches() {
    let server = Checked::start();
    let api = server.daemon();
    let session = api.post("/v1/hangar/sessions", &json!({ "network": "none" }));
    let path = format!("/v1/sessions/{}", session["id"].as_str().unwrap());
    assert_eq!(server.call("GET", &path, b"").status, 200);
    assert_eq!(
        server.call("GET", "/v1/sessions/hsess00000000000000000000000000000000", b"").status,
        404
    );
    let metrics = || String::from_utf8(server.call("GET", "/v1/hangar/metrics", b"").body).unwrap();
    let running = metrics();
    let requests = |status: u16| {
        format!(
            r#"hangar_requests_total{{method="GET",route="/v1/sessions/{{id}}",status="{status}"}}"#
        )
    };
    assert_eq!(number(&running, &requests(200)), 1.0, "{running}");
    assert_eq!(number(&running, &requests(404)), 1.0, "{running}");
    assert_eq!(number(&running, r#"hangar_refusals_total{code="session_not_found"}"#), 1.0);
    assert_eq!(number(&running, r#"hangar_launches_total{outcome="succeeded"}"#), 1.0);
    assert_eq!(number(&running, "hangar_launch_seconds_count"), 1.0);
    assert_eq!(number(&running, "hangar_sessions_running"), 1.0);
    assert!(number(&running, "hangar_api_resident_bytes") > 1e6, "{running}");
    assert!(number(&running, "hangar_disk_free_bytes") > 1e6, "{running}");
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    assert_eq!(number(&metrics(), "hangar_sessions_running"), 0.0);
}

#[test]
fn numbers_of_the_server_are_for_its_operator() {
    let public = Public::start();
    let (_, own) = public.token(&json!({ "scope": "default" }));
    let (_, other) = public.token(&json!({ "scope": "other" }));
    assert_eq!(public.call(&own, "GET", "/v1/hangar/metrics", "").status, 200);
    let refused = public.call(&other, "GET", "/v1/hangar/metrics", "");
    assert_eq!(refusal(&refused), (403, "insufficient_scope".to_owned()));
}

#[test]
fn the_audit_log_names_who_changed_what_and_who_was_refused() {
    let public = Public::start();
    let (id, token) = public.token(&json!({ "scope": "team" }));
    let made = public.call(&token, "POST", "/v1/environments", r#"{"name": "x"}"#);
    assert_eq!(made.status, 200);
    let entry = public.audited("/v1/environments", 200);
    assert_eq!(entry["token"], id);
    assert_eq!((&entry["scope"], &entry["peer"]), (&json!("team"), &json!("remote")));
    assert_eq!((&entry["request"], &entry["method"]), (&json!("of-the-client"), &json!("POST")));
    let path = "/v1/hangar/environments/henv_00000000000000000000000000000000/retention";
    assert_eq!(public.call(&token, "PUT", path, "{}").status, 404);
    let refused = public.audited(path, 404);
    assert_eq!(
        (&refused["code"], &refused["token"]),
        (&json!("environment_not_found"), &json!(id))
    );
    assert_eq!(public.call("wrong", "GET", "/v1/sessions?secret=x", "").status, 401);
    let stranger = public.audited("/v1/sessions", 401);
    assert_eq!(
        (&stranger["code"], &stranger["token"]),
        (&json!("invalid_credential"), &Value::Null)
    );
    let log = std::fs::read_to_string(public.server.state().join("api/audit.jsonl")).unwrap();
    assert!(!log.contains(&token) && !log.contains("wrong") && !log.contains("secret"), "{log}");
    // Looking at what is one's own is nothing to be audited.
    assert_eq!(public.call(&token, "GET", "/v1/environments", "").status, 200);
    assert_eq!(log.matches(r#""method":"GET""#).count(), 1);
}

#[test]
fn a_running_server_is_ready() {
    let server = Checked::start();
    let ready = server.call("GET", "/v1/hangar/ready", b"");
    assert_eq!(ready.status, 200);
    assert_eq!(ready.json()["checks"], json!({ "warden": true, "store": true, "disk": true }));
}
