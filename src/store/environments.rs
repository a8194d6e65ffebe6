//! Environments and what refers to them as a whole.

use super::{Durability, Store, StoreError, from_json, parse, to_json, version_number};
use hangar_runtime::ids::{EnvironmentId, Slug, VersionNumber};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// Packages that the owner named beside the manifests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Declared {
    /// For pip.
    pub pip: Vec<String>,
    /// For npm.
    pub npm: Vec<String>,
    /// Debian packages.
    pub apt: Vec<String>,
}

/// What an environment remembers of the repository it was imported from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportedCommit {
    /// The repository's address.
    pub url: String,
    /// The branch, tag or commit that was asked for.
    pub r#ref: Option<String>,
    /// The commit that was imported.
    pub commit: String,
}

/// An environment as it is stored.
#[derive(Debug, Clone)]
pub struct EnvironmentRow {
    /// Its id.
    pub id: EnvironmentId,
    /// Who sees it.
    pub scope: String,
    /// As the owner named it.
    pub name: String,
    /// From the first name; never changes.
    pub slug: Slug,
    /// As the owner described it.
    pub description: String,
    /// How the owner says it is started.
    pub entry: String,
    /// Packages beside the manifests.
    pub declared: Declared,
    /// The minor version of Python the owner asked for.
    pub python: Option<String>,
    /// The version sessions read.
    pub active: Option<VersionNumber>,
    /// The number of the last build, 0 before the first.
    pub latest: u32,
    /// The commit the source was imported from last.
    pub imported: Option<ImportedCommit>,
    /// Files and bytes of the source, when they were counted since the last change.
    pub source: Option<(u64, u64)>,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970.
    pub updated_ms: i64,
}

/// What an environment begins with.
#[derive(Debug, Clone)]
pub struct NewEnvironment {
    /// Its id.
    pub id: EnvironmentId,
    /// Who sees it.
    pub scope: String,
    /// As the owner named it.
    pub name: String,
    /// From the name.
    pub slug: Slug,
    /// As the owner described it.
    pub description: String,
    /// How the owner says it is started.
    pub entry: String,
    /// Packages beside the manifests.
    pub declared: Declared,
    /// The minor version of Python the owner asked for.
    pub python: Option<String>,
    /// Milliseconds since 1970.
    pub now_ms: i64,
}

const COLUMNS: &str = "id, scope, name, slug, description, entry, declared, python, active, \
                       latest, source_count, source_bytes, created_ms, updated_ms, imported";

fn row(row: &Row<'_>) -> Result<EnvironmentRow, StoreError> {
    let count: Option<u64> = row.get(10)?;
    let bytes: Option<u64> = row.get(11)?;
    Ok(EnvironmentRow {
        id: parse(row.get(0)?)?,
        scope: row.get(1)?,
        name: row.get(2)?,
        slug: parse(row.get(3)?)?,
        description: row.get(4)?,
        entry: row.get(5)?,
        declared: from_json(&row.get::<_, String>(6)?)?,
        python: row.get(7)?,
        active: row.get::<_, Option<u32>>(8)?.map(version_number).transpose()?,
        latest: row.get(9)?,
        imported: row.get::<_, Option<String>>(14)?.map(|text| from_json(&text)).transpose()?,
        source: count.zip(bytes),
        created_ms: row.get(12)?,
        updated_ms: row.get(13)?,
    })
}

fn find(
    connection: &Connection,
    filter: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<EnvironmentRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM environments {filter}");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_and_then(values, row)?.collect()
}

