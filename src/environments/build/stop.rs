//! Ending a build from outside: by its owner, or because it takes too much.

use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

type Key = (EnvironmentId, VersionNumber);

/// The builds that run or wait, and a way to end each.
#[derive(Debug, Clone, Default)]
pub struct RunningBuilds {
    builds: Arc<Mutex<HashMap<Key, Stop>>>,
}

/// Ends one build; the first reason counts.
#[derive(Debug, Clone)]
pub struct Stop {
    reason: watch::Sender<Option<String>>,
    ended: watch::Sender<bool>,
}

/// A build that runs or waits; it is known until this is dropped.
#[derive(Debug)]
pub struct Running {
    builds: RunningBuilds,
    key: Key,
    /// What ends it.
    pub stop: Stop,
}

impl RunningBuilds {
    /// Makes a build known.
    #[must_use]
    pub fn begin(&self, id: &EnvironmentId, number: VersionNumber) -> Running {
        let stop = Stop { reason: watch::Sender::new(None), ended: watch::Sender::new(false) };
        let key = (id.clone(), number);
        self.lock().insert(key.clone(), stop.clone());
        Running { builds: self.clone(), key, stop }
    }

    /// How many run or wait.
    #[must_use]
    pub fn running(&self) -> usize {
        self.lock().len()
    }

    /// Ends a build for a reason and waits until it has ended. Where it runs no more, nothing
    /// happens.
    pub async fn stop(&self, id: &EnvironmentId, number: VersionNumber, reason: &str) {
        let stop = self.lock().get(&(id.clone(), number)).cloned();
        if let Some(stop) = stop {
            stop.now(reason);
            // It fails only when nobody is left to say so.
            let mut ended = stop.ended.subscribe();
            let _ended = ended.wait_for(|ended| *ended).await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Stop>> {
        self.builds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stop {
    /// Asks the build to end.
    pub fn now(&self, reason: &str) {
        self.reason.send_if_modified(|present| {
            let first = present.is_none();
            present.get_or_insert_with(|| reason.to_owned());
            first
        });
    }

    /// Why it was asked to end, when it was.
    #[must_use]
    pub fn reason(&self) -> Option<String> {
        self.reason.borrow().clone()
    }

    /// Waits until it is asked to end.
    pub async fn asked(&self) -> String {
        let mut receiver = self.reason.subscribe();
        let asked = receiver.wait_for(Option::is_some).await;
        match asked.ok().and_then(|reason| reason.clone()) {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.builds.lock().remove(&self.key);
        self.stop.ended.send_replace(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_build_learns_the_first_reason_and_whoever_stops_it_that_it_ended() {
        let builds = RunningBuilds::default();
        let id = EnvironmentId::parse(&format!("henv_{}", "1".repeat(32))).unwrap();
        let number = VersionNumber::new(1).unwrap();
        builds.stop(&id, number, "it does not run").await;
        let running = builds.begin(&id, number);
        assert_eq!(running.stop.reason(), None);
        let stopping = tokio::spawn({
            let (builds, id) = (builds.clone(), id.clone());
            async move { builds.stop(&id, number, "first").await }
        });
        assert_eq!(running.stop.asked().await, "first");
        running.stop.now("second");
        assert_eq!(running.stop.reason().as_deref(), Some("first"));
        assert!(!stopping.is_finished());
        drop(running);
        stopping.await.unwrap();
    }
}
