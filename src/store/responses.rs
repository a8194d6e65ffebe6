//! Tasks: the row of a task is there before anybody is told of it, and how it ended before
//! anybody is told that.

use super::keys::{self, Repeat, Repeated, forget_answers};
use super::sessions::{self, SessionRow};
use super::{Durability, Store, StoreError, from_json, parse, to_json};
use hangar_runtime::ids::{CommandId, SessionId};
use hangar_runtime::wire::warden::CommandEnd;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The status of a task that runs; every other one is final.
pub const IN_PROGRESS: &str = "in_progress";

/// What the events of an ended task are told again from, and what else is known of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// How many bytes of the text each delta brought.
    pub deltas: Vec<u32>,
    /// The files the turn created or changed.
    pub files: Vec<Value>,
    /// The files that were there before and are not any more.
    pub deleted: Vec<String>,
}

/// A task as it is stored.
#[derive(Debug, Clone)]
pub struct ResponseRow {
    /// `resp_…`.
    pub id: String,
    /// Who sees it.
    pub scope: String,
    /// The session it runs in.
    pub session: SessionId,
    /// Which task of the session it is, from 1.
    pub turn: u32,
    /// The harness that runs it.
    pub harness: String,
    /// As the protocol names it.
    pub status: String,
    /// The command that does the work.
    pub command: CommandId,
    /// What was asked.
    pub request: Value,
    /// The response when the task began.
    pub initial: Value,
    /// The response when it had ended.
    pub response: Option<Value>,
    /// What else is known of its end.
    pub outcome: Outcome,
    /// Whether it is kept once it ended.
    pub stored: bool,
    /// Its owner deleted it while it ran.
    pub deleted: bool,
    /// Milliseconds since 1970.
    pub created_ms: i64,
}

impl ResponseRow {
    /// The response as it is now, but for what a running task has said so far.
    #[must_use]
    pub fn current(&self) -> &Value {
        self.response.as_ref().unwrap_or(&self.initial)
    }

    /// It can be read by its owner.
    #[must_use]
    pub fn is_visible(&self) -> bool {
        !self.deleted && (self.stored || self.status == IN_PROGRESS)
    }
}

const COLUMNS: &str = "id, scope, session, turn, harness, status, command, request, initial, \
                       response, outcome, stored, deleted, created_ms";

fn row(row: &Row<'_>) -> Result<ResponseRow, StoreError> {
    let response: Option<String> = row.get(9)?;
    let outcome: Option<String> = row.get(10)?;
    Ok(ResponseRow {
        id: row.get(0)?,
        scope: row.get(1)?,
        session: parse(row.get(2)?)?,
        turn: row.get(3)?,
        harness: row.get(4)?,
        status: row.get(5)?,
        command: CommandId(row.get(6)?),
        request: from_json(&row.get::<_, String>(7)?)?,
        initial: from_json(&row.get::<_, String>(8)?)?,
        response: response.map(|text| from_json(&text)).transpose()?,
        outcome: outcome.map(|text| from_json(&text)).transpose()?.unwrap_or_default(),
        stored: row.get(11)?,
        deleted: row.get(12)?,
        created_ms: row.get(13)?,
    })
}

/// A task that is to be begun.
#[derive(Debug)]
pub struct NewTask {
    /// Its row; turn and command are chosen by the store.
    pub row: ResponseRow,
    /// Its session as it is to be.
    pub session: SessionRow,
    /// Whether the session is there already.
    pub continues: bool,
    /// How many commands it takes beside the one that does the work, before that.
    pub commands_before: u32,
    /// The key of the request.
    pub repeat: Option<Repeat>,
}

/// What became of a task that was to be begun.
#[derive(Debug)]
pub enum Begun {
    /// It is stored, with the number of its last command and of its turn.
    Stored(CommandId, u32),
    /// The key was used before.
    Repeated(Repeated),
    /// Another task runs in the session.
    Busy,
    /// The version it would read was just removed.
    NotReadable,
    /// The session was just deleted.
    NoSession,
}

