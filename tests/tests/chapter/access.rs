//! Tokens, scopes, and what is not there for others.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::{Answer, exchange};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};

/// A server that listens on a port too.
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

    fn call(&self, token: Option<&str>, method: &str, path: &str, body: &[u8]) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let fields: Vec<_> =
            bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let stream = TcpStream::connect(&self.address).unwrap();
        exchange(stream, method, path, &fields, body).unwrap()
    }

    /// Makes a token over the local socket.
    fn token(&self, request: &Value) -> Value {
        self.server.daemon().post("/v1/hangar/tokens", request)
    }
}

fn secret(token: &Value) -> &str {
    token["token"].as_str().unwrap()
}

#[test]
fn what_is_in_another_scope_is_not_there() {
    let public = Public::start();
    let (mine, other) =
        (public.token(&json!({ "scope": "a" })), public.token(&json!({ "scope": "b" })));
    let (mine, other) = (secret(&mine), secret(&other));
    let made = public.call(Some(mine), "POST", "/v1/environments", br#"{"name": "x"}"#).json();
    let id = made["id"].as_str().unwrap();
    let file = format!("/v1/environments/{id}/files/f");
    assert_eq!(public.call(Some(mine), "PUT", &file, b"x").status, 200);
    for (method, path) in [
        ("GET", ""),
        ("PUT", ""),
        ("DELETE", ""),
        ("GET", "/files"),
        ("GET", "/files/f"),
        ("PUT", "/files/f"),
        ("DELETE", "/files/f"),
        ("POST", "/directories"),
        ("POST", "/import"),
        ("POST", "/build"),
        ("GET", "/builds/1"),
        ("GET", "/versions"),
        ("POST", "/versions/1/activate"),
        ("GET", "/harnesses"),
    ] {
        let path = format!("/v1/environments/{id}{path}");
        let answer = public.call(Some(other), method, &path, b"{}");
        assert_eq!(refusal(&answer), (404, "environment_not_found".to_owned()), "{method} {path}");
    }
    for (method, path) in [
        ("GET", "builds/1/log"),
        ("POST", "versions/1/verify"),
        ("DELETE", "versions/1"),
        ("GET", "diff?from=1&to=2"),
        ("GET", "usage"),
        ("GET", "retention"),
        ("PUT", "retention"),
    ] {
        let path = format!("/v1/hangar/environments/{id}/{path}");
        let answer = public.call(Some(other), method, &path, b"{}");
        assert_eq!(refusal(&answer), (404, "environment_not_found".to_owned()), "{method} {path}");
    }
    let asked = json!({ "environment": id }).to_string();
    let session = public.call(Some(other), "POST", "/v1/hangar/sessions", asked.as_bytes());
    assert_eq!(refusal(&session), (404, "environment_not_found".to_owned()));
    let harness = json!({ "name": "x", "base": "shell", "environment": id }).to_string();
    let refused = public.call(Some(other), "POST", "/v1/harnesses", harness.as_bytes());
    assert_eq!(refusal(&refused), (404, "environment_not_found".to_owned()));
    let made = public.call(Some(mine), "POST", "/v1/harnesses", harness.as_bytes());
    let harness = format!("/v1/harnesses/{}", made.json()["id"].as_str().unwrap());
    for method in ["GET", "PUT", "DELETE"] {
        let answer = public.call(Some(other), method, &harness, b"{}");
        assert_eq!(refusal(&answer), (404, "harness_not_found".to_owned()), "{method}");
    }
    // The same mount path in another scope is another place.
    let same = public.call(Some(other), "POST", "/v1/environments", br#"{"name": "x"}"#);
    assert_eq!(same.status, 200);
    let listed = public.call(Some(mine), "GET", "/v1/environments", b"").json();
    assert_eq!(listed["environments"].as_array().unwrap().len(), 1);
    assert_eq!(
        public.server.get("/v1/environments")["environments"],
        json!([]),
        "the default scope"
    );
    assert_eq!(public.call(Some(mine), "GET", &file, b"").body, b"x");
}

#[test]
fn a_token_is_good_until_it_is_revoked() {
    let public = Public::start();
    let list = |token: &str| public.call(Some(token), "GET", "/v1/environments", b"");
    let made = public.token(&json!({ "name": "ci" }));
    assert_eq!(list(secret(&made)).status, 200);
    // It is stored as a digest, in no file as it is.
    let database = std::fs::read(public.server.state().join("api/db.sqlite")).unwrap();
    let journal =
        std::fs::read(public.server.state().join("api/db.sqlite-wal")).unwrap_or_default();
    let secret_bytes = secret(&made).as_bytes();
    for bytes in [&database, &journal] {
        assert!(!bytes.windows(secret_bytes.len()).any(|part| part == secret_bytes));
    }
    let path = format!("/v1/hangar/tokens/{}", made["id"].as_str().unwrap());
    let remote = public.call(Some(secret(&made)), "DELETE", &path, b"");
    assert_eq!(refusal(&remote), (403, "insufficient_scope".to_owned()));
    public.server.daemon().delete(&path);
    // Absent, malformed and unknown look alike.
    assert_eq!(refusal(&list(secret(&made))), (401, "invalid_credential".to_owned()));
    assert_eq!(refusal(&list("wrong")), (401, "invalid_credential".to_owned()));
    let none = public.call(None, "GET", "/v1/environments", b"");
    assert_eq!(refusal(&none), (401, "missing_credential".to_owned()));
    assert_eq!(public.call(None, "GET", "/v1/uhp", b"").status, 200);
    assert!(!String::from_utf8_lossy(&none.body).contains("hangar_"));
    let first = std::fs::read_to_string(public.server.state().join("token")).unwrap();
    assert_eq!(list(first.trim()).status, 200);
}

#[test]
fn a_token_for_reading_reads() {
    let public = Public::start();
    let id = public.server.environment("read", &[("f", "x")]);
    let token = public.token(&json!({ "role": "read" }));
    let token = Some(secret(&token));
    let path = format!("/v1/environments/{id}");
    for below in ["", "/files", "/files/f", "/versions", "/harnesses"] {
        assert_eq!(public.call(token, "GET", &format!("{path}{below}"), b"").status, 200);
    }
    for (method, below) in
        [("PUT", "/files/f"), ("DELETE", "/files/f"), ("DELETE", ""), ("POST", "/build")]
    {
        let answer = public.call(token, method, &format!("{path}{below}"), b"");
        assert_eq!(refusal(&answer), (403, "insufficient_scope".to_owned()), "{method} {below}");
    }
    assert_eq!(public.server.call("GET", &format!("{path}/files/f"), b"").body, b"x");
}

#[test]
fn a_token_for_reading_starts_no_lookup() {
    let public = Public::start();
    let token = public.token(&json!({ "role": "read" }));
    let token = Some(secret(&token));
    let path = "/v1/environments/packages/check?manager=pip&spec=six==1.16.0";
    let refused = public.call(token, "GET", path, b"");
    assert_eq!(refusal(&refused), (403, "insufficient_scope".to_owned()));
    assert_eq!(
        std::fs::read_dir(public.server.state().join("sessions")).unwrap().count(),
        0,
        "a session was started"
    );
    // What it may read without one: what somebody asked, and what this host has.
    let asked = public.server.get(path);
    assert_eq!(asked["exists"], true, "{asked}");
    let known = public.call(token, "GET", path, b"");
    assert_eq!((known.status, known.json()), (200, asked));
    assert_eq!(public.call(token, "GET", "/v1/environments/runtimes", b"").status, 200);
    let odd = public.call(token, "GET", "/v1/environments/packages/check?manager=gem", b"");
    assert_eq!(refusal(&odd), (400, "environment_invalid".to_owned()));
}
