//! Who is asking: a bearer token, or a peer of the local socket whom the kernel names.

use crate::app::{Activity, App};
use crate::failure::{Code, Failure};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::sync::Arc;

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

/// Known tokens: digest and scope.
pub type Tokens = Vec<([u8; 32], String)>;

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
    let scope = match request.extensions().get::<Peer>() {
        Some(Peer::Local) => Ok(DEFAULT_SCOPE.to_owned()),
        _ => bearer(request.headers().get("authorization"))
            .and_then(|token| scope_of(&app.tokens, token)),
    };
    let _running = Activity::begin(&app);
    match scope {
        Ok(scope) => {
            request.extensions_mut().insert(Scope(scope));
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
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

/// Compares digests in constant time, all of them, so that time tells nothing.
fn scope_of(tokens: &Tokens, token: &str) -> Result<String, Failure> {
    let digest = token_digest(token);
    let mut found = None;
    for (known, scope) in tokens {
        let difference = known.iter().zip(&digest).fold(0, |sum, (a, b)| sum | (a ^ b));
        if std::hint::black_box(difference) == 0 {
            found = Some(scope);
        }
    }
    found.cloned().ok_or_else(|| Failure::new(Code::InvalidCredential, "the token is not valid"))
}
