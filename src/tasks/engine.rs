//! The tasks that run now.

use super::events::{Event, EventLog};
use super::response::Items;
use super::timeline::Timeline;
use crate::app::App;
use crate::failure::Failure;
use crate::sessions::service;
use hangar_runtime::ids::{CommandId, SessionId};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, broadcast, watch};

/// How many events a listener of a harness may be behind.
const FEED_EVENTS: usize = 1024;
/// How many idle sessions are ended at once.
const TRIMMING: usize = 8;
/// How long an answer to a cancellation waits for the end.
const CANCEL_WAIT: Duration = Duration::from_millis(800);
/// From how many deltas on a task tells its output at intervals.
pub const DELTAS_AT_ONCE: usize = 4096;

/// Why a task is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Its client asked for it.
    Cancelled,
    /// Its output is as long as it may be.
    OutputSpent,
}

/// An event of some task of a harness.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Who may hear it.
    pub scope: String,
    /// The harness.
    pub harness: String,
    /// The session.
    pub session: SessionId,
    /// The task.
    pub response: String,
    /// The event.
    pub event: Event,
}

/// What a task has said so far.
#[derive(Debug, Default)]
struct Said {
    call: Option<Value>,
    text: String,
    deltas: Vec<u32>,
}

/// A task that runs.
#[derive(Debug)]
pub struct Task {
    /// `resp_…`.
    pub id: String,
    /// Who sees it.
    pub scope: String,
    /// Where it runs.
    pub session: SessionId,
    /// What runs it.
    pub harness: String,
    /// Its response as it began.
    pub initial: Value,
    /// Its events.
    pub log: EventLog,
    said: Mutex<Said>,
    /// The command that does the work, once it was started.
    command: Mutex<Option<CommandId>>,
    stop: watch::Sender<Option<Stop>>,
    done: watch::Sender<Option<Arc<Value>>>,
    feed: broadcast::Sender<Heard>,
}

