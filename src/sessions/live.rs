//! Sessions that the server uses for itself, for as long as one request takes.

use hangar_runtime::ids::SessionId;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Such sessions that run now. Each stands on the list of garbage from its beginning, so that it
/// goes away even when this process dies; until then it is left alone.
#[derive(Debug, Default)]
pub struct LiveSessions {
    sessions: Mutex<HashSet<SessionId>>,
}

impl LiveSessions {
    /// Whether a request uses the session.
    #[must_use]
    pub fn has(&self, session: &SessionId) -> bool {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).contains(session)
    }

    /// Protects a session until the answer is dropped.
    #[must_use]
    pub fn begin(&self, session: &SessionId) -> Live<'_> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.insert(session.clone());
        Live { all: self, session: session.clone() }
    }
}

/// The protection of a session.
#[derive(Debug)]
pub struct Live<'a> {
    all: &'a LiveSessions,
    session: SessionId,
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let mut sessions = self.all.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.remove(&self.session);
    }
}
