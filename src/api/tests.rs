//! The routes as a client meets them, without a warden.

use super::*;
use crate::api::auth::{Peer, Tokens, token_digest};
use crate::app::ApiFiles;
use crate::environments::source::Sources;
use crate::sessions::isolation::Isolations;
use crate::store::{Access, Store, TokenRow};
use crate::warden_client::WardenClient;
use axum::body::Body;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

const TOKEN: &str = "hangar_test";

struct Server {
    router: Router,
    _dir: tempfile::TempDir,
}

struct Answer {
    status: StatusCode,
    headers: axum::http::HeaderMap,
    bytes: Vec<u8>,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap()
    }

    fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

fn token(token: &str, scope: &str, access: Access) -> TokenRow {
    TokenRow {
        id: token.to_owned(),
        digest: token_digest(token),
        scope: scope.to_owned(),
        access,
        name: String::new(),
        created_ms: 0,
        expires_ms: None,
    }
}

fn server() -> Server {
    let dir = tempfile::tempdir().unwrap();
    for name in ["sources", "uploads", "logs"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let files = ApiFiles { root: dir.path().to_owned() };
    let (warden, _) = WardenClient::start(None, "/nonexistent/warden.sock".into());
    let (ended, _) = tokio::sync::mpsc::unbounded_channel();
    let mut config = crate::config::Config::default();
    config.uploads.file_bytes_max = 1000;
    let app = App {
        sources: Sources::new(files.sources()),
        store: Store::open(&files.database()).unwrap(),
        isolations: Arc::new(Isolations::new(warden.clone(), ended)),
        warden,
        config,
        files,
        locks: Default::default(),
        lookups: Default::default(),
        tasks: Default::default(),
        runtimes: Default::default(),
        git_imports: Default::default(),
        live_sessions: Default::default(),
        tags: Default::default(),
        logs: Default::default(),
        activity: Default::default(),
        toolchain: Default::default(),
        audit: Default::default(),
        boot: String::new(),
        tokens: Tokens::new(vec![
            token(TOKEN, "default", Access::Full),
            token("hangar_other", "other", Access::Full),
            token("hangar_reader", "default", Access::Read),
        ]),
        builds: Default::default(),
        rates: Default::default(),
        admission: Default::default(),
        build_slots: Arc::new(tokio::sync::Semaphore::new(1)),
    };
    Server { router: router(Arc::new(app)), _dir: dir }
}

impl Server {
    async fn send(&self, request: axum::http::request::Builder, body: &[u8]) -> Answer {
        let request = request.body(Body::from(body.to_vec())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        assert_eq!(parts.headers[VERSION_HEADER], PROTOCOL_VERSION, "on every answer");
        Answer { status: parts.status, headers: parts.headers, bytes }
    }

    async fn call(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        let request = Request::builder().method(method).uri(path);
        self.send(request.header("authorization", format!("Bearer {TOKEN}")), body).await
    }

    async fn environment(&self, name: &str) -> String {
        let body = serde_json::json!({ "name": name }).to_string();
        let made = self.call("POST", "/v1/environments", body.as_bytes()).await;
        assert_eq!(made.status, 200, "{}", made.json());
        made.json()["id"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn only_discovery_needs_no_token() {
    let server = server();
    let get = |path: &str| Request::builder().uri(path);
    let discovery = server.send(get("/v1/uhp"), b"").await;
    assert_eq!(discovery.status, 200);
    assert_eq!(discovery.json()["capabilities"]["environments"], true);
    let none = server.send(get("/v1/environments"), b"").await;
    assert_eq!((none.status.as_u16(), none.code().as_str()), (401, "missing_credential"));
    for header in ["Bearer wrong", "Basic x", "Bearer", "Bearer "] {
        let wrong = server.send(get("/v1/environments").header("authorization", header), b"").await;
        assert_eq!((wrong.status.as_u16(), wrong.code().as_str()), (401, "invalid_credential"));
        assert_eq!(wrong.json()["error"]["type"], "authentication_error");
    }
    let local = get("/v1/environments").extension(Peer::Local);
    assert_eq!(server.send(local, b"").await.status, 200);
}

#[tokio::test]
async fn a_version_that_is_not_spoken_is_refused() {
    let server = server();
    let request = Request::builder().uri("/v1/uhp").header("UHP-Version", "2020-01-01");
    let answer = server.send(request, b"").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "unsupported_protocol_version")
    );
    assert_eq!(answer.json()["error"]["detail"]["supported"][0], PROTOCOL_VERSION);
}

#[tokio::test]
async fn a_new_environment_is_empty_and_stays_as_it_is() {
    let server = server();
    let id = server.environment("Content Studio").await;
    assert!(id.starts_with("henv_"));
    let shown = server.call("GET", &format!("/v1/environments/{id}"), b"").await.json();
    assert_eq!(shown["status"], "empty");
    assert_eq!(shown["version"], Value::Null);
    assert_eq!(shown["mount"], "/env/content-studio");
    assert_eq!(shown["files"]["count"], 0);
    let again = server.call("POST", "/v1/environments", br#"{"name": "content studio"}"#).await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (409, "environment_exists"));
    let unnamed = server.call("POST", "/v1/environments", br#"{"name": "../.."}"#).await;
    assert_eq!((unnamed.status.as_u16(), unnamed.code().as_str()), (422, "environment_invalid"));
    let changed = server
        .call("PUT", &format!("/v1/environments/{id}"), br#"{"name": "Other", "entry": "run"}"#)
        .await
        .json();
    assert_eq!((&changed["slug"], &changed["entry"]), (&"content-studio".into(), &"run".into()));
}

#[tokio::test]
async fn environments_of_other_scopes_are_not_there() {
    let server = server();
    let id = server.environment("mine").await;
    for path in ["", "/files", "/versions"] {
        let request = Request::builder()
            .uri(format!("/v1/environments/{id}{path}"))
            .header("authorization", "Bearer hangar_other");
        let answer = server.send(request, b"").await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "environment_not_found")
        );
    }
}

#[tokio::test]
async fn files_come_back_byte_for_byte_and_odd_paths_are_refused() {
    let server = server();
    let base = format!("/v1/environments/{}", server.environment("files").await);
    let bytes = b"a\0b\xff\r\n";
    let put = server.call("PUT", &format!("{base}/files/probe/nested/blob.bin"), bytes).await;
    assert_eq!(put.json()["bytes"], bytes.len());
    let got = server.call("GET", &format!("{base}/files/probe/nested/blob.bin"), b"").await;
    assert_eq!(got.bytes, bytes);
    assert_eq!(got.headers["x-content-type-options"], "nosniff");
    let tree = server.call("GET", &format!("{base}/files"), b"").await.json();
    let paths: Vec<_> = tree["entries"].as_array().unwrap().iter().map(|e| &e["path"]).collect();
    assert_eq!(paths, ["probe", "probe/nested", "probe/nested/blob.bin"]);
    for path in ["..%2Fescape.txt", "a/..%2f..%2fb", "%2Fetc%2Fpasswd", "a%00b", "a//b", "a%5"] {
        let answer = server.call("PUT", &format!("{base}/files/{path}"), b"x").await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, "environment_invalid"));
    }
    let large = server.call("PUT", &format!("{base}/files/large"), &[0; 1001]).await;
    assert_eq!((large.status.as_u16(), large.code().as_str()), (413, "file_too_large"));
    assert_eq!(large.json()["error"]["detail"]["max_bytes"], 1000);
    let made = server.call("POST", &format!("{base}/directories"), br#"{"path": "a/b/"}"#).await;
    assert_eq!(made.json()["dir"], true);
    let removed = server.call("DELETE", &format!("{base}/files/probe"), b"").await;
    assert_eq!(removed.json()["deleted"], true);
    let gone = server.call("GET", &format!("{base}/files/probe/nested/blob.bin"), b"").await;
    assert_eq!((gone.status.as_u16(), gone.code().as_str()), (404, "file_not_found"));
}

#[tokio::test]
async fn what_was_never_built_cannot_be_read_or_activated() {
    let server = server();
    let id = server.environment("unbuilt").await;
    let body = serde_json::json!({ "environment": id }).to_string();
    let session = server.call("POST", "/v1/hangar/sessions", body.as_bytes()).await;
    assert_eq!((session.status.as_u16(), session.code().as_str()), (409, "environment_not_ready"));
    for version in ["99", "0", "x"] {
        let path = format!("/v1/environments/{id}/versions/{version}/activate");
        let answer = server.call("POST", &path, b"").await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (409, "environment_not_ready")
        );
    }
    let unknown = serde_json::json!({ "environment": format!("henv_{}", "0".repeat(32)) });
    let session = server.call("POST", "/v1/hangar/sessions", unknown.to_string().as_bytes()).await;
    assert_eq!((session.status.as_u16(), session.code().as_str()), (404, "environment_not_found"));
}

#[tokio::test]
async fn without_a_warden_sessions_are_unavailable_and_nothing_is_left() {
    let server = server();
    let answer = server.call("POST", "/v1/hangar/sessions", b"{}").await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "hangar_warden_unavailable")
    );
    assert_eq!(answer.json()["error"]["type"], "server_error");
    let list = server.call("GET", "/v1/hangar/sessions", b"").await;
    assert_eq!(list.json()["sessions"], serde_json::json!([]));
}