impl Store {
    /// Adds an environment; `false` when the scope has one with this slug.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_environment(&self, new: NewEnvironment) -> Result<bool, StoreError> {
        self.write(Durability::Power, move |db| {
            let added = db.execute(
                "INSERT INTO environments (id, scope, name, slug, description, entry, declared,
                 python, created_ms, updated_ms, source_count, source_bytes)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, 0, 0)
                 ON CONFLICT (scope, slug) DO NOTHING",
                params![
                    new.id.as_str(),
                    new.scope,
                    new.name,
                    new.slug.as_str(),
                    new.description,
                    new.entry,
                    to_json(&new.declared)?,
                    new.python,
                    new.now_ms
                ],
            )?;
            Ok(added == 1)
        })
        .await
    }

    /// Writes back what an owner can change: name, description, entry, declared, python.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn update_environment(&self, new: EnvironmentRow) -> Result<(), StoreError> {
        self.write(Durability::Power, move |db| {
            db.execute(
                "UPDATE environments SET name = ?2, description = ?3, entry = ?4, declared = ?5,
                 python = ?6, updated_ms = ?7 WHERE id = ?1",
                params![
                    new.id.as_str(),
                    new.name,
                    new.description,
                    new.entry,
                    to_json(&new.declared)?,
                    new.python,
                    new.updated_ms
                ],
            )?;
            Ok(())
        })
        .await
    }

    /// The environment with this id, if the scope has it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn environment(
        &self,
        scope: &str,
        id: &EnvironmentId,
    ) -> Result<Option<EnvironmentRow>, StoreError> {
        let (scope, id) = (scope.to_owned(), id.clone());
        self.read(move |db| {
            Ok(find(db, "WHERE id = ?1 AND scope = ?2", params![id.as_str(), scope])?.pop())
        })
        .await
    }

    /// All environments of a scope, the oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn environments(&self, scope: &str) -> Result<Vec<EnvironmentRow>, StoreError> {
        let scope = scope.to_owned();
        self.read(move |db| find(db, "WHERE scope = ?1 ORDER BY created_ms, id", [scope])).await
    }

    /// Records how large the source is; `None` after it changed, until it is counted again.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_source_size(
        &self,
        id: &EnvironmentId,
        size: Option<(u64, u64)>,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(Durability::Process, move |db| {
            db.execute(
                "UPDATE environments SET source_count = ?2, source_bytes = ?3,
                 updated_ms = iif(?2 IS NULL, ?4, updated_ms) WHERE id = ?1",
                params![id.as_str(), size.map(|s| s.0), size.map(|s| s.1), now_ms],
            )?;
            Ok(())
        })
        .await
    }

    /// Records the commit a source was imported from; `None` when it came from elsewhere since.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_imported(
        &self,
        id: &EnvironmentId,
        imported: Option<ImportedCommit>,
    ) -> Result<(), StoreError> {
        let id = id.clone();
        self.write(Durability::Power, move |db| {
            let imported = imported.as_ref().map(to_json).transpose()?;
            let sql = "UPDATE environments SET imported = ?2 WHERE id = ?1";
            db.execute(sql, params![id.as_str(), imported])?;
            Ok(())
        })
        .await
    }

    /// Removes an environment with its versions and notes its directories as garbage.
    /// `false` when a build runs.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete_environment(&self, id: &EnvironmentId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.write(Durability::Power, move |db| {
            let building = db
                .query_row(
                    "SELECT 1 FROM versions WHERE environment = ?1 AND status = 'building'",
                    [id.as_str()],
                    |_| Ok(()),
                )
                .optional()?;
            if building.is_some() {
                return Ok(false);
            }
            db.execute("DELETE FROM environments WHERE id = ?1", [id.as_str()])?;
            db.execute("INSERT OR IGNORE INTO garbage VALUES ('environment', ?1)", [id.as_str()])?;
            Ok(true)
        })
        .await
    }

    /// Notes a directory of the warden that is to be removed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn add_garbage(&self, kind: &'static str, id: &str) -> Result<(), StoreError> {
        let id = id.to_owned();
        self.write(Durability::Process, move |db| {
            db.execute("INSERT OR IGNORE INTO garbage VALUES (?1, ?2)", params![kind, id])?;
            Ok(())
        })
        .await
    }

    /// What is to be removed: kind and id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn garbage(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached("SELECT kind, id FROM garbage")?;
            let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Forgets garbage that was removed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn forget_garbage(&self, kind: &str, id: &str) -> Result<(), StoreError> {
        let (kind, id) = (kind.to_owned(), id.to_owned());
        self.write(Durability::Process, move |db| {
            db.execute("DELETE FROM garbage WHERE kind = ?1 AND id = ?2", params![kind, id])?;
            Ok(())
        })
        .await
    }
}
