//! Configured harnesses: a base, its settings, and the environment its tasks read.

use super::{Durability, Store, StoreError, from_json, to_json};
use crate::harnesses::mcp::McpServer;
use crate::harnesses::skills::{Bundle, Skill, SkillFile};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde::{Deserialize, Serialize};

/// What a client writes of a harness.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HarnessConfig {
    /// As the owner named it.
    pub name: String,
    /// The model of tasks that name none.
    pub default_model: String,
    /// Standing instructions.
    pub system_prompt: String,
    /// Remote MCP servers.
    pub mcp_servers: Vec<McpServer>,
    /// Skills; their files are stored beside.
    pub skills: Vec<Skill>,
    /// Tools the agent does not get.
    pub disabled_tools: Vec<String>,
    /// The most steps of a task.
    pub max_step: Option<u64>,
    /// The longest time of a task.
    pub timeout_seconds: Option<u64>,
    /// The environment of its tasks, whether it is still there or not.
    pub environment: Option<String>,
}

/// A harness as it is stored.
#[derive(Debug, Clone)]
pub struct HarnessRow {
    /// `chrn_…`.
    pub id: String,
    /// Who sees it.
    pub scope: String,
    /// Which agent it is; never changes.
    pub base: String,
    /// What can be changed.
    pub config: HarnessConfig,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

fn row(row: &Row<'_>) -> Result<HarnessRow, StoreError> {
    Ok(HarnessRow {
        id: row.get(0)?,
        scope: row.get(1)?,
        base: row.get(2)?,
        config: from_json(&row.get::<_, String>(3)?)?,
        created_ms: row.get(4)?,
    })
}

fn find(
    connection: &Connection,
    filter: &str,
    values: impl rusqlite::Params,
) -> Result<Vec<HarnessRow>, StoreError> {
    let sql = format!(
        "SELECT id, scope, base, config, created_ms FROM harnesses {filter} ORDER BY created_ms, id"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_and_then(values, row)?.collect()
}

impl Store {
    /// Adds a harness with the files of its skills.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn create_harness(
        &self,
        new: HarnessRow,
        bundles: Vec<Bundle>,
    ) -> Result<Stored, StoreError> {
        self.write(Durability::Power, move |db| {
            if !has_environment(db, &new.scope, new.config.environment.as_deref())? {
                return Ok(Stored::NoEnvironment);
            }
            db.execute(
                "INSERT INTO harnesses (id, scope, base, config, environment, created_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    new.id,
                    new.scope,
                    new.base,
                    to_json(&new.config)?,
                    new.config.environment,
                    new.created_ms
                ],
            )?;
            put_bundles(db, &new.id, &bundles)?;
            Ok(Stored::Whole)
        })
        .await
    }

