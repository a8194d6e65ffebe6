//! `Idempotency-Key`: a request that is repeated gets the result of the first, and no work is done
//! twice.

use crate::app::{App, now_ms};
use crate::failure::{Code, Failure};
use crate::store::{Repeat, Repeated, StoreError};
use axum::http::HeaderMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The name of the header.
const HEADER: &str = "idempotency-key";
/// The longest key.
const KEY_BYTES_MAX: usize = 255;
/// For how long a key is known.
const KEPT_MS: i64 = 24 * 60 * 60 * 1000;

/// The key of a request, if it has one.
///
/// # Errors
/// [`Code::InvalidInput`] when it is empty, too long or no text.
pub fn of_request(headers: &HeaderMap, asked: &Value) -> Result<Option<Repeat>, Failure> {
    let Some(key) = headers.get(HEADER) else { return Ok(None) };
    let key = key.to_str().ok().map(str::trim);
    let key = key.filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX);
    let key = key.ok_or_else(|| {
        Failure::new(Code::InvalidInput, "the key is empty, too long or no plain text")
            .with_param("Idempotency-Key")
    })?;
    // Members of an object are in one order, whatever the client's was.
    let digest = Sha256::digest(asked.to_string().as_bytes()).into();
    Ok(Some(Repeat { key: key.to_owned(), digest, since_ms: now_ms() - KEPT_MS }))
}

/// Lets a repeated request pass only where it is the same.
///
/// # Errors
/// [`Code::InvalidInput`] when another request had the key.
pub fn same(repeat: &Repeat, earlier: &Repeated) -> Result<(), Failure> {
    if repeat.digest == earlier.digest {
        return Ok(());
    }
    Err(Failure::new(Code::InvalidInput, "another request was sent with this key")
        .with_param("Idempotency-Key"))
}

/// Forgets the keys that are too old.
///
/// # Errors
/// When the database fails.
pub async fn forget_old(app: &App) -> Result<(), StoreError> {
    app.store.forget_keys(now_ms() - KEPT_MS).await
}
