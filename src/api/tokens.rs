//! Bearer tokens: made, listed and revoked by the operator.

use super::auth::{DEFAULT_SCOPE, Operator, token_digest};
use super::body;
use super::extract::Named;
use crate::app::{App, now_ms, random_hex};
use crate::failure::{Code, Failure, Tried};
use crate::store::{Access, FIRST_TOKEN, TokenRow};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

const NAME_BYTES_MAX: usize = 200;
const SCOPE_BYTES_MAX: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    name: String,
    scope: Option<String>,
    role: Option<String>,
    expires_in_seconds: Option<u64>,
}

/// Makes a token. The answer is the only place where it ever stands.
pub(super) async fn create(
    _: Operator,
    State(app): State<Arc<App>>,
    body: Body,
) -> Result<Json<Value>, Failure> {
    let asked: Asked = body::json(&app, body).await?;
    let scope = asked.scope.unwrap_or_else(|| DEFAULT_SCOPE.to_owned());
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
    if scope.is_empty() || scope.len() > SCOPE_BYTES_MAX || !scope.chars().all(fits) {
        let why = "a scope is of lower-case letters, digits, '-', '_' and '.'";
        return Err(Failure::new(Code::InvalidInput, why).with_param("scope"));
    }
    if asked.name.len() > NAME_BYTES_MAX || asked.name.chars().any(char::is_control) {
        let why = "the name is too long or has control characters";
        return Err(Failure::new(Code::InvalidInput, why).with_param("name"));
    }
    let access = match &asked.role {
        None => Access::Full,
        Some(role) => Access::parse(role).ok_or_else(|| {
            Failure::new(Code::InvalidInput, "a role is full, run or read").with_param("role")
        })?,
    };
    let now = now_ms();
    let secret = format!("hangar_{}{}", random_hex(), random_hex());
    let token = TokenRow {
        id: format!("tok_{}", random_hex()),
        digest: token_digest(&secret),
        scope,
        access,
        name: asked.name,
        created_ms: now,
        expires_ms: asked.expires_in_seconds.map(|seconds| expiry(now, seconds)).transpose()?,
    };
    let mut told = object(&token);
    told["token"] = json!(secret);
    app.store.put_token(token).await.tried("storing the token")?;
    read_anew(&app).await?;
    Ok(Json(told))
}

fn expiry(now_ms: i64, seconds: u64) -> Result<i64, Failure> {
    let end = i64::try_from(seconds).ok().and_then(|seconds| seconds.checked_mul(1000));
    let end = end.and_then(|milliseconds| now_ms.checked_add(milliseconds));
    end.filter(|end| *end > now_ms).ok_or_else(|| {
        Failure::new(Code::InvalidInput, "a token is good for at least one second")
            .with_param("expires_in_seconds")
    })
}

pub(super) async fn list(_: Operator, State(app): State<Arc<App>>) -> Result<Json<Value>, Failure> {
    let rows = app.store.tokens().await.tried("reading the tokens")?;
    Ok(Json(json!({ "tokens": rows.iter().map(object).collect::<Vec<_>>() })))
}

/// Makes a token known no more. Requests that run with it run to their end.
pub(super) async fn revoke(
    _: Operator,
    State(app): State<Arc<App>>,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    if id == FIRST_TOKEN {
        let why = "the first token is the one in the state directory: change it there and restart";
        return Err(Failure::new(Code::InvalidInput, why).with_param("id"));
    }
    if !app.store.remove_token(&id).await.tried("revoking the token")? {
        return Err(Failure::new(Code::TokenNotFound, "there is no such token"));
    }
    read_anew(&app).await?;
    Ok(Json(json!({ "id": id, "deleted": true })))
}

async fn read_anew(app: &App) -> Result<(), Failure> {
    app.tokens.replace(app.store.tokens().await.tried("reading the tokens")?);
    Ok(())
}

fn object(token: &TokenRow) -> Value {
    json!({
        "id": token.id,
        "object": "hangar.token",
        "name": token.name,
        "scope": token.scope,
        "role": token.access.as_str(),
        "createdAt": token.created_ms,
        "expiresAt": token.expires_ms,
        "expired": token.is_expired(now_ms()),
    })
}
