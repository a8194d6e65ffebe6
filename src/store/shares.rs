//! Read-only links to sessions.

use super::{Durability, Store, StoreError};
use hangar_runtime::ids::SessionId;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

/// The link to a session. A session has one at most, so revoking it reaches every copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRow {
    /// `share_…`; no permission of any kind.
    pub id: String,
    /// What makes the link one: whoever has it sees the session. It can be told again, so it is
    /// stored as it is, beside everything it shows.
    pub secret: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

fn row(row: &Row<'_>) -> rusqlite::Result<ShareRow> {
    Ok(ShareRow { id: row.get(0)?, secret: row.get(1)?, created_ms: row.get(2)? })
}

fn of(db: &Connection, session: &SessionId) -> Result<Option<ShareRow>, StoreError> {
    let sql = "SELECT id, secret, created_ms FROM shares WHERE session = ?1";
    Ok(db.prepare_cached(sql)?.query_row([session.as_str()], row).optional()?)
}

impl Store {
    /// Shares a session unless it is shared; the answer is the link that is good. `None` when the
    /// session is gone.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn share(
        &self,
        session: &SessionId,
        new: ShareRow,
    ) -> Result<Option<ShareRow>, StoreError> {
        let session = session.clone();
        self.write(Durability::Power, move |db| {
            db.execute(
                "INSERT OR IGNORE INTO shares (session, id, secret, created_ms)
                 SELECT id, ?2, ?3, ?4 FROM sessions WHERE id = ?1",
                params![session.as_str(), new.id, new.secret, new.created_ms],
            )?;
            of(db, &session)
        })
        .await
    }

    /// The link to a session, if it is shared.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn share_of(&self, session: &SessionId) -> Result<Option<ShareRow>, StoreError> {
        let session = session.clone();
        self.read(move |db| of(db, &session)).await
    }

    /// Shares a session no more; the answer is the link that was good.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unshare(&self, session: &SessionId) -> Result<Option<ShareRow>, StoreError> {
        let session = session.clone();
        self.write(Durability::Power, move |db| {
            let was = of(db, &session)?;
            db.execute("DELETE FROM shares WHERE session = ?1", [session.as_str()])?;
            Ok(was)
        })
        .await
    }

    /// The session a link leads to, and its scope.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn shared(&self, secret: &str) -> Result<Option<(SessionId, String)>, StoreError> {
        let secret = secret.to_owned();
        self.read(move |db| {
            let sql = "SELECT sessions.id, sessions.scope FROM shares
                       JOIN sessions ON sessions.id = shares.session WHERE shares.secret = ?1";
            let found: Option<(String, String)> = db
                .prepare_cached(sql)?
                .query_row([secret], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            found.map(|(id, scope)| Ok((super::parse(id)?, scope))).transpose()
        })
        .await
    }
}
