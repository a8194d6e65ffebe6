//! What is told of each request, whatever it was about.

use super::audit::Entry;
use super::metrics;
use crate::api::auth::Peer;
use crate::app::{App, now_ms, random_hex};
use crate::failure::Code;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use std::sync::Arc;
use std::time::Instant;
use tracing::Instrument;

/// The id of a request, in the request where the client sent one and in every answer.
const REQUEST_ID: &str = "x-request-id";
/// The longest id that is taken from a client.
const ID_BYTES_MAX: usize = 64;

/// Who was let in; the authentication leaves it in the answer.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Whose objects the request was about.
    pub scope: String,
    /// The id of the token; none of local callers.
    pub token: Option<String>,
}

/// Gives a request an id, and notes its answer in the log, the numbers and, where it changes
/// something or was not let in, the audit log.
pub async fn observe(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let id = id_of(request.headers());
    let method = request.method().clone();
    let path = told_path(request.uri().path());
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(|| "none".to_owned(), |route| route.as_str().to_owned());
    let peer = match request.extensions().get::<Peer>() {
        Some(Peer::Local) => "local",
        _ => "remote",
    };
    let span = tracing::info_span!("request", id);
    let mut response = next.run(request).instrument(span.clone()).await;
    let (status, took) = (response.status().as_u16(), began.elapsed());
    let code = response.extensions().get::<Code>().map(|code| code.wire().0);
    let caller = response.extensions().get::<Caller>().cloned();
    metrics::request(method.as_str(), &route, status, code, took);
    let scope = caller.as_ref().map(|caller| caller.scope.as_str());
    span.in_scope(|| {
        tracing::debug!(%method, path, status, code, scope, ms = took.as_millis(), "answered");
    });
    if is_audited(&method, status) {
        let entry = Entry {
            time_ms: now_ms(),
            request: id.clone(),
            peer,
            scope: scope.map(str::to_owned),
            token: caller.and_then(|caller| caller.token),
            method: method.to_string(),
            path,
            status,
            code,
        };
        app.audit.note(entry).await;
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// The path as it is noted: a link to a session is a permission, and the log is for others.
fn told_path(path: &str) -> String {
    match path.starts_with("/v1/shared/") {
        true => "/v1/shared/...".to_owned(),
        false => path.to_owned(),
    }
}

/// What reads and is answered is not noted; looking around where one has no business is.
fn is_audited(method: &Method, status: u16) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) || matches!(status, 401 | 403)
}

/// The client's id, where it is one that can stand in a log, or a new one.
fn id_of(headers: &HeaderMap) -> String {
    let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let plain = |id: &&str| {
        (1..=ID_BYTES_MAX).contains(&id.len())
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    sent.filter(plain).map_or_else(random_hex, str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_a_client_is_taken_when_it_can_stand_in_a_log() {
        let with = |id: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_str(id).unwrap());
            id_of(&headers)
        };
        assert_eq!(with("abc-1.2_X"), "abc-1.2_X");
        for other in ["", "a b", "a\"b", "a{", &"x".repeat(65)] {
            let made = with(other);
            assert!(made.len() == 32 && made != other, "{other}: {made}");
        }
    }

    #[test]
    fn what_changes_and_what_is_not_let_in_is_audited() {
        assert!(is_audited(&Method::POST, 200) && is_audited(&Method::DELETE, 404));
        assert!(is_audited(&Method::GET, 401) && is_audited(&Method::HEAD, 403));
        assert!(!is_audited(&Method::GET, 200) && !is_audited(&Method::GET, 404));
    }
}
