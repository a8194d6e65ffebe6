//! Who is asking: a bearer token, or a peer of the local socket whom the kernel names.

use crate::app::{Activity, App, now_ms};
use crate::failure::{Code, Failure};
use crate::observe::Caller;
use crate::rates::Kind;
use crate::store::{Access, TokenRow};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::Method;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::sync::{Arc, PoisonError, RwLock};

/// The scope of the first token and of local peers.
pub const DEFAULT_SCOPE: &str = "default";

/// Where a connection came from; put into every request by the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// The unix socket, from root or the group of the API.
    Local,
    /// A TCP connection from anywhere.
    Remote,
}

/// What the caller can see: objects of this scope and no others.
#[derive(Debug, Clone)]
pub struct Scope(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Scope {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let scope = parts.extensions.get::<Self>().cloned();
        scope.ok_or_else(|| Failure::new(Code::MissingCredential, "a bearer token is needed"))
    }
}

/// For what little of reading would start something: the rest is refused before it gets here.
impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        let access = parts.extensions.get::<Self>().copied();
        access.ok_or_else(|| Failure::new(Code::MissingCredential, "a bearer token is needed"))
    }
}

/// Whoever asks is on this host, and root or of the group of the API.
#[derive(Debug, Clone, Copy)]
pub struct Operator;

impl<S: Send + Sync> FromRequestParts<S> for Operator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Failure> {
        match parts.extensions.get::<Peer>() {
            Some(Peer::Local) => Ok(Self),
            _ => Err(Failure::new(
                Code::InsufficientScope,
                "tokens are managed over the server's local socket only",
            )),
        }
    }
}

/// The tokens that are good now.
#[derive(Debug, Default)]
pub struct Tokens {
    known: RwLock<Vec<TokenRow>>,
}

impl Tokens {
    /// These tokens.
    #[must_use]
    pub fn new(known: Vec<TokenRow>) -> Self {
        Self { known: RwLock::new(known) }
    }

    /// From now on these tokens are good and no others.
    pub fn replace(&self, known: Vec<TokenRow>) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = known;
    }

    /// Compares digests in constant time, all of them, so that time tells nothing.
    fn bearer(&self, token: &str) -> Result<(Caller, Access), Failure> {
        let digest = token_digest(token);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let (mut found, now) = (None, now_ms());
        for token in known.iter() {
            let difference = token.digest.iter().zip(&digest).fold(0, |sum, (a, b)| sum | (a ^ b));
            if std::hint::black_box(difference) == 0 && !token.is_expired(now) {
                let caller = Caller { scope: token.scope.clone(), token: Some(token.id.clone()) };
                found = Some((caller, token.access));
            }
        }
        found.ok_or_else(|| Failure::new(Code::InvalidCredential, "the token is not valid"))
    }
}

/// The digest of a token, which is all that is stored of it.
#[must_use]
pub fn token_digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

/// Lets a request pass with its scope, or refuses it.
pub async fn authenticate(
    State(app): State<Arc<App>>,
    mut request: Request,
    next: Next,
) -> Response {
    let bearer = match request.extensions().get::<Peer>() {
        Some(Peer::Local) => {
            Ok((Caller { scope: DEFAULT_SCOPE.to_owned(), token: None }, Access::Full))
        }
        _ => bearer(request.headers().get("authorization"))
            .and_then(|token| app.tokens.bearer(token)),
    };
    let _running = Activity::begin(&app);
    let (caller, access) = match bearer {
        Ok(known) => known,
        Err(failure) => return failure.into_response(),
    };
    let permitted = permit(access, &request).and_then(|()| admit(&app, &caller.scope, &request));
    let mut response = match permitted {
        Ok(()) => {
            request.extensions_mut().insert(Scope(caller.scope.clone()));
            request.extensions_mut().insert(access);
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    };
    response.extensions_mut().insert(caller);
    response
}

/// Counts a request of a client elsewhere. The operator can look after a server that others are
/// busy with.
fn admit(app: &App, scope: &str, request: &Request) -> Result<(), Failure> {
    match request.extensions().get::<Peer>() {
        Some(Peer::Local) => Ok(()),
        _ => app.rates.admit(&app.config.limits, scope, Kind::of(request)),
    }
}

/// Where a token for running may do more than look: what comes of tasks, and nothing they run on.
const RUNNING: &[&str] = &[
    "/v1/responses",
    "/v1/sessions",
    "/v1/traces",
    "/v1/files",
    "/v1/containers",
    "/v1/hangar/sessions",
];

/// A token for reading may ask for things, and change and start nothing.
fn permit(access: Access, request: &Request) -> Result<(), Failure> {
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    let below = |root: &&str| {
        path.strip_prefix(*root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let why = match access {
        Access::Full => return Ok(()),
        _ if looks => return Ok(()),
        Access::Run if RUNNING.iter().any(below) => return Ok(()),
        Access::Run => "this token is for running tasks and not for changing what they run on",
        Access::Read => "this token is for reading only",
    };
    Err(Failure::new(Code::InsufficientScope, why))
}

fn bearer(header: Option<&axum::http::HeaderValue>) -> Result<&str, Failure> {
    let missing = || Failure::new(Code::MissingCredential, "a bearer token is needed");
    let invalid = || Failure::new(Code::InvalidCredential, "the token is not valid");
    let header = header.ok_or_else(missing)?.to_str().map_err(|_| invalid())?;
    let (scheme, token) = header.split_once(' ').ok_or_else(invalid)?;
    if !scheme.eq_ignore_ascii_case("bearer") || token.trim().is_empty() {
        return Err(invalid());
    }
    Ok(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_for_running_changes_what_comes_of_tasks() {
        let may = |access, method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path);
            permit(access, &request.body(axum::body::Body::empty()).unwrap()).is_ok()
        };
        for path in ["/v1/responses", "/v1/sessions/x/cancel", "/v1/hangar/sessions/x/exec"] {
            assert!(may(Access::Run, "POST", path) && !may(Access::Read, "POST", path), "{path}");
        }
        for path in [
            "/v1/harnesses",
            "/v1/environments/x/build",
            "/v1/hangar/tokens",
            "/v1/responsesx",
            "/v1/files-x",
            "/v1/%72esponses",
            "//v1/responses",
        ] {
            assert!(!may(Access::Run, "POST", path) && may(Access::Full, "POST", path), "{path}");
            assert!(may(Access::Run, "GET", path) && may(Access::Read, "HEAD", path), "{path}");
        }
    }
}
