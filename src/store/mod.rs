//! What survives a restart: environments, versions, sessions, commands, harnesses and tokens, in
//! SQLite.
//!
//! One thread writes and one reads; the rest of the process sends them closures. So there is no
//! lock to wait for in async code, and no transaction is ever open across an `await`.

mod commands;
mod dependencies;
mod environments;
mod harnesses;
mod keys;
mod lane;
mod responses;
mod retention;
mod schema;
mod sessions;
mod shares;
mod tokens;
mod uploads;
mod versions;
mod writer;

pub use commands::CommandRow;
pub use environments::{Declared, EnvironmentRow, ImportedCommit, NewEnvironment};
pub use harnesses::{HarnessConfig, HarnessRow, Reference, Stored};
pub use keys::{Repeat, Repeated};
pub use responses::{Begun, EndedTask, IN_PROGRESS, NewTask, Outcome, ResponseRow};
pub use retention::Removal;
pub use schema::FORMAT;
pub use sessions::{After, SessionRow};
pub use shares::ShareRow;
pub use tokens::{Access, FIRST_TOKEN, TokenRow};
pub use uploads::UploadRow;
pub use versions::{FinishedVersion, PackageRow, Parts, VersionRow, VersionStatus};

use lane::Lane;
use rusqlite::Connection;
use std::path::Path;
use writer::Writer;

/// Why the store did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// SQLite refused.
    #[error("the database failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// A column does not hold what it should.
    #[error("the database holds a value that is not valid: {0}")]
    Damaged(String),
    /// The file was written by a newer hangar.
    #[error("the database has format {found}, this hangar knows formats up to {known}")]
    Newer {
        /// The format of the file.
        found: u32,
        /// The newest format this program knows.
        known: u32,
    },
    /// The file is a database of another program.
    #[error("the file is a database of another program")]
    Foreign,
    /// What was changed could not be committed.
    #[error("the change was not committed: {0}")]
    NotCommitted(String),
    /// The thread of the store is gone.
    #[error("the store is closed")]
    Closed,
}

/// How sure a write must be before it is reported as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It survives the death of the process.
    Process,
    /// It survives the loss of power.
    Power,
}

/// The database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    writer: Writer,
    reader: Lane,
}

impl Store {
    /// Opens the database, makes it or brings it to the newest format.
    ///
    /// # Errors
    /// When the file is not ours, is newer than this program, or cannot be opened.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut writer = Connection::open(path)?;
        schema::prepare(&mut writer)?;
        let reader = Connection::open(path)?;
        schema::configure(&reader)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(Self { writer: Writer::start(writer), reader: Lane::start("store-read", reader) })
    }

    /// Whether both threads answer, and the database does.
    pub async fn answers(&self) -> bool {
        let ask = |db: &Connection| Ok(db.query_row("SELECT 1", [], |row| row.get::<_, i64>(0))?);
        self.read(ask).await.is_ok() && self.write(Durability::Process, ask).await.is_ok()
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.reader.run(move |connection| query(connection)).await
    }

    /// Runs statements as one change: all of them count or none does, whatever is committed with them.
    async fn write<T: Send + 'static>(
        &self,
        durability: Durability,
        change: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.run(durability, change).await
    }
}

/// Reads a JSON column.
fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// Writes a JSON column.
fn to_json<T: serde::Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Damaged(error.to_string()))
}

/// Reads a name column.
fn parse<T: TryFrom<String>>(text: String) -> Result<T, StoreError>
where
    T::Error: std::fmt::Display,
{
    T::try_from(text).map_err(|error| StoreError::Damaged(error.to_string()))
}

fn version_number(number: u32) -> Result<hangar_runtime::ids::VersionNumber, StoreError> {
    hangar_runtime::ids::VersionNumber::new(number)
        .ok_or_else(|| StoreError::Damaged("a version with the number 0".to_owned()))
}

#[cfg(test)]
mod tests;
