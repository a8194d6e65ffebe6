//! A build's log as server-sent events: what is there, what is added, and how it ended.

use super::builds::{Place, from_offset, wait_for_growth};
use crate::app::{App, blocking};
use crate::environments::build::log;
use crate::store::VersionStatus;
use axum::http::{HeaderMap, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{Stream, unfold};
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// How much of a log is in one event.
const EVENT_BYTES: u64 = 64 << 10;
/// Proxies close a connection on which nothing is said for long.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Whether the client asks for events.
pub(super) fn are_wanted(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("text/event-stream"))
}

/// Where a client goes on that was cut off: the id of an event is the offset behind it.
pub(super) fn resumed_at(headers: &HeaderMap) -> Option<u64> {
    headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

struct Following {
    app: Arc<App>,
    place: Place,
    offset: u64,
    ended: bool,
}

/// The log from an offset on: events `log` with `{offset, text}`, and one `end` with
/// `{status, error}`.
pub(super) fn stream(
    app: Arc<App>,
    place: Place,
    offset: u64,
) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let following = Following { app, place, offset, ended: false };
    let events = unfold(following, |mut following| async move {
        let event = following.next().await?;
        Some((Ok(event), following))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Following {
    async fn next(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        loop {
            let (id, number) = &self.place;
            // A version that was removed meanwhile has nothing more to tell.
            let row = self.app.store.version(id, *number).await.ok().flatten()?;
            let growing = row.status == VersionStatus::Building;
            let (path, offset) = (log::path(&self.app.files.logs(), id, *number), self.offset);
            let mut bytes = blocking(move || from_offset(&path, offset, EVENT_BYTES)).await.ok()?;
            let is_cut = growing || bytes.len() as u64 == EVENT_BYTES;
            if is_cut {
                bytes.truncate(complete(&bytes));
            }
            if !bytes.is_empty() {
                return Some(self.log(&bytes));
            }
            if !growing {
                self.ended = true;
                let how = json!({ "status": row.status.as_str(), "error": row.error });
                return Some(Event::default().event("end").data(how.to_string()));
            }
            wait_for_growth(&self.app, &self.place, self.offset).await;
        }
    }

    fn log(&mut self, bytes: &[u8]) -> Event {
        let text = String::from_utf8_lossy(bytes);
        let told = json!({ "offset": self.offset, "text": text });
        self.offset += bytes.len() as u64;
        Event::default().event("log").id(self.offset.to_string()).data(told.to_string())
    }
}

/// How many of these bytes are whole characters; the rest of the last one is still to come.
fn complete(bytes: &[u8]) -> usize {
    let begin = bytes.len().saturating_sub(3);
    let first = (begin..bytes.len()).rev().find(|at| bytes[*at] & 0xc0 != 0x80);
    let Some(first) = first else { return bytes.len() };
    let length = match bytes[first] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => 1,
    };
    if first + length > bytes.len() { first } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut() {
        for (text, whole) in [
            (&b"abc"[..], 3),
            (b"ab\xc3", 2),
            (b"ab\xc3\xa9", 4),
            (b"\xe2\x82", 0),
            (b"a\xf0\x9f\x98", 1),
            (b"\xf0\x9f\x98\x80", 4),
            (b"bad \xff", 5),
            (b"\x80\x80\x80\x80", 4),
            (b"", 0),
        ] {
            assert_eq!(complete(text), whole, "{text:?}");
        }
    }
}
