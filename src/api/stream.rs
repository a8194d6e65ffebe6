//! Events of tasks as server-sent events.

use super::auth::Scope;
use super::extract::Named;
use crate::app::App;
use crate::failure::Failure;
use crate::harnesses;
use crate::store::ResponseRow;
use crate::tasks::engine::{Heard, Task};
use crate::tasks::events;
use crate::tasks::timeline;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::IntoResponse;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, StreamExt, iter, unfold};
use serde_json::Value;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;

/// Proxies close a connection on which nothing is said for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Nothing between here and the client may keep events back.
const HEADERS: [(HeaderName, &str); 2] =
    [(header::CACHE_CONTROL, "no-cache"), (HeaderName::from_static("x-accel-buffering"), "no")];

/// Whether the client asks for events instead of the response.
pub(super) fn is_wanted(headers: &HeaderMap, query: Option<&str>) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
        || query.is_some_and(|query| query.split('&').any(|pair| pair == "stream=true"))
}

/// The number of the first event the client has not seen, by `Last-Event-ID`.
pub(super) fn resumed_at(headers: &HeaderMap) -> Option<usize> {
    let last: usize = headers.get("last-event-id")?.to_str().ok()?.trim().parse().ok()?;
    last.checked_add(1)
}

/// The same, by the query that clients of the Responses API send.
pub(super) fn starting_after(query: Option<&str>) -> Option<usize> {
    let mut pairs = query?.split('&');
    let last: usize = pairs.find_map(|pair| pair.strip_prefix("starting_after="))?.parse().ok()?;
    last.checked_add(1)
}

fn sent(number: usize, event: &events::Event) -> Result<Event, Infallible> {
    Ok(Event::default().id(number.to_string()).data(&**event))
}

fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(KEEP_ALIVE).text("keep-alive")
}

/// The events of a task that runs, from a number on, until its end.
pub(super) fn of_task(task: Arc<Task>, from: Option<usize>) -> impl IntoResponse {
    let told = task.log.told();
    let state = (task, told, from.unwrap_or(0), VecDeque::new());
    let events = unfold(state, |(task, mut told, at, mut waiting)| async move {
        loop {
            if let Some(event) = waiting.pop_front() {
                let event = sent(at, &event);
                return Some((event, (task, told, at + 1, waiting)));
            }
            let now = *told.borrow_and_update();
            waiting.extend(task.log.from(at));
            if !waiting.is_empty() {
                continue;
            }
            if now.complete {
                return None;
            }
            // The log lives as long as the task it is of.
            told.changed().await.ok()?;
        }
    });
    (HEADERS, Sse::new(events).keep_alive(keep_alive()))
}

/// The events of a task that has ended, as they were told then.
pub(super) fn again(row: &ResponseRow, from: Option<usize>) -> impl IntoResponse + use<> {
    let from = from.unwrap_or(0);
    let events = timeline::replay(row).from(from);
    let events = events.into_iter().enumerate().map(move |(at, event)| sent(from + at, &event));
    (HEADERS, Sse::new(iter(events)).keep_alive(keep_alive()))
}

/// What the tasks of a harness tell from now on.
pub(super) async fn of_harness(
    State(app): State<Arc<App>>,
    Scope(scope): Scope,
    Named(id): Named<String>,
) -> Result<impl IntoResponse, Failure> {
    let harness = harnesses::named(&app, &scope, &id).await?;
    let heard = heard(app.tasks.listen());
    let events = heard.filter_map(move |heard| {
        let mine = heard.scope == scope && heard.harness == harness.id;
        std::future::ready(mine.then(|| Ok::<_, Infallible>(told(&heard))))
    });
    Ok((HEADERS, Sse::new(events).keep_alive(keep_alive())))
}

fn heard(receiver: tokio::sync::broadcast::Receiver<Heard>) -> impl Stream<Item = Heard> {
    unfold(receiver, |mut receiver| async move {
        loop {
            match receiver.recv().await {
                Ok(heard) => return Some((heard, receiver)),
                // Who is too slow sees a gap in the numbers of a task.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    })
}

/// An event with the task and the session it is of.
fn told(heard: &Heard) -> Event {
    let mut event: Value = serde_json::from_str(&heard.event).unwrap_or_default();
    if let Some(fields) = event.as_object_mut() {
        fields.insert("response_id".to_owned(), Value::String(heard.response.clone()));
        fields.insert("session_id".to_owned(), Value::String(heard.session.to_string()));
    }
    Event::default().data(event.to_string())
}