    /// Adds a harness unless there is one of this id; the answer is the one that is there.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ensure_harness(&self, new: HarnessRow) -> Result<HarnessRow, StoreError> {
        self.write(Durability::Power, move |db| {
            db.execute(
                "INSERT OR IGNORE INTO harnesses (id, scope, base, config, created_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![new.id, new.scope, new.base, to_json(&new.config)?, new.created_ms],
            )?;
            let found = find(db, "WHERE id = ?1 AND scope = ?2", params![new.id, new.scope])?.pop();
            found.ok_or_else(|| StoreError::Damaged(format!("no harness {}", new.id)))
        })
        .await
    }

    /// Writes a harness back, with the files of skills that are new; those that none of its skills
    /// has any more go.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn update_harness(
        &self,
        new: HarnessRow,
        environment: Reference,
        bundles: Vec<Bundle>,
    ) -> Result<Stored, StoreError> {
        self.write(Durability::Power, move |db| {
            let named = new.config.environment.as_deref();
            if environment == Reference::Written && !has_environment(db, &new.scope, named)? {
                return Ok(Stored::NoEnvironment);
            }
            let kept = kept_blobs(&new.config, &bundles);
            for blob in &kept {
                let sql = "SELECT EXISTS (SELECT 1 FROM skills WHERE harness = ?1 AND blob = ?2)";
                if !db.query_row(sql, params![new.id, blob], |row| row.get::<_, bool>(0))? {
                    return Ok(Stored::NoSkill);
                }
            }
            db.execute(
                "DELETE FROM skills WHERE harness = ?1
                 AND blob NOT IN (SELECT value FROM json_each(?2))",
                params![new.id, to_json(&kept)?],
            )?;
            db.execute(
                "UPDATE harnesses SET config = ?2, environment = ?3 WHERE id = ?1",
                params![new.id, to_json(&new.config)?, new.config.environment],
            )?;
            put_bundles(db, &new.id, &bundles)?;
            Ok(Stored::Whole)
        })
        .await
    }

    /// The files of a skill; `None` when the harness has none of this handle.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn skill_files(
        &self,
        harness: &str,
        blob: &str,
    ) -> Result<Option<Vec<SkillFile>>, StoreError> {
        let (harness, blob) = (harness.to_owned(), blob.to_owned());
        self.read(move |db| {
            let sql = "SELECT files FROM skills WHERE harness = ?1 AND blob = ?2";
            let mut statement = db.prepare_cached(sql)?;
            let text: Option<String> =
                statement.query_row(params![harness, blob], |row| row.get(0)).optional()?;
            text.map(|text| from_json(&text)).transpose()
        })
        .await
    }

    /// The harness with this id, if the scope has it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn harness(&self, scope: &str, id: &str) -> Result<Option<HarnessRow>, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.read(move |db| Ok(find(db, "WHERE id = ?1 AND scope = ?2", params![id, scope])?.pop()))
            .await
    }

    /// The harnesses of a scope, the oldest first: all, or those that name an environment.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn harnesses(
        &self,
        scope: &str,
        environment: Option<&str>,
    ) -> Result<Vec<HarnessRow>, StoreError> {
        let (scope, environment) = (scope.to_owned(), environment.map(str::to_owned));
        self.read(move |db| {
            let filter = "WHERE scope = ?1 AND (?2 IS NULL OR environment = ?2)";
            find(db, filter, params![scope, environment])
        })
        .await
    }

    /// Removes a harness; what it did stays. `false` when the scope has none of this id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete_harness(&self, scope: &str, id: &str) -> Result<bool, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.write(Durability::Power, move |db| {
            let removed = db.execute(
                "DELETE FROM harnesses WHERE id = ?1 AND scope = ?2",
                params![id, scope],
            )?;
            Ok(removed == 1)
        })
        .await
    }
}

/// What became of a harness that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// It is there with all it names.
    Whole,
    /// It names an environment that is not in its scope; nothing was changed.
    NoEnvironment,
    /// Another request took a skill away meanwhile; nothing was changed.
    NoSkill,
}

/// The handles of skills whose files are stored already.
fn kept_blobs(config: &HarnessConfig, bundles: &[Bundle]) -> Vec<String> {
    let all = config.skills.iter().filter_map(|skill| skill.blob.clone());
    all.filter(|blob| !bundles.iter().any(|bundle| bundle.blob == *blob)).collect()
}

fn put_bundles(db: &Connection, harness: &str, bundles: &[Bundle]) -> Result<(), StoreError> {
    for bundle in bundles {
        db.execute(
            "INSERT INTO skills (harness, blob, files) VALUES (?1, ?2, ?3)",
            params![harness, bundle.blob, to_json(&bundle.files)?],
        )?;
    }
    Ok(())
}

/// Whether a change of a harness says which environment it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// It does, so the environment has to be there.
    Written,
    /// It does not; the reference stays even where its environment is gone.
    Left,
}

fn has_environment(
    db: &Connection,
    scope: &str,
    environment: Option<&str>,
) -> Result<bool, StoreError> {
    let Some(id) = environment else { return Ok(true) };
    let sql = "SELECT EXISTS (SELECT 1 FROM environments WHERE id = ?1 AND scope = ?2)";
    Ok(db.query_row(sql, params![id, scope], |row| row.get(0))?)
}