/// Takes numbers for commands of a session; the answer is the last of them.
fn take_commands(db: &Connection, session: &str, count: u32) -> Result<Option<u32>, StoreError> {
    let mut statement = db.prepare_cached(
        "UPDATE sessions SET commands = commands + ?2 WHERE id = ?1 RETURNING commands",
    )?;
    Ok(statement.query_row(params![session, count], |row| row.get(0)).optional()?)
}

/// The command that does the work of a task, so that its end is stored when it is told.
fn note_command(
    db: &Connection,
    row: &ResponseRow,
    number: u32,
    now_ms: i64,
) -> Result<(), StoreError> {
    let mut statement = db.prepare_cached(
        "INSERT INTO commands (session, number, program, started_ms) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let program = to_json(&["task", &row.id])?;
    statement.execute(params![row.session.as_str(), number, program, now_ms])?;
    Ok(())
}

fn begin(db: &Connection, new: &NewTask) -> Result<Begun, StoreError> {
    let (task, session) = (&new.row, &new.session);
    if let Some(repeat) = &new.repeat
        && let Some(earlier) = keys::repeated(db, &task.scope, repeat)?
    {
        return Ok(Begun::Repeated(earlier));
    }
    let key = session.id.as_str();
    if new.continues {
        let mut statement = db.prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM responses WHERE session = ?1 AND status = 'in_progress')",
        )?;
        if statement.query_row([key], |row| row.get(0))? {
            return Ok(Begun::Busy);
        }
        if !sessions::is_readable(db, session.environment.as_ref())? {
            return Ok(Begun::NotReadable);
        }
        if !sessions::rebind(db, session)? {
            return Ok(Begun::NoSession);
        }
    } else if !sessions::insert(db, session)? {
        return Ok(Begun::NotReadable);
    }
    let command = take_commands(db, key, new.commands_before + 1)?;
    let command = command.ok_or_else(|| StoreError::Damaged("a session vanished".to_owned()))?;
    let turn: u32 = db
        .prepare_cached("SELECT coalesce(max(turn), 0) + 1 FROM responses WHERE session = ?1")?
        .query_row([key], |row| row.get(0))?;
    let mut statement = db.prepare_cached(
        "INSERT INTO responses (id, scope, session, turn, harness, status, command, request,
                                initial, stored, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, 'in_progress', ?6, ?7, ?8, ?9, ?10)",
    )?;
    statement.execute(params![
        task.id,
        task.scope,
        key,
        turn,
        task.harness,
        command,
        to_json(&task.request)?,
        to_json(&task.initial)?,
        task.stored,
        task.created_ms,
    ])?;
    note_command(db, task, command, task.created_ms)?;
    if let Some(repeat) = &new.repeat {
        keys::keep(db, task, repeat)?;
    }
    Ok(Begun::Stored(CommandId(command), turn))
}

/// How a task ended, for the store.
#[derive(Debug, Clone)]
pub struct EndedTask {
    /// Which.
    pub id: String,
    /// A final status.
    pub status: String,
    /// The whole response.
    pub response: Value,
    /// What else is known.
    pub outcome: Outcome,
    /// Milliseconds since 1970.
    pub ended_ms: i64,
}

