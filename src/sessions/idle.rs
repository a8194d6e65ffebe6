//! Sessions nobody uses now: which they are, and ending them while they are so.

use super::isolation::{Isolation, Isolations};
use crate::warden_client::WardenError;
use hangar_runtime::ids::SessionId;
use std::time::Instant;

impl Isolation {
    fn is_idle(&self, before: Instant) -> bool {
        self.running
            && self.last_used < before
            && self.commands.values().all(|command| command.end().is_some())
    }

    /// It is idle, and may be ended to make room.
    fn is_spare(&self) -> bool {
        self.ran_tasks && !self.is_chosen && self.is_idle(Instant::now())
    }
}

impl Isolations {
    /// A task has ended in a session.
    pub fn task_ended(&self, session: &SessionId) {
        if let Some(isolation) = self.lock().get_mut(session) {
            isolation.ran_tasks = true;
            isolation.last_used = Instant::now();
        }
    }

    /// More sessions of tasks are idle than this.
    #[must_use]
    pub fn are_idle_beyond(&self, max: usize) -> bool {
        self.lock().values().filter(|isolation| isolation.is_spare()).count() > max
    }

    /// Where more sessions of tasks are idle than this, chooses the one that was idle longest.
    fn choose_idle_beyond(&self, max: usize) -> Option<SessionId> {
        let mut sessions = self.lock();
        if sessions.values().filter(|isolation| isolation.is_spare()).count() <= max {
            return None;
        }
        let spare = sessions.iter_mut().filter(|(_, isolation)| isolation.is_spare());
        let (session, isolation) = spare.min_by_key(|(_, isolation)| isolation.last_used)?;
        isolation.is_chosen = true;
        Some(session.clone())
    }

    /// Ends the sessions of tasks that were idle longest, until no more than this are idle.
    ///
    /// # Errors
    /// When the warden is not there or cannot end one.
    pub async fn end_idle_beyond(&self, max: usize) -> Result<(), WardenError> {
        while let Some(session) = self.choose_idle_beyond(max) {
            let ended = self.stop_idle(&session, Instant::now()).await;
            if let Some(isolation) = self.lock().get_mut(&session) {
                isolation.is_chosen = false;
            }
            ended?;
        }
        Ok(())
    }

    /// Sessions that run, have no running command, and were not used since `before`.
    #[must_use]
    pub fn idle_since(&self, before: Instant) -> Vec<SessionId> {
        let sessions = self.lock();
        let idle = sessions.iter().filter(|(_, isolation)| isolation.is_idle(before));
        idle.map(|(session, _)| session.clone()).collect()
    }

    /// Ends a session that is still idle. A command that comes meanwhile starts it again.
    ///
    /// # Errors
    /// When the warden is not there or cannot end it.
    pub async fn stop_idle(&self, session: &SessionId, before: Instant) -> Result<(), WardenError> {
        let change = self.change(session);
        let _held = change.lock().await;
        {
            let mut sessions = self.lock();
            match sessions.get_mut(session) {
                Some(isolation) if isolation.is_idle(before) => isolation.running = false,
                _ => return Ok(()),
            }
        }
        self.stop(session).await
    }
}
