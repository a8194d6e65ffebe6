//! Tasks of a server: asked for, and followed while they run.

use crate::checked::Checked;
use crate::daemon::Daemon;
use crate::schema;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// The text of the message of a response.
///
/// # Panics
/// When it has none.
#[must_use]
pub fn text(response: &Value) -> &str {
    let text = response["output"][2]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("there is no message: {response:#}"))
}

/// A string of a response or another object, by the names of its members.
///
/// # Panics
/// When there is no text of that name.
#[must_use]
pub fn member<'a>(value: &'a Value, pointer: &str) -> &'a str {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no {pointer} in {value:#}"))
}

/// Runs a task to its end.
///
/// # Panics
/// When the request is refused.
#[must_use]
pub fn run(server: &Checked, request: &Value) -> Value {
    server.send("POST", "/v1/responses", request)
}

/// Runs a script to its end; the answer is the response.
///
/// # Panics
/// As for [`run`].
#[must_use]
pub fn script(server: &Checked, script: &str) -> Value {
    run(server, &json!({ "input": script }))
}

/// Runs a script in the session of an earlier response.
///
/// # Panics
/// As for [`run`].
#[must_use]
pub fn next(server: &Checked, previous: &Value, script: &str) -> Value {
    run(server, &json!({ "input": script, "previous_response_id": previous["id"] }))
}

/// Begins a script and does not wait for its end; the answer is the id of the response.
///
/// # Panics
/// As for [`run`].
#[must_use]
pub fn begin(server: &Checked, script: &str) -> Value {
    run(server, &json!({ "input": script, "background": true }))
}

/// Waits until a task has ended.
///
/// # Panics
/// When it does not within half a minute.
#[must_use]
pub fn ended(daemon: &Daemon, id: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let now = daemon.get(&format!("/v1/responses/{id}"));
        if now["status"] != "in_progress" {
            return now;
        }
        assert!(Instant::now() < deadline, "it does not end: {now:#}\n{}", daemon.log());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A stream of events that is read as it comes.
#[derive(Debug)]
pub struct Events {
    lines: BufReader<UnixStream>,
    /// The status of the answer.
    pub status: u16,
}

impl Events {
    /// Asks for events.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn ask(
        daemon: &Daemon,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        body: &str,
    ) -> Self {
        let mut stream = UnixStream::connect(daemon.socket()).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        // An old version of HTTP, whose answers have no chunks.
        let mut head = format!("{method} {path} HTTP/1.0\r\nAccept: text/event-stream\r\n");
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
        stream.write_all(head.as_bytes()).expect("it takes the request");
        let mut lines = BufReader::new(stream);
        let mut status = String::new();
        lines.read_line(&mut status).expect("it answers");
        let status = status.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            lines.read_line(&mut line).expect("the head");
        }
        Self { lines, status }
    }

    /// Runs a task and hears of it.
    #[must_use]
    pub fn of_task(daemon: &Daemon, mut request: Value) -> Self {
        request["stream"] = json!(true);
        Self::ask(daemon, "POST", "/v1/responses", &[], &request.to_string())
    }

    /// Hears of a task from the event behind this one.
    #[must_use]
    pub fn resumed(daemon: &Daemon, id: &str, last: Option<u64>) -> Self {
        let last = last.map(|last| last.to_string());
        let fields: Vec<_> = last.iter().map(|last| ("Last-Event-ID", last.as_str())).collect();
        Self::ask(daemon, "GET", &format!("/v1/responses/{id}"), &fields, "")
    }

    /// Reads until an event of this kind.
    ///
    /// # Panics
    /// When the stream ends before.
    pub fn until(&mut self, kind: &str) -> Value {
        loop {
            let event = self.next().unwrap_or_else(|| panic!("the stream ended before {kind}"));
            if event["type"] == kind {
                return event;
            }
        }
    }

    /// All events to the end.
    #[must_use]
    pub fn all(self) -> Vec<Value> {
        self.collect()
    }
}

impl Iterator for Events {
    type Item = Value;

    /// The next event; nothing when the stream has ended.
    fn next(&mut self) -> Option<Value> {
        let mut id = None;
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).expect("more of the stream") == 0 {
                return None;
            }
            if let Some(number) = line.strip_prefix("id: ") {
                id = Some(number.trim().parse::<u64>().expect("a number"));
            }
            if let Some(data) = line.strip_prefix("data: ") {
                let event: Value = serde_json::from_str(data).expect("JSON");
                assert!(id.is_none() || event["sequence_number"].as_u64() == id, "{event}");
                return Some(event);
            }
        }
    }
}

/// Checks what the protocol promises of every whole stream; the answer is the last response.
///
/// # Panics
/// When a promise is broken.
#[must_use]
pub fn whole(events: &[Value]) -> &Value {
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
    }
    let kinds: Vec<&str> = events.iter().map(|event| member(event, "/type")).collect();
    assert_eq!(&kinds[..2], ["response.created", "response.in_progress"]);
    let is_last = |kind: &&str| {
        ["response.completed", "response.incomplete", "response.failed"].contains(kind)
    };
    assert_eq!(kinds.iter().filter(|kind| is_last(kind)).count(), 1, "{kinds:?}");
    assert!(is_last(kinds.last().expect("there are events")), "{kinds:?}");
    let last = &events.last().expect("there are events")["response"];
    schema::check("GET", "/v1/responses/x", 200, last);
    for (index, item) in last["output"].as_array().expect("a list").iter().enumerate() {
        items_are_told(events, index, item);
    }
    let deltas: String = events
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .map(|event| member(event, "/delta"))
        .collect();
    if !last["output"][2].is_null() {
        assert_eq!(deltas, text(last));
    }
    last
}

/// An item is added before everything that is said of it, and done after that.
fn items_are_told(events: &[Value], index: usize, item: &Value) {
    let of_item = |event: &&Value| event["output_index"] == index;
    let told: Vec<&Value> = events.iter().filter(of_item).collect();
    let (first, last) = (told.first().expect("it is told"), told.last().expect("it is told"));
    assert_eq!(first["type"], "response.output_item.added");
    assert_eq!(last["type"], "response.output_item.done");
    assert_eq!(last["item"], *item);
    for event in &told {
        let id = event.get("item_id").unwrap_or(&event["item"]["id"]);
        assert_eq!(*id, item["id"], "{event}");
    }
}
