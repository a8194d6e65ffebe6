//! Versions: every build of an environment, finished or not.

use super::{Durability, Store, StoreError, from_json, parse, to_json, version_number};
use hangar_runtime::ids::{DependencyKey, EnvironmentId, SessionId, VersionNumber};
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

/// How far a version is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VersionStatus {
    /// Its build runs.
    Building,
    /// Sessions can read it.
    Ready,
    /// Its build failed; it never becomes ready.
    Failed,
}

impl VersionStatus {
    /// As the protocol writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Building => "building",
            Self::Ready => "ready",
            Self::Failed => "failed",
        }
    }
}

/// An installed package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PackageRow {
    /// `pip`, `npm`, `apt`, `cargo`, `go` or `gem`.
    pub manager: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What a version has beside the files of the project; it decides variables of its sessions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Parts {
    /// A virtual environment at `.venv`.
    pub venv: bool,
    /// Node packages at `node_modules`.
    pub node_modules: bool,
    /// Unpacked Debian packages at `apt`.
    pub apt: bool,
    /// Go modules at `.go-modules`.
    pub go_modules: bool,
    /// Ruby gems at `.gems`.
    pub gems: bool,
}

/// A version as it is stored.
#[derive(Debug, Clone)]
pub struct VersionRow {
    /// Whose version.
    pub environment: EnvironmentId,
    /// Its number.
    pub number: VersionNumber,
    /// How far it is.
    pub status: VersionStatus,
    /// The stage of the build it is in or ended in.
    pub stage: String,
    /// The session that builds or built it.
    pub session: SessionId,
    /// Seconds since 1970.
    pub started_s: i64,
    /// Seconds since 1970, once it ended.
    pub finished_s: Option<i64>,
    /// Why it failed, one public sentence.
    pub error: String,
    /// Digest of the source it was built from.
    pub source_digest: Option<String>,
    /// Id of the toolchain it was built with.
    pub toolchain: Option<String>,
    /// Digest of everything else that decided what was built.
    pub inputs: Option<String>,
    /// Digest of the frozen tree.
    pub root_digest: Option<String>,
    /// What is installed.
    pub packages: Vec<PackageRow>,
    /// What it has beside the project.
    pub parts: Parts,
    /// Files of the frozen tree.
    pub files: u64,
    /// Bytes of the frozen tree.
    pub bytes: u64,
}

/// What a build that succeeded tells about its version.
#[derive(Debug, Clone)]
pub struct FinishedVersion {
    /// Seconds since 1970.
    pub finished_s: i64,
    /// Digest of the source it was built from.
    pub source_digest: String,
    /// Id of the toolchain it was built with.
    pub toolchain: String,
    /// Digest of everything else that decided what was built.
    pub inputs: String,
    /// Digest of the frozen tree.
    pub root_digest: String,
    /// What is installed.
    pub packages: Vec<PackageRow>,
    /// What it has beside the project.
    pub parts: Parts,
    /// What was kept of its packages.
    pub dependencies: Option<DependencyKey>,
    /// Files of the frozen tree.
    pub files: u64,
    /// Bytes of the frozen tree.
    pub bytes: u64,
}

const COLUMNS: &str = "environment, number, status, stage, session, started_s, finished_s, error, \
                       source_digest, toolchain, inputs, root_digest, packages, parts, files, bytes";

fn row(row: &Row<'_>) -> Result<VersionRow, StoreError> {
    let status = match row.get::<_, String>(2)?.as_str() {
        "building" => VersionStatus::Building,
        "ready" => VersionStatus::Ready,
        "failed" => VersionStatus::Failed,
        other => return Err(StoreError::Damaged(format!("version status {other}"))),
    };
    Ok(VersionRow {
        environment: parse(row.get(0)?)?,
        number: version_number(row.get(1)?)?,
        status,
        stage: row.get(3)?,
        session: parse(row.get(4)?)?,
        started_s: row.get(5)?,
        finished_s: row.get(6)?,
        error: row.get(7)?,
        source_digest: row.get(8)?,
        toolchain: row.get(9)?,
        inputs: row.get(10)?,
        root_digest: row.get(11)?,
        packages: from_json(&row.get::<_, String>(12)?)?,
        parts: from_json(&row.get::<_, String>(13)?)?,
        files: row.get(14)?,
        bytes: row.get(15)?,
    })
}

