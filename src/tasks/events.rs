//! The events of a task that runs: numbered from 0 without gaps, kept until the task has ended, read
//! by any number of clients at their own pace.

use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// An event as it is sent: one line of JSON.
pub type Event = Arc<str>;

/// How far the events are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Told {
    /// How many there are.
    pub count: usize,
    /// There will be no more.
    pub complete: bool,
}

/// The events of one task.
#[derive(Debug, Default)]
pub struct EventLog {
    events: Mutex<Vec<Event>>,
    told: watch::Sender<Told>,
}

impl EventLog {
    /// Adds an event with the next number.
    ///
    /// # Panics
    /// When the fields are no object.
    pub fn push(&self, kind: &str, mut fields: Value) -> Event {
        let mut events = self.lock();
        let members = fields.as_object_mut().expect("the fields are an object");
        members.insert("type".to_owned(), json!(kind));
        members.insert("sequence_number".to_owned(), json!(events.len()));
        let event: Event = fields.to_string().into();
        events.push(Arc::clone(&event));
        self.told.send_modify(|told| told.count = events.len());
        event
    }

    /// Nothing more is added.
    pub fn complete(&self) {
        self.told.send_modify(|told| told.complete = true);
    }

    /// The events from a number on.
    #[must_use]
    pub fn from(&self, number: usize) -> Vec<Event> {
        self.lock().get(number..).unwrap_or_default().to_vec()
    }

    /// Tells when there are more.
    #[must_use]
    pub fn told(&self) -> watch::Receiver<Told> {
        self.told.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
