//! Installed packages that are kept for later builds of the same environment.
//!
//! What is kept is on disk once a version that has it is; until then it is good for as long as the
//! host runs, which the id of its boot tells.

use super::{Durability, Store, StoreError};
use hangar_runtime::ids::{DependencyKey, EnvironmentId};
use rusqlite::{Connection, OptionalExtension, params};

impl Store {
    /// Notes that installed packages were kept under a key.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_dependencies(
        &self,
        environment: &EnvironmentId,
        key: &DependencyKey,
        boot: &str,
        now_s: i64,
    ) -> Result<(), StoreError> {
        let (environment, key, boot) = (environment.clone(), key.clone(), boot.to_owned());
        self.write(Durability::Process, move |db| {
            db.execute(
                "INSERT OR IGNORE INTO dependencies (environment, key, created_s, boot)
                 VALUES (?1, ?2, ?3, ?4)",
                params![environment.as_str(), key.as_str(), now_s, boot],
            )?;
            Ok(())
        })
        .await
    }

    /// Forgets kept packages, so that they are installed again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_dependencies(
        &self,
        environment: &EnvironmentId,
        key: &DependencyKey,
    ) -> Result<(), StoreError> {
        let (environment, key) = (environment.clone(), key.clone());
        self.write(Durability::Process, move |db| {
            db.execute(
                "DELETE FROM dependencies WHERE environment = ?1 AND key = ?2",
                params![environment.as_str(), key.as_str()],
            )?;
            Ok(())
        })
        .await
    }

    /// Whether packages were kept under a key.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn has_dependencies(
        &self,
        environment: &EnvironmentId,
        key: &DependencyKey,
    ) -> Result<bool, StoreError> {
        let (environment, key) = (environment.clone(), key.clone());
        self.read(move |db| {
            let found = db
                .query_row(
                    "SELECT 1 FROM dependencies WHERE environment = ?1 AND key = ?2",
                    params![environment.as_str(), key.as_str()],
                    |_| Ok(()),
                )
                .optional()?;
            Ok(found.is_some())
        })
        .await
    }

    /// Gives up what was kept before the host was started again and may not have reached the disk.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn give_up_unsynced_dependencies(&self, boot: &str) -> Result<(), StoreError> {
        let boot = boot.to_owned();
        self.write(Durability::Power, move |db| {
            give_up(db, "boot IS NOT NULL AND boot <> ?1", params![boot]).map(drop)
        })
        .await
    }

    /// Gives up what is kept and in no version any more. What a failed build left is kept until a
    /// later one of its environment is ready, and while a build runs nothing is given up. The answer
    /// is how much was.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn give_up_unused_dependencies(&self) -> Result<usize, StoreError> {
        const UNUSED: &str = "
            EXISTS (SELECT 1 FROM versions v WHERE v.environment = d.environment
                AND v.status = 'ready' AND v.started_s > d.created_s)
            AND NOT EXISTS (SELECT 1 FROM versions v WHERE v.environment = d.environment
                AND (v.status = 'building' OR v.dependencies = d.key))";
        self.write(Durability::Power, |db| give_up(db, UNUSED, [])).await
    }
}

/// Deletes rows and notes their trees as garbage.
fn give_up(
    db: &Connection,
    which: &str,
    values: impl rusqlite::Params + Clone,
) -> Result<usize, StoreError> {
    let garbage = format!(
        "INSERT OR IGNORE INTO garbage
         SELECT 'dependencies', d.environment || '/' || d.key FROM dependencies d WHERE {which}"
    );
    db.execute(&garbage, values.clone())?;
    Ok(db.execute(&format!("DELETE FROM dependencies AS d WHERE {which}"), values)?)
}

/// A version that has the packages is on disk, and so are they.
pub(super) fn are_on_disk(
    db: &Connection,
    environment: &EnvironmentId,
    key: Option<&DependencyKey>,
) -> Result<(), StoreError> {
    db.execute(
        "UPDATE dependencies SET boot = NULL WHERE environment = ?1 AND key = ?2",
        params![environment.as_str(), key.map(DependencyKey::as_str)],
    )?;
    Ok(())
}
