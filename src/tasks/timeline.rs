//! Which events a task has, in order. The same code tells them while the task runs and tells them
//! again when it has ended: they follow from the response as it began, the response as it ended,
//! and where the text was cut into deltas.

use super::events::{Event, EventLog};
use super::response::{self, Items};
use crate::store::ResponseRow;
use serde_json::{Value, json};

/// The place of the message among the items.
const MESSAGE_INDEX: usize = 2;

/// Tells the events of one task.
#[derive(Debug)]
pub struct Timeline<'a> {
    log: &'a EventLog,
    items: Items<'a>,
}

impl<'a> Timeline<'a> {
    /// The events of this task go to the log.
    #[must_use]
    pub fn new(log: &'a EventLog, id: &'a str) -> Self {
        Self { log, items: Items::of(id) }
    }

    /// The task was accepted.
    pub fn accepted(&self, initial: &Value) -> Event {
        self.log.push("response.created", json!({ "response": initial }))
    }

    /// Its work begins.
    pub fn begins(&self, initial: &Value) -> Event {
        self.log.push("response.in_progress", json!({ "response": initial }))
    }

    /// The tool was called: the call is told whole, its result and the message are open.
    pub fn calls(&self, call: &Value) -> Vec<Event> {
        let (id, arguments) = (&call["id"], &call["arguments"]);
        let mut shell = call.clone();
        shell["arguments"] = json!("");
        shell["status"] = json!("in_progress");
        let argument = |field: &str| json!({ "item_id": id, "output_index": 0, field: arguments });
        let (result, message) = (self.items.result("", "in_progress"), self.items.message_shell());
        let part = json!({ "type": "output_text", "text": "", "annotations": [] });
        vec![
            self.added(0, &shell),
            self.log.push("response.function_call_arguments.delta", argument("delta")),
            self.log.push("response.function_call_arguments.done", argument("arguments")),
            self.done(0, call),
            self.added(1, &result),
            self.added(MESSAGE_INDEX, &message),
            self.log.push("response.content_part.added", self.of_message(json!({ "part": part }))),
        ]
    }

    /// The message goes on.
    pub fn delta(&self, text: &str) -> Event {
        self.log.push("response.output_text.delta", self.of_message(json!({ "delta": text })))
    }

    /// The task has ended: what is open is closed, and the response told whole.
    pub fn ends(&self, last: &Value) -> Vec<Event> {
        let mut events = Vec::new();
        if let Some([_, result, message]) = response::items(last) {
            let part = &message["content"][0];
            let text = self.of_message(json!({ "text": part["text"] }));
            events.push(self.log.push("response.output_text.done", text));
            for (index, annotation) in
                part["annotations"].as_array().into_iter().flatten().enumerate()
            {
                let told = json!({ "annotation_index": index, "annotation": annotation });
                let told = self.of_message(told);
                events.push(self.log.push("response.output_text.annotation.added", told));
            }
            let part = self.of_message(json!({ "part": part }));
            events.push(self.log.push("response.content_part.done", part));
            events.push(self.done(MESSAGE_INDEX, message));
            events.push(self.done(1, result));
        }
        let kind = match last["status"].as_str() {
            Some("completed") => "response.completed",
            Some("incomplete") => "response.incomplete",
            // A cancelled task too: its status says so.
            _ => "response.failed",
        };
        events.push(self.log.push(kind, json!({ "response": last })));
        self.log.complete();
        events
    }

    fn added(&self, index: usize, item: &Value) -> Event {
        let fields = json!({ "output_index": index, "item": item });
        self.log.push("response.output_item.added", fields)
    }

    fn done(&self, index: usize, item: &Value) -> Event {
        let fields = json!({ "output_index": index, "item": item });
        self.log.push("response.output_item.done", fields)
    }

    fn of_message(&self, mut fields: Value) -> Value {
        fields["item_id"] = json!(self.items.message_id());
        fields["output_index"] = json!(MESSAGE_INDEX);
        fields["content_index"] = json!(0);
        fields
    }
}

/// The events of a task that has ended, as they were told while it ran.
#[must_use]
pub fn replay(row: &ResponseRow) -> EventLog {
    let log = EventLog::default();
    let timeline = Timeline::new(&log, &row.id);
    let last = row.current();
    timeline.accepted(&row.initial);
    timeline.begins(&row.initial);
    if let Some([call, _, message]) = response::items(last) {
        timeline.calls(call);
        let mut text = message["content"][0]["text"].as_str().unwrap_or_default();
        for bytes in &row.outcome.deltas {
            let Some((delta, rest)) = text.split_at_checked(*bytes as usize) else { break };
            timeline.delta(delta);
            text = rest;
        }
    }
    timeline.ends(last);
    log
}
