//! Keys of requests: a request that is repeated finds the task that the first one began.

use super::responses::ResponseRow;
use super::{Durability, Store, StoreError};
use rusqlite::{Connection, OptionalExtension, params};

/// A key by which a client repeats a request without repeating the work.
#[derive(Debug, Clone)]
pub struct Repeat {
    /// As the client chose it.
    pub key: String,
    /// Of the request.
    pub digest: [u8; 32],
    /// Keys from before this time are forgotten.
    pub since_ms: i64,
}

/// An earlier use of a key.
#[derive(Debug, Clone)]
pub struct Repeated {
    /// Of the request then.
    pub digest: [u8; 32],
    /// The task it began.
    pub response: String,
}

pub(super) fn repeated(
    db: &Connection,
    scope: &str,
    repeat: &Repeat,
) -> Result<Option<Repeated>, StoreError> {
    let mut statement = db.prepare_cached(
        "SELECT digest, response FROM idempotency WHERE scope = ?1 AND key = ?2
         AND created_ms >= ?3",
    )?;
    let found = statement.query_row(params![scope, repeat.key, repeat.since_ms], |row| {
        Ok(Repeated { digest: row.get(0)?, response: row.get(1)? })
    });
    Ok(found.optional()?)
}

/// Keeps the key of a task that begins.
pub(super) fn keep(db: &Connection, task: &ResponseRow, repeat: &Repeat) -> Result<(), StoreError> {
    let mut statement = db.prepare_cached(
        "INSERT OR REPLACE INTO idempotency (scope, key, digest, response, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let (key, digest) = (&repeat.key, &repeat.digest);
    statement.execute(params![task.scope, key, digest, task.id, task.created_ms])?;
    Ok(())
}

/// Of one task or of all, where they are not to be read any more, forgets the answers that no key
/// is kept for.
pub(super) fn forget_answers(db: &Connection, id: Option<&str>) -> Result<(), StoreError> {
    db.execute(
        "UPDATE responses SET response = NULL, outcome = NULL, initial = '{}'
         WHERE (deleted OR NOT stored) AND response IS NOT NULL AND status <> 'in_progress'
           AND (?1 IS NULL OR id = ?1)
           AND NOT EXISTS (SELECT 1 FROM idempotency WHERE response = responses.id)",
        [id],
    )?;
    Ok(())
}

impl Store {
    /// An earlier use of a key.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn repeated(
        &self,
        scope: &str,
        repeat: &Repeat,
    ) -> Result<Option<Repeated>, StoreError> {
        let (scope, repeat) = (scope.to_owned(), repeat.clone());
        self.read(move |db| repeated(db, &scope, &repeat)).await
    }

    /// Forgets keys from before this time, and the answers that were kept for them only.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_keys(&self, before_ms: i64) -> Result<(), StoreError> {
        self.write(Durability::Process, move |db| {
            db.execute("DELETE FROM idempotency WHERE created_ms < ?1", [before_ms])?;
            forget_answers(db, None)
        })
        .await
    }
}