impl Store {
    /// Takes the next version number for a build; `None` when one runs already.
    ///
    /// # Errors
    /// When the database fails or the environment is gone.
    pub async fn begin_build(
        &self,
        environment: &EnvironmentId,
        session: &SessionId,
        now_s: i64,
    ) -> Result<Option<VersionNumber>, StoreError> {
        let (environment, session) = (environment.clone(), session.clone());
        self.write(Durability::Power, move |db| {
            let running = db
                .query_row(
                    "SELECT 1 FROM versions WHERE environment = ?1 AND status = 'building'",
                    [environment.as_str()],
                    |_| Ok(()),
                )
                .optional()?;
            if running.is_some() {
                return Ok(None);
            }
            let number: u32 = db.query_row(
                "UPDATE environments SET latest = latest + 1, updated_ms = ?2 * 1000
                 WHERE id = ?1 RETURNING latest",
                params![environment.as_str(), now_s],
                |row| row.get(0),
            )?;
            db.execute(
                "INSERT INTO versions (environment, number, status, stage, session, started_s)
                 VALUES (?1, ?2, 'building', 'copying files', ?3, ?4)",
                params![environment.as_str(), number, session.as_str(), now_s],
            )?;
            Ok(Some(version_number(number)?))
        })
        .await
    }

    /// Notes the stage a build is in.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn set_stage(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
        stage: &'static str,
    ) -> Result<(), StoreError> {
        let environment = environment.clone();
        self.write(Durability::Process, move |db| {
            db.execute(
                "UPDATE versions SET stage = ?3 WHERE environment = ?1 AND number = ?2",
                params![environment.as_str(), number.0.get(), stage],
            )?;
            Ok(())
        })
        .await
    }

    /// Makes a build's version ready and active, in one step.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn finish_build(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
        done: FinishedVersion,
    ) -> Result<(), StoreError> {
        let environment = environment.clone();
        self.write(Durability::Power, move |db| {
            db.execute(
                "UPDATE versions SET status = 'ready', finished_s = ?3, source_digest = ?4,
                 toolchain = ?5, inputs = ?6, root_digest = ?7, packages = ?8, parts = ?9,
                 files = ?10, bytes = ?11, dependencies = ?12 WHERE environment = ?1 AND number = ?2",
                params![
                    environment.as_str(),
                    number.0.get(),
                    done.finished_s,
                    done.source_digest,
                    done.toolchain,
                    done.inputs,
                    done.root_digest,
                    to_json(&done.packages)?,
                    to_json(&done.parts)?,
                    done.files,
                    done.bytes,
                    done.dependencies.as_ref().map(DependencyKey::as_str),
                ],
            )?;
            super::dependencies::are_on_disk(db, &environment, done.dependencies.as_ref())?;
            db.execute(
                "UPDATE environments SET active = ?2, updated_ms = ?3 * 1000 WHERE id = ?1",
                params![environment.as_str(), number.0.get(), done.finished_s],
            )?;
            Ok(())
        })
        .await
    }

    /// Ends a build that did not succeed.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn fail_build(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
        error: &str,
        now_s: i64,
    ) -> Result<(), StoreError> {
        let (environment, error) = (environment.clone(), error.to_owned());
        self.write(Durability::Power, move |db| {
            db.execute(
                "UPDATE versions SET status = 'failed', finished_s = ?3, error = ?4
                 WHERE environment = ?1 AND number = ?2 AND status = 'building'",
                params![environment.as_str(), number.0.get(), now_s, error],
            )?;
            Ok(())
        })
        .await
    }

    /// Makes a finished version the one sessions read; `false` when it never finished.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn activate(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
        now_ms: i64,
    ) -> Result<bool, StoreError> {
        let environment = environment.clone();
        self.write(Durability::Power, move |db| {
            let changed = db.execute(
                "UPDATE environments SET active = ?2, updated_ms = ?3 WHERE id = ?1 AND EXISTS
                 (SELECT 1 FROM versions WHERE environment = ?1 AND number = ?2
                  AND status = 'ready')",
                params![environment.as_str(), number.0.get(), now_ms],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    /// All versions of an environment, the newest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn versions(
        &self,
        environment: &EnvironmentId,
    ) -> Result<Vec<VersionRow>, StoreError> {
        let environment = environment.clone();
        self.read(move |db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM versions WHERE environment = ?1 ORDER BY number DESC"
            ))?;
            statement.query_and_then([environment.as_str()], row)?.collect()
        })
        .await
    }

    /// One version.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn version(
        &self,
        environment: &EnvironmentId,
        number: VersionNumber,
    ) -> Result<Option<VersionRow>, StoreError> {
        Ok(self.versions(environment).await?.into_iter().find(|row| row.number == number))
    }

    /// All builds that have not ended, of every scope.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unfinished_builds(&self) -> Result<Vec<VersionRow>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(&format!(
                "SELECT {COLUMNS} FROM versions WHERE status = 'building'"
            ))?;
            statement.query_and_then([], row)?.collect()
        })
        .await
    }
}
