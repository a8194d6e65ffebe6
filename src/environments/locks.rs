//! Who may change a source now: writers, or a build that copies it.

use hangar_runtime::ids::EnvironmentId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// One lock for each environment that was touched.
#[derive(Debug, Default)]
pub struct SourceLocks {
    locks: Mutex<HashMap<EnvironmentId, Arc<RwLock<()>>>>,
}

impl SourceLocks {
    fn of(&self, id: &EnvironmentId) -> Arc<RwLock<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(locks.entry(id.clone()).or_default())
    }

    /// While this is held nobody changes the source.
    pub async fn copying(&self, id: &EnvironmentId) -> OwnedRwLockReadGuard<()> {
        self.of(id).read_owned().await
    }

    /// While this is held nobody else changes or copies the source.
    pub async fn changing(&self, id: &EnvironmentId) -> OwnedRwLockWriteGuard<()> {
        self.of(id).write_owned().await
    }
}
