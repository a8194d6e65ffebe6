//! Files that clients sent ahead of the tasks that read them.

use super::{Durability, Store, StoreError};
use rusqlite::{OptionalExtension as _, Row, params};

/// An upload as it is stored; its bytes are in a file of its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRow {
    /// `file_up…`.
    pub id: String,
    /// Who sees it.
    pub scope: String,
    /// One plain name.
    pub name: String,
    /// What the client said of its content, or what the name tells.
    pub media_type: String,
    /// What the client says it is for.
    pub purpose: String,
    /// Its size.
    pub bytes: u64,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

const COLUMNS: &str = "id, scope, name, media_type, purpose, bytes, created_ms";

fn row(row: &Row<'_>) -> rusqlite::Result<UploadRow> {
    Ok(UploadRow {
        id: row.get(0)?,
        scope: row.get(1)?,
        name: row.get(2)?,
        media_type: row.get(3)?,
        purpose: row.get(4)?,
        bytes: row.get(5)?,
        created_ms: row.get(6)?,
    })
}

impl Store {
    /// Adds an upload; `false` when all of the scope would take more than `bytes_max` then.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_upload(&self, new: UploadRow, bytes_max: u64) -> Result<bool, StoreError> {
        self.write(Durability::Power, move |db| {
            let sql = "SELECT coalesce(sum(bytes), 0) FROM uploads WHERE scope = ?1";
            let kept: u64 = db.query_row(sql, [&new.scope], |row| row.get(0))?;
            if kept.saturating_add(new.bytes) > bytes_max {
                return Ok(false);
            }
            db.execute(
                "INSERT INTO uploads (id, scope, name, media_type, purpose, bytes, created_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    new.id,
                    new.scope,
                    new.name,
                    new.media_type,
                    new.purpose,
                    new.bytes,
                    new.created_ms
                ],
            )?;
            Ok(true)
        })
        .await
    }

    /// The upload with this id, if the scope has it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn upload(&self, scope: &str, id: &str) -> Result<Option<UploadRow>, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM uploads WHERE id = ?1 AND scope = ?2"
            ))?;
            Ok(statement.query_row(params![id, scope], row).optional()?)
        })
        .await
    }

    /// The uploads of a scope, or of every scope, the newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn uploads(&self, scope: Option<&str>) -> Result<Vec<UploadRow>, StoreError> {
        let scope = scope.map(str::to_owned);
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM uploads WHERE ?1 IS NULL OR scope = ?1
                 ORDER BY created_ms DESC, id"
            ))?;
            Ok(statement.query_map([scope], row)?.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Removes an upload; `false` when the scope has none of this id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete_upload(&self, scope: &str, id: &str) -> Result<bool, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.write(Durability::Power, move |db| {
            let sql = "DELETE FROM uploads WHERE id = ?1 AND scope = ?2";
            Ok(db.execute(sql, params![id, scope])? == 1)
        })
        .await
    }
}
