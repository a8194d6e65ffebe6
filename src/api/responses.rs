//! Tasks as responses: begun, read, cancelled, deleted.

use super::auth::Scope;
use super::extract::Named;
use super::{body, stream};
use crate::app::App;
use crate::failure::{Code, Failure, Tried};
use crate::store::ResponseRow;
use crate::tasks::begin::{self, Accepted};
use crate::tasks::engine;
use crate::tasks::idempotency;
use crate::tasks::request::{Delivery, TaskRequest};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::sync::Arc;

/// Begins a task, and answers as the client wants to learn of it. The task goes on when the client
/// goes away.
pub(super) async fn create(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let asked: Value = body::json(&app, body).await?;
    let repeat = idempotency::of_request(&headers, &asked)?;
    let request = TaskRequest::parse(&asked)?;
    let delivery = request.delivery;
    // To its end, also when the client goes away meanwhile: what is stored is taken up.
    let begun = tokio::spawn({
        let app = Arc::clone(&app);
        async move { begin::begin(&app, &scope, request, repeat).await }
    });
    let accepted = begun.await.tried("beginning the task")??;
    Ok(match (accepted, delivery) {
        (Accepted::Running(task), Delivery::Stream) => {
            stream::of_task(task, stream::resumed_at(&headers)).into_response()
        }
        (Accepted::Running(task), Delivery::AtOnce) => Json(task.current()).into_response(),
        (Accepted::Running(task), Delivery::AtTheEnd) => {
            Json(task.done().await.as_ref().clone()).into_response()
        }
        (Accepted::Ended(row), Delivery::Stream) => {
            stream::again(&row, stream::resumed_at(&headers)).into_response()
        }
        (Accepted::Ended(row), _) => Json(row.current().clone()).into_response(),
    })
}

fn not_found() -> Failure {
    Failure::new(Code::ResponseNotFound, "there is no such response")
}

async fn find(app: &App, scope: &str, id: &str) -> Result<ResponseRow, Failure> {
    let row = app.store.response(scope, id).await.tried("reading the response")?;
    row.filter(ResponseRow::is_visible).ok_or_else(not_found)
}

/// The response as it is now; as events where the client asks for them.
pub(super) async fn show(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
    uri: axum::http::Uri,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let row = find(&app, &scope, &id).await?;
    let running = app.tasks.running(&id);
    if stream::is_wanted(&headers, uri.query()) {
        let from = stream::resumed_at(&headers).or(stream::starting_after(uri.query()));
        return Ok(match running {
            Some(task) => stream::of_task(task, from).into_response(),
            None => stream::again(&find(&app, &scope, &id).await?, from).into_response(),
        });
    }
    let now = match running {
        Some(task) => task.current(),
        // It can have ended since the row was read.
        None if row.response.is_none() => find(&app, &scope, &id).await?.current().clone(),
        None => row.current().clone(),
    };
    Ok(Json(now).into_response())
}

pub(super) async fn input_items(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    let row = find(&app, &scope, &id).await?;
    Ok(Json(json!({ "object": "list", "data": row.request["items"], "has_more": false })))
}

/// Stops a task that runs; one that has ended stays as it is.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    let row = find(&app, &scope, &id).await?;
    let Some(task) = app.tasks.running(&id) else {
        let row = if row.response.is_some() { row } else { find(&app, &scope, &id).await? };
        return Ok(Json(row.current().clone()));
    };
    engine::cancel(&app, &task).await?;
    Ok(Json(task.latest()))
}

/// Deletes what is kept of a task; one that runs goes on.
pub(super) async fn delete(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<Json<Value>, Failure> {
    find(&app, &scope, &id).await?;
    if !app.store.delete_response(&scope, &id).await.tried("deleting the response")? {
        return Err(not_found());
    }
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}