#[tokio::test]
async fn everything_else_answers_in_the_envelope_too() {
    let server = server();
    for (method, path, body, status) in [
        ("GET", "/nothing", "", 404),
        ("PATCH", "/v1/environments", "", 404),
        ("GET", "/v1/environments/henv_x", "", 404),
        ("POST", "/v1/environments", "{", 400),
        ("POST", "/v1/environments", r#"{"name": 7}"#, 400),
        ("POST", "/v1/hangar/sessions", r#"{"network": "everything"}"#, 400),
        ("POST", "/v1/hangar/sessions", r#"{"limits": {"pids_max": 1}}"#, 400),
        ("POST", "/v1/hangar/sessions", r#"{"limits": {"x": 1}}"#, 400),
        ("GET", "/v1/sessions/hsess1", "", 404),
        ("GET", "/v1/containers/cntr_1/files/file_61/content", "", 404),
    ] {
        let answer = server.call(method, path, body.as_bytes()).await;
        assert_eq!(answer.status, status, "{method} {path} {body}");
        let error = &answer.json()["error"];
        for field in ["type", "code", "message", "param", "detail"] {
            assert!(error.get(field).is_some(), "{method} {path}: {field}");
        }
    }
}

#[tokio::test]
async fn a_token_for_reading_changes_nothing() {
    let server = server();
    let id = server.environment("readable").await;
    let send = async |method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        server.send(request.header("authorization", "Bearer hangar_reader"), b"{}").await
    };
    for path in ["", "/files", "/versions", "/harnesses"] {
        assert_eq!(send("GET", &format!("/v1/environments/{id}{path}")).await.status, 200);
    }
    for (method, path) in [
        ("POST", "/v1/environments".to_owned()),
        ("DELETE", format!("/v1/environments/{id}")),
        ("PUT", format!("/v1/environments/{id}/files/x")),
        ("POST", format!("/v1/environments/{id}/build")),
        ("POST", "/v1/hangar/sessions".to_owned()),
    ] {
        let refused = send(method, &path).await;
        assert_eq!((refused.status.as_u16(), refused.code().as_str()), (403, "insufficient_scope"));
        assert_eq!(refused.json()["error"]["type"], "permission_error");
    }
}

#[tokio::test]
async fn tokens_are_made_and_revoked_on_this_host_only() {
    let server = server();
    let remote = server.call("POST", "/v1/hangar/tokens", b"{}").await;
    assert_eq!((remote.status.as_u16(), remote.code().as_str()), (403, "insufficient_scope"));
    let local = async |method: &str, path: &str, body: &[u8]| {
        let request = Request::builder().method(method).uri(path).extension(Peer::Local);
        server.send(request, body).await
    };
    let made = local("POST", "/v1/hangar/tokens", br#"{"name": "ci", "scope": "team"}"#).await;
    let made = made.json();
    let secret = made["token"].as_str().unwrap();
    let list = async || {
        let request = Request::builder().uri("/v1/environments");
        server.send(request.header("authorization", format!("Bearer {secret}")), b"").await
    };
    assert_eq!(list().await.status, 200);
    let listed = local("GET", "/v1/hangar/tokens", b"").await;
    assert!(!String::from_utf8_lossy(&listed.bytes).contains(secret), "it is told once");
    let path = format!("/v1/hangar/tokens/{}", made["id"].as_str().unwrap());
    assert_eq!(local("DELETE", &path, b"").await.status, 200);
    let gone = list().await;
    assert_eq!((gone.status.as_u16(), gone.code().as_str()), (401, "invalid_credential"));
    assert_eq!(local("DELETE", &path, b"").await.status, 404);
    assert_eq!(local("DELETE", "/v1/hangar/tokens/first", b"").await.status, 400);
    let bad = local("POST", "/v1/hangar/tokens", br#"{"scope": "../x"}"#).await;
    assert_eq!(bad.json()["error"]["param"], "scope");
}

#[tokio::test]
async fn ranges_and_conditions_of_a_file() {
    let server = server();
    let path = format!("/v1/environments/{}/files/f", server.environment("ranges").await);
    let put = server.call("PUT", &path, b"0123456789").await;
    let etag = put.headers["etag"].to_str().unwrap().to_owned();
    let send = async |method: &str, name: &str, value: &str| {
        let request = Request::builder().method(method).uri(&path).header(name, value);
        server.send(request.header("authorization", format!("Bearer {TOKEN}")), b"new").await
    };
    let part = send("GET", "range", "bytes=2-4").await;
    assert_eq!((part.status.as_u16(), part.bytes.as_slice()), (206, &b"234"[..]));
    assert_eq!(part.headers["content-range"], "bytes 2-4/10");
    assert_eq!(part.headers["etag"], etag);
    assert_eq!(part.headers["content-length"], "3");
    let beyond = send("GET", "range", "bytes=10-").await;
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.headers["content-range"], "bytes */10");
    let head = send("HEAD", "range", "bytes=0-1").await;
    assert_eq!(
        (head.status.as_u16(), head.headers["content-length"].as_bytes()),
        (200, &b"10"[..])
    );
    assert!(head.bytes.is_empty());
    let known = send("GET", "if-none-match", &etag).await;
    assert_eq!((known.status.as_u16(), known.bytes.len()), (304, 0));
    let lost = send("PUT", "if-match", "\"other\"").await;
    assert_eq!((lost.status.as_u16(), lost.code().as_str()), (412, "hangar_precondition_failed"));
    assert_eq!(send("PUT", "if-none-match", "*").await.status, 412);
    assert_eq!(send("PUT", "if-match", &etag).await.status, 200);
    assert_eq!(send("DELETE", "if-match", &etag).await.status, 412, "it is another file now");
    assert_eq!(server.call("GET", &path, b"").await.bytes, b"new");
}

#[tokio::test]
async fn a_server_without_a_warden_is_not_ready() {
    let server = server();
    let answer = server.call("GET", "/v1/hangar/ready", b"").await;
    assert_eq!(answer.status, 503);
    let checks = serde_json::json!({ "warden": false, "store": true, "disk": true });
    assert_eq!((&answer.json()["ready"], &answer.json()["checks"]), (&false.into(), &checks));
}

#[tokio::test]
async fn every_answer_carries_the_id_of_its_request() {
    let server = server();
    let request = || Request::builder().uri("/v1/uhp");
    let sent = server.send(request().header("X-Request-Id", "mine-1"), b"").await;
    assert_eq!(sent.headers["x-request-id"], "mine-1");
    let made = server.send(request(), b"").await;
    assert_eq!(made.headers["x-request-id"].len(), 32);
    assert_eq!(server.call("GET", "/no/such", b"").await.headers["x-request-id"].len(), 32);
}
