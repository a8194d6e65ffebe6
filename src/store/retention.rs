//! Which versions are kept, and the removal of the others.

use super::{Durability, Store, StoreError, version_number};
use hangar_runtime::ids::{EnvironmentId, VersionNumber};
use rusqlite::{Connection, OptionalExtension, params};

/// What came of removing a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is no version any more; its directory is noted as garbage.
    Removed,
    /// There is none of this number.
    NotFound,
    /// It is the one sessions get.
    Active,
    /// Its build runs.
    Building,
    /// Sessions are bound to it, this many.
    Read(u32),
}

impl Store {
    /// Removes a version that nobody uses.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_version(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
    ) -> Result<Removal, StoreError> {
        let environment = environment.clone();
        self.write(Durability::Power, move |db| remove(db, &environment, number)).await
    }

    /// Removes what is beyond the newest ready versions that are to be kept, in every environment:
    /// ready versions that are neither active nor read by a session, and the records of failed
    /// builds before the oldest that stays. The answer is what was removed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_beyond(
        &self,
        keep_last: Option<u32>,
    ) -> Result<Vec<(EnvironmentId, VersionNumber)>, StoreError> {
        self.write(Durability::Power, move |db| {
            let mut removed = Vec::new();
            for (environment, number) in beyond(db, keep_last)? {
                let id = super::parse::<EnvironmentId>(environment)?;
                let number = version_number(number)?;
                if remove(db, &id, number)? == Removal::Removed {
                    removed.push((id, number));
                }
            }
            Ok(removed)
        })
        .await
    }

    /// How many ready versions of an environment are kept; `None` where the configuration says it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn keep_last(&self, environment: &EnvironmentId) -> Result<Option<u32>, StoreError> {
        let environment = environment.clone();
        self.read(move |db| {
            let sql = "SELECT keep_last FROM environments WHERE id = ?1";
            Ok(db.query_row(sql, [environment.as_str()], |row| row.get(0)).optional()?.flatten())
        })
        .await
    }

    /// Says how many ready versions of an environment are kept.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_keep_last(
        &self,
        environment: &EnvironmentId,
        keep_last: Option<u32>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let environment = environment.clone();
        self.write(Durability::Power, move |db| {
            db.execute(
                "UPDATE environments SET keep_last = ?2, updated_ms = ?3 WHERE id = ?1",
                params![environment.as_str(), keep_last, now_ms],
            )?;
            Ok(())
        })
        .await
    }
}

/// Candidates: whether one is in use is looked at when it is removed.
fn beyond(db: &Connection, keep_last: Option<u32>) -> Result<Vec<(String, u32)>, StoreError> {
    let mut statement = db.prepare_cached(
        "WITH ranked AS (
             SELECT v.environment, v.number, v.status, coalesce(e.keep_last, ?1) AS keep,
                 sum(v.status = 'ready') OVER
                     (PARTITION BY v.environment ORDER BY v.number DESC) AS ready
             FROM versions v JOIN environments e ON e.id = v.environment
         )
         SELECT environment, number FROM ranked
         WHERE keep IS NOT NULL AND status <> 'building'
             AND CASE status WHEN 'ready' THEN ready > keep ELSE ready >= keep END",
    )?;
    let rows = statement.query_map([keep_last], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn remove(
    db: &Connection,
    environment: &EnvironmentId,
    number: VersionNumber,
) -> Result<Removal, StoreError> {
    let key = params![environment.as_str(), number.0.get()];
    let sql = "SELECT v.status, e.active IS v.number FROM versions v
               JOIN environments e ON e.id = v.environment
               WHERE v.environment = ?1 AND v.number = ?2";
    let found: Option<(String, bool)> =
        db.query_row(sql, key, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    match found {
        None => return Ok(Removal::NotFound),
        Some((_, true)) => return Ok(Removal::Active),
        Some((status, _)) if status == "building" => return Ok(Removal::Building),
        Some(_) => {}
    }
    let sql = "SELECT count(*) FROM sessions WHERE environment = ?1 AND version = ?2";
    let readers: u32 = db.query_row(sql, key, |row| row.get(0))?;
    if readers > 0 {
        return Ok(Removal::Read(readers));
    }
    db.execute("DELETE FROM versions WHERE environment = ?1 AND number = ?2", key)?;
    let id = format!("{environment}/{number}");
    db.execute("INSERT OR IGNORE INTO garbage VALUES ('version', ?1)", [id])?;
    Ok(Removal::Removed)
}
