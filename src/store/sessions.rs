//! Sessions: what has to be known to start one's isolation again.

use super::{Durability, Parts, Store, StoreError, from_json, parse, to_json, version_number};
use crate::config::LimitsConfig;
use hangar_runtime::ids::{EnvironmentId, SessionId, Slug, VersionNumber};
use rusqlite::{Connection, Row, params};

/// A session as it is stored.
#[derive(Debug, Clone)]
pub struct SessionRow {
    /// Its id.
    pub id: SessionId,
    /// Who sees it.
    pub scope: String,
    /// What lies at `/env`: environment, version and slug, all three or none.
    pub environment: Option<(EnvironmentId, VersionNumber, Slug)>,
    /// What the version has beside the project.
    pub parts: Parts,
    /// `none`, `loopback` or `egress`.
    pub network: String,
    /// Limits that differ from the defaults.
    pub limits: LimitsConfig,
    /// The number of the last command, 0 before the first.
    pub commands: u32,
    /// The harness whose tasks run in it, where any do.
    pub harness: Option<String>,
    /// What its first task was about.
    pub title: String,
    /// The status of its last task.
    pub last_status: Option<String>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub updated_ms: i64,
}

const COLUMNS: &str = "id, scope, environment, version, slug, parts, network, limits, commands, \
                       created_ms, updated_ms, harness, title, \
                       (SELECT status FROM responses WHERE session = sessions.id \
                        ORDER BY turn DESC LIMIT 1)";

fn row(row: &Row<'_>) -> Result<SessionRow, StoreError> {
    let id: Option<String> = row.get(2)?;
    let number: Option<u32> = row.get(3)?;
    let slug: Option<String> = row.get(4)?;
    let environment = match (id, number, slug) {
        (Some(id), Some(number), Some(slug)) => {
            Some((parse(id)?, version_number(number)?, parse(slug)?))
        }
        _ => None,
    };
    Ok(SessionRow {
        id: parse(row.get(0)?)?,
        scope: row.get(1)?,
        environment,
        parts: from_json(&row.get::<_, String>(5)?)?,
        network: row.get(6)?,
        limits: from_json(&row.get::<_, String>(7)?)?,
        commands: row.get(8)?,
        created_ms: row.get(9)?,
        updated_ms: row.get(10)?,
        harness: row.get(11)?,
        title: row.get(12)?,
        last_status: row.get(13)?,
    })
}

/// Whether a session can be bound to what it reads: a version that is there and finished.
pub(super) fn is_readable(
    db: &Connection,
    environment: Option<&(EnvironmentId, VersionNumber, Slug)>,
) -> Result<bool, StoreError> {
    let Some((id, version, _)) = environment else { return Ok(true) };
    let sql = "SELECT EXISTS (SELECT 1 FROM versions WHERE environment = ?1
               AND number = ?2 AND status = 'ready')";
    let key = params![id.as_str(), version.0.get()];
    Ok(db.query_row(sql, key, |row| row.get::<_, bool>(0))?)
}

/// Adds a session; `false` when its version is there no more.
pub(super) fn insert(db: &Connection, new: &SessionRow) -> Result<bool, StoreError> {
    let environment = new.environment.as_ref();
    if !is_readable(db, environment)? {
        return Ok(false);
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO sessions (id, scope, environment, version, slug, parts, network, limits,
                               commands, created_ms, updated_ms, harness, title)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
    )?;
    statement.execute(params![
        new.id.as_str(),
        new.scope,
        environment.map(|e| e.0.as_str()),
        environment.map(|e| e.1.0.get()),
        environment.map(|e| e.2.as_str()),
        to_json(&new.parts)?,
        new.network,
        to_json(&new.limits)?,
        new.commands,
        new.created_ms,
        new.updated_ms,
        new.harness,
        new.title,
    ])?;
    Ok(true)
}

/// Binds a session to what its next task reads; `false` when it is gone.
pub(super) fn rebind(db: &Connection, session: &SessionRow) -> Result<bool, StoreError> {
    let environment = session.environment.as_ref();
    let mut statement = db.prepare_cached(
        "UPDATE sessions SET environment = ?2, version = ?3, slug = ?4, parts = ?5,
                             updated_ms = ?6 WHERE id = ?1",
    )?;
    let changed = statement.execute(params![
        session.id.as_str(),
        environment.map(|e| e.0.as_str()),
        environment.map(|e| e.1.0.get()),
        environment.map(|e| e.2.as_str()),
        to_json(&session.parts)?,
        session.updated_ms,
    ])?;
    Ok(changed == 1)
}

/// Where a page of sessions begins: behind the one made at this time with this id.
#[derive(Debug, Clone)]
pub struct After {
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Its id.
    pub id: String,
}

impl Store {
    /// A page of the sessions of a scope, the newest first; of one harness, or of all.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions_page(
        &self,
        scope: &str,
        harness: Option<String>,
        after: Option<After>,
        limit: usize,
    ) -> Result<Vec<SessionRow>, StoreError> {
        let scope = scope.to_owned();
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM sessions
                 WHERE scope = ?1 AND (?2 IS NULL OR harness = ?2)
                   AND (?3 IS NULL OR created_ms < ?3 OR (created_ms = ?3 AND id > ?4))
                 ORDER BY created_ms DESC, id LIMIT ?5"
            ))?;
            let (time, id) = after.map(|after| (after.created_ms, after.id)).unzip();
            statement.query_and_then(params![scope, harness, time, id, limit], row)?.collect()
        })
        .await
    }

    /// Adds a session; `false` when its version is there no more. From then on the version is
    /// not removed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_session(&self, new: SessionRow) -> Result<bool, StoreError> {
        self.write(Durability::Process, move |db| insert(db, &new)).await
    }

    /// The session with this id, if the scope has it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn session(
        &self,
        scope: &str,
        id: &SessionId,
    ) -> Result<Option<SessionRow>, StoreError> {
        let (scope, id) = (scope.to_owned(), id.clone());
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM sessions WHERE id = ?1 AND scope = ?2"
            ))?;
            statement.query_and_then(params![id.as_str(), scope], row)?.next().transpose()
        })
        .await
    }

    /// The sessions of a scope, or of every scope, the newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn sessions(&self, scope: Option<&str>) -> Result<Vec<SessionRow>, StoreError> {
        let scope = scope.map(str::to_owned);
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM sessions WHERE ?1 IS NULL OR scope = ?1
                 ORDER BY created_ms DESC, id"
            ))?;
            statement.query_and_then(params![scope], row)?.collect()
        })
        .await
    }

    /// How many sessions a scope has, running or not.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn count_sessions(&self, scope: &str) -> Result<u64, StoreError> {
        let scope = scope.to_owned();
        self.read(move |db| {
            let sql = "SELECT count(*) FROM sessions WHERE scope = ?1";
            Ok(db.prepare_cached(sql)?.query_row([scope], |row| row.get(0))?)
        })
        .await
    }

    /// Removes a session with its commands and notes its directories as garbage.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete_session(&self, id: &SessionId) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(Durability::Process, move |db| {
            db.execute("DELETE FROM sessions WHERE id = ?1", [id.as_str()])?;
            db.execute("INSERT OR IGNORE INTO garbage VALUES ('session', ?1)", [id.as_str()])?;
            Ok(())
        })
        .await
    }
}
