//! The commands of sessions and how they ended.

use super::{Durability, Store, StoreError, from_json, parse, to_json};
use crate::sessions::isolation::Ended;
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::wire::warden::CommandEnd;
use rusqlite::{Row, params};

/// A command as it is stored.
#[derive(Debug, Clone)]
pub struct CommandRow {
    /// Its session.
    pub session: SessionId,
    /// Its number in the session.
    pub number: CommandId,
    /// The program and its arguments.
    pub program: Vec<String>,
    /// Milliseconds since 1970.
    pub started_ms: i64,
    /// Milliseconds since 1970, once it ended.
    pub ended_ms: Option<i64>,
    /// How it ended.
    pub ending: Option<CommandEnd>,
}

fn row(row: &Row<'_>) -> Result<CommandRow, StoreError> {
    Ok(CommandRow {
        session: parse(row.get(0)?)?,
        number: CommandId(row.get(1)?),
        program: from_json(&row.get::<_, String>(2)?)?,
        started_ms: row.get(3)?,
        ended_ms: row.get(4)?,
        ending: row.get::<_, Option<String>>(5)?.map(|text| from_json(&text)).transpose()?,
    })
}

const SELECT: &str = "SELECT session, number, program, started_ms, ended_ms, ending FROM commands";

impl Store {
    /// Takes the next command number of a session and notes the command.
    ///
    /// # Errors
    /// When the database fails or the session is gone.
    pub async fn begin_command(
        &self,
        session: &SessionId,
        program: Vec<String>,
        now_ms: i64,
    ) -> Result<CommandId, StoreError> {
        let session = session.clone();
        self.write(Durability::Process, move |db| {
            let number: u32 = db.query_row(
                "UPDATE sessions SET commands = commands + 1, updated_ms = ?2 WHERE id = ?1
                 RETURNING commands",
                params![session.as_str(), now_ms],
                |row| row.get(0),
            )?;
            db.execute(
                "INSERT INTO commands (session, number, program, started_ms)
                 VALUES (?1, ?2, ?3, ?4)",
                params![session.as_str(), number, to_json(&program)?, now_ms],
            )?;
            Ok(CommandId(number))
        })
        .await
    }

    /// Notes how a command ended, unless that is known already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_command(
        &self,
        session: &SessionId,
        number: CommandId,
        ending: CommandEnd,
        now_ms: i64,
    ) -> Result<(), StoreError> {
        let ended = Ended { session: session.clone(), command: number, end: ending };
        self.end_commands(vec![ended], now_ms).await
    }

    /// Notes how commands ended, unless that is known already.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_commands(&self, ended: Vec<Ended>, now_ms: i64) -> Result<(), StoreError> {
        if ended.is_empty() {
            return Ok(());
        }
        self.write(Durability::Process, move |db| {
            let mut commands = db.prepare_cached(
                "UPDATE commands SET ending = ?3, ended_ms = ?4
                 WHERE session = ?1 AND number = ?2 AND ending IS NULL",
            )?;
            let mut sessions =
                db.prepare_cached("UPDATE sessions SET updated_ms = ?2 WHERE id = ?1")?;
            for Ended { session, command, end } in &ended {
                let changed = commands.execute(params![
                    session.as_str(),
                    command.0,
                    to_json(end)?,
                    now_ms
                ])?;
                if changed > 0 {
                    sessions.execute(params![session.as_str(), now_ms])?;
                }
            }
            Ok(())
        })
        .await
    }

    /// One command.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn command(
        &self,
        session: &SessionId,
        number: CommandId,
    ) -> Result<Option<CommandRow>, StoreError> {
        let session = session.clone();
        self.read(move |db| {
            let mut statement =
                db.prepare_cached(&format!("{SELECT} WHERE session = ?1 AND number = ?2"))?;
            statement.query_and_then(params![session.as_str(), number.0], row)?.next().transpose()
        })
        .await
    }

    /// All commands of which the end is not known.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn unfinished_commands(&self) -> Result<Vec<CommandRow>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(&format!("{SELECT} WHERE ending IS NULL"))?;
            statement.query_and_then([], row)?.collect()
        })
        .await
    }
}