/// The tasks that run now.
#[derive(Debug)]
pub struct Tasks {
    running: Mutex<HashMap<String, Arc<Task>>>,
    count: watch::Sender<usize>,
    feed: broadcast::Sender<Heard>,
    /// How many idle sessions are ended at once.
    pub(super) trimming: Semaphore,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
            count: watch::Sender::new(0),
            feed: broadcast::channel(FEED_EVENTS).0,
            trimming: Semaphore::new(TRIMMING),
        }
    }
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Task>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes up a task that is stored, and tells that it was accepted.
    #[must_use]
    pub fn take_up(
        &self,
        id: &str,
        scope: &str,
        session: &SessionId,
        harness: &str,
        initial: Value,
    ) -> Arc<Task> {
        let task = Arc::new(Task {
            id: id.to_owned(),
            scope: scope.to_owned(),
            session: session.clone(),
            harness: harness.to_owned(),
            initial,
            log: EventLog::default(),
            said: Mutex::default(),
            command: Mutex::default(),
            stop: watch::Sender::new(None),
            done: watch::Sender::new(None),
            feed: self.feed.clone(),
        });
        task.tell([task.timeline().accepted(&task.initial)]);
        let mut running = self.lock();
        running.insert(id.to_owned(), Arc::clone(&task));
        self.count.send_replace(running.len());
        task
    }

    /// Lets go of a task whose end is stored, and tells that end.
    pub fn let_go(&self, task: &Task, last: Value) {
        {
            let mut running = self.lock();
            running.remove(&task.id);
            self.count.send_replace(running.len());
        }
        task.tell(task.timeline().ends(&last));
        task.done.send_replace(Some(Arc::new(last)));
    }

    /// A task that runs.
    #[must_use]
    pub fn running(&self, id: &str) -> Option<Arc<Task>> {
        self.lock().get(id).cloned()
    }

    /// The task that runs in a session.
    #[must_use]
    pub fn of_session(&self, session: &SessionId) -> Option<Arc<Task>> {
        self.lock().values().find(|task| task.session == *session).cloned()
    }

    /// What tasks tell from now on. Who is slow misses the oldest.
    #[must_use]
    pub fn listen(&self) -> broadcast::Receiver<Heard> {
        self.feed.subscribe()
    }

    /// Waits until no task runs.
    pub async fn all_ended(&self) {
        let mut count = self.count.subscribe();
        // The sender lives as long as `self`.
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Task {
    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timeline(&self) -> Timeline<'_> {
        Timeline::new(&self.log, &self.id)
    }

    fn tell(&self, events: impl IntoIterator<Item = Event>) {
        if self.feed.receiver_count() == 0 {
            return;
        }
        for event in events {
            // Whoever listened can be gone by now.
            let _ = self.feed.send(Heard {
                scope: self.scope.clone(),
                harness: self.harness.clone(),
                session: self.session.clone(),
                response: self.id.clone(),
                event,
            });
        }
    }

    /// Its work begins.
    pub fn begins(&self) {
        self.tell([self.timeline().begins(&self.initial)]);
    }

    /// Its tool is called.
    pub fn calls(&self, call: Value) {
        self.tell(self.timeline().calls(&call));
        self.said().call = Some(call);
    }

    /// Its output goes on.
    pub fn says(&self, text: &str) {
        if text.is_empty() {
            return;
        }
        {
            let mut said = self.said();
            said.text.push_str(text);
            said.deltas.push(u32::try_from(text.len()).expect("a delta is short"));
        }
        self.tell([self.timeline().delta(text)]);
    }

    /// How many bytes it has said.
    #[must_use]
    pub fn said_bytes(&self) -> usize {
        self.said().text.len()
    }

    /// It has said so much in so small pieces that more is told at intervals.
    #[must_use]
    pub fn is_chatty(&self) -> bool {
        self.said().deltas.len() >= DELTAS_AT_ONCE
    }

    /// What it called and said, and in which pieces.
    #[must_use]
    pub fn take_said(&self) -> (Option<Value>, String, Vec<u32>) {
        let said = self.said();
        (said.call.clone(), said.text.clone(), said.deltas.clone())
    }

    /// The response as it is now.
    #[must_use]
    pub fn current(&self) -> Value {
        let mut now = self.initial.clone();
        let said = self.said();
        if let Some(call) = &said.call {
            let items = Items::of(&self.id);
            let message = items.message(&said.text, &[], "in_progress");
            now["output"] = json!([call, items.result("", "in_progress"), message]);
        }
        now
    }

    /// The response as it ended, or as it is now.
    #[must_use]
    pub fn latest(&self) -> Value {
        let last = self.done.borrow().clone();
        last.map_or_else(|| self.current(), |last| last.as_ref().clone())
    }

    /// Its response once it has ended.
    pub async fn done(&self) -> Arc<Value> {
        let mut done = self.done.subscribe();
        let value = done.wait_for(Option::is_some).await.expect("self holds the sender");
        value.clone().expect("waited for")
    }

    /// Why it is to stop, if it is.
    #[must_use]
    pub fn stopped(&self) -> Option<Stop> {
        *self.stop.borrow()
    }

    /// It is to stop; the first reason counts. The answer is the command to be ended.
    pub fn stop(&self, why: Stop) -> Option<CommandId> {
        self.stop.send_if_modified(|slot| {
            let first = slot.is_none();
            slot.get_or_insert(why);
            first
        });
        *self.command.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its command was started. Who stops it from now on ends the command; who did before has left
    /// that to the caller, as the answer says.
    pub fn started(&self, command: CommandId) -> Option<Stop> {
        *self.command.lock().unwrap_or_else(PoisonError::into_inner) = Some(command);
        self.stopped()
    }
}

/// Stops a task, and waits a moment for its end.
///
/// # Errors
/// When the warden is not there or cannot end the command.
pub async fn cancel(app: &App, task: &Task) -> Result<(), Failure> {
    if let Some(command) = task.stop(Stop::Cancelled) {
        service::cancel(app, &task.session, command).await?;
    }
    let _ = tokio::time::timeout(CANCEL_WAIT, task.done()).await;
    Ok(())
}