fn end(db: &Connection, ended: &EndedTask) -> Result<(), StoreError> {
    let mut statement = db.prepare_cached(
        "UPDATE responses SET status = ?2, response = ?3, outcome = ?4, ended_ms = ?5
         WHERE id = ?1 AND status = 'in_progress' RETURNING session, stored AND NOT deleted",
    )?;
    let values = params![
        ended.id,
        ended.status,
        to_json(&ended.response)?,
        to_json(&ended.outcome)?,
        ended.ended_ms
    ];
    let found: Option<(String, bool)> =
        statement.query_row(values, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    // Its session can have been deleted.
    let Some((session, kept)) = found else { return Ok(()) };
    if !kept {
        forget_content(db, &ended.id)?;
    }
    db.prepare_cached("UPDATE sessions SET updated_ms = ?2 WHERE id = ?1")?
        .execute(params![session, ended.ended_ms])?;
    Ok(())
}

/// What was asked and answered goes; that there was a turn stays, for the turns behind it. The
/// answer to a request that may be repeated goes with its key.
fn forget_content(db: &Connection, id: &str) -> Result<(), StoreError> {
    db.execute("UPDATE responses SET request = '{}' WHERE id = ?1", [id])?;
    forget_answers(db, Some(id))
}

impl Store {
    /// Stores a task that is to be begun, with its session: everything or nothing.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn begin_task(&self, new: NewTask) -> Result<Begun, StoreError> {
        self.write(Durability::Power, move |db| begin(db, &new)).await
    }

    /// Takes other commands for a task whose own was never started; the answer is the last.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn begin_again(
        &self,
        task: ResponseRow,
        commands_before: u32,
        now_ms: i64,
    ) -> Result<CommandId, StoreError> {
        self.write(Durability::Process, move |db| {
            let number = take_commands(db, task.session.as_str(), commands_before + 1)?;
            let number = number.ok_or_else(|| StoreError::Damaged("no session".to_owned()))?;
            note_command(db, &task, number, now_ms)?;
            db.execute(
                "UPDATE responses SET command = ?2 WHERE id = ?1",
                params![task.id, number],
            )?;
            Ok(CommandId(number))
        })
        .await
    }

    /// Stores how a task ended. One that has ended stays as it is.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn end_task(&self, ended: EndedTask) -> Result<(), StoreError> {
        self.write(Durability::Power, move |db| end(db, &ended)).await
    }

    /// The task with this id, if the scope has it.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn response(&self, scope: &str, id: &str) -> Result<Option<ResponseRow>, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.read(move |db| {
            let sql = format!("SELECT {COLUMNS} FROM responses WHERE id = ?1 AND scope = ?2");
            let mut statement = db.prepare_cached(&sql)?;
            statement.query_and_then(params![id, scope], row)?.next().transpose()
        })
        .await
    }

    /// The tasks of a session in order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn responses_of(&self, session: &SessionId) -> Result<Vec<ResponseRow>, StoreError> {
        let session = session.clone();
        self.read(move |db| {
            let sql = format!("SELECT {COLUMNS} FROM responses WHERE session = ?1 ORDER BY turn");
            let mut statement = db.prepare_cached(&sql)?;
            statement.query_and_then([session.as_str()], row)?.collect()
        })
        .await
    }

    /// All tasks that have not ended.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn running_tasks(&self) -> Result<Vec<ResponseRow>, StoreError> {
        self.read(|db| {
            let sql = format!("SELECT {COLUMNS} FROM responses WHERE status = 'in_progress'");
            let mut statement = db.prepare_cached(&sql)?;
            statement.query_and_then([], row)?.collect()
        })
        .await
    }

    /// Deletes a task that ended; one that runs goes on and is deleted when it ends. `false` when
    /// the scope has none of this id.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn delete_response(&self, scope: &str, id: &str) -> Result<bool, StoreError> {
        let (scope, id) = (scope.to_owned(), id.to_owned());
        self.write(Durability::Power, move |db| {
            let status: Option<String> = db
                .query_row(
                    "UPDATE responses SET deleted = 1
                     WHERE id = ?1 AND scope = ?2 AND NOT deleted RETURNING status",
                    params![id, scope],
                    |row| row.get(0),
                )
                .optional()?;
            if status.as_deref().is_some_and(|status| status != IN_PROGRESS) {
                forget_content(db, &id)?;
            }
            Ok(status.is_some())
        })
        .await
    }

    /// How a command of a task ended, as far as it was told.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn ending_of(
        &self,
        session: &SessionId,
        number: CommandId,
    ) -> Result<Option<CommandEnd>, StoreError> {
        Ok(self.command(session, number).await?.and_then(|command| command.ending))
    }
}
