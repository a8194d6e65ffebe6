//! Sessions as the protocol has them: pages of them, and the tasks that ran in one.

use super::auth::Scope;
use super::extract::{Named, QueryOf};
use super::{objects, sessions as shown};
use crate::app::{App, hex};
use crate::failure::{Code, Failure, Tried};
use crate::store::{After, ResponseRow, SessionRow};
use crate::tasks::engine;
use axum::Json;
use axum::extract::State;
use hangar_runtime::ids::SessionId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// How many sessions a page has where nothing is said, and at most.
const PAGE: usize = 20;
const PAGE_MAX: usize = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    limit: Option<usize>,
    cursor: Option<String>,
    harness: Option<String>,
}

/// A page of the sessions of the scope, the newest first.
pub(super) async fn sessions(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    QueryOf(page): QueryOf<Page>,
) -> Result<Json<Value>, Failure> {
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=PAGE_MAX).contains(&limit) {
        let why = format!("a page has from 1 to {PAGE_MAX} sessions");
        return Err(Failure::new(Code::InvalidInput, why).with_param("limit"));
    }
    let cursor = page.cursor.filter(|cursor| !cursor.is_empty());
    let after = cursor.map(|cursor| {
        behind(&cursor).ok_or_else(|| {
            Failure::new(Code::InvalidInput, "the cursor is none of this server")
                .with_param("cursor")
        })
    });
    let harness = page.harness.filter(|harness| !harness.is_empty());
    // One more than is shown tells whether there are more.
    let rows = app.store.sessions_page(&scope, harness, after.transpose()?, limit + 1).await;
    let mut rows = rows.tried("reading the sessions")?;
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(cursor_behind);
    let rows: Vec<_> = rows
        .iter()
        .map(|row| objects::session_of_tasks(row, app.isolations.is_running(&row.id)))
        .collect();
    Ok(Json(json!({ "sessions": rows, "next_cursor": next })))
}

/// Clients hand a cursor back and read nothing in it.
fn cursor_behind(row: &SessionRow) -> String {
    hex(format!("{}/{}", row.created_ms, row.id).as_bytes())
}

fn behind(cursor: &str) -> Option<After> {
    let digits = cursor.as_bytes();
    if !digits.len().is_multiple_of(2) || digits.len() > 256 {
        return None;
    }
    let pairs = digits.chunks_exact(2);
    let bytes: Option<Vec<u8>> =
        pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    let text = String::from_utf8(bytes?).ok()?;
    let (created_ms, id) = text.split_once('/')?;
    Some(After { created_ms: created_ms.parse().ok()?, id: id.to_owned() })
}

/// The tasks of a session in order, but for those that were deleted or not kept.
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    shown::find(&app, &scope, &id).await?;
    let turns = of(&app, &id).await?;
    Ok(Json(json!({ "object": "list", "session_id": id, "turns": turns })))
}

/// The turns of a session, as they are told.
pub(super) async fn of(app: &App, id: &SessionId) -> Result<Vec<Value>, Failure> {
    let rows = app.store.responses_of(id).await.tried("reading the turns")?;
    Ok(rows.iter().filter(|row| row.is_visible()).map(|row| turn(app, row)).collect())
}

fn turn(app: &App, row: &ResponseRow) -> Value {
    match app.tasks.running(&row.id) {
        Some(task) => {
            let row = ResponseRow { response: Some(task.current()), ..row.clone() };
            objects::turn(&row)
        }
        None => objects::turn(row),
    }
}

/// Stops whatever runs in a session; the session stays.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<SessionId>,
) -> Result<Json<Value>, Failure> {
    shown::find(&app, &scope, &id).await?;
    let response = match app.tasks.of_session(&id) {
        Some(task) => {
            engine::cancel(&app, &task).await?;
            json!(task.id)
        }
        None => Value::Null,
    };
    let row = shown::find(&app, &scope, &id).await?;
    let mut object = objects::session_of_tasks(&row, app.isolations.is_running(&id));
    object["response_id"] = response;
    Ok(Json(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_one_of_ours() {
        let after = behind(&hex(b"17/hsessa")).unwrap();
        assert_eq!((after.created_ms, after.id.as_str()), (17, "hsessa"));
        for bad in ["", "1", "zz", &hex(b"17"), &hex(b"x/y"), &"00".repeat(200)] {
            assert!(behind(bad).is_none(), "{bad}");
        }
    }
}
