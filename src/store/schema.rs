//! The tables, and the way from every older format to the newest.

use super::StoreError;
use rusqlite::Connection;

/// `hngr`: marks the file as ours.
const APPLICATION: u32 = u32::from_be_bytes(*b"hngr");

/// Each entry brings a database from the format of its index to the next one.
const MIGRATIONS: &[&str] =
    &[FIRST, SECOND, THIRD, UPLOADS, SKILLS, SHARES, TASKS, ROLES, DEPENDENCIES];

/// The newest format this program knows.
pub const FORMAT: u32 = MIGRATIONS.len() as u32;

/// The format whose configurations have the files of skills in them.
#[cfg(test)]
pub(super) const BEFORE_SKILLS: usize = 4;

const FIRST: &str = "
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, created_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE environments (
    id TEXT PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, slug TEXT NOT NULL,
    description TEXT NOT NULL, entry TEXT NOT NULL, declared TEXT NOT NULL, python TEXT,
    active INTEGER, latest INTEGER NOT NULL DEFAULT 0,
    source_count INTEGER, source_bytes INTEGER,
    created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL,
    UNIQUE (scope, slug)
) STRICT;
CREATE TABLE versions (
    environment TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('building', 'ready', 'failed')),
    stage TEXT NOT NULL, session TEXT NOT NULL,
    started_s INTEGER NOT NULL, finished_s INTEGER, error TEXT NOT NULL DEFAULT '',
    source_digest TEXT, toolchain TEXT, inputs TEXT, root_digest TEXT,
    packages TEXT NOT NULL DEFAULT '[]', parts TEXT NOT NULL DEFAULT '{}',
    files INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (environment, number)
) STRICT;
-- One build at a time for each environment.
CREATE UNIQUE INDEX one_build ON versions (environment) WHERE status = 'building';
CREATE TABLE dependencies (
    environment TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    key TEXT NOT NULL, created_s INTEGER NOT NULL,
    PRIMARY KEY (environment, key)
) STRICT;
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, scope TEXT NOT NULL, environment TEXT, version INTEGER, slug TEXT,
    parts TEXT NOT NULL, network TEXT NOT NULL, limits TEXT NOT NULL,
    commands INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE commands (
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, number INTEGER NOT NULL,
    program TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER, ending TEXT,
    PRIMARY KEY (session, number)
) STRICT;
-- Directories of the warden that nothing refers to any more and that are still to be removed.
CREATE TABLE garbage (kind TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (kind, id)) STRICT;
";

/// The token of the state directory is stored anew at every start, so none is carried over.
const SECOND: &str = "
DROP TABLE tokens;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, scope TEXT NOT NULL,
    access TEXT NOT NULL CHECK (access IN ('full', 'read')), name TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
ALTER TABLE environments ADD COLUMN keep_last INTEGER;
-- The environment can be gone: a harness keeps the reference.
CREATE TABLE harnesses (
    id TEXT PRIMARY KEY, scope TEXT NOT NULL, base TEXT NOT NULL, config TEXT NOT NULL,
    environment TEXT, created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX harnesses_of ON harnesses (environment);
CREATE INDEX readers_of ON sessions (environment, version);
";

/// The repository and the commit a source was imported from.
const THIRD: &str = "ALTER TABLE environments ADD COLUMN imported TEXT";

/// Files that clients sent ahead of their tasks.
const UPLOADS: &str = "
CREATE TABLE uploads (
    id TEXT PRIMARY KEY, scope TEXT NOT NULL, name TEXT NOT NULL, media_type TEXT NOT NULL,
    purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX uploads_of ON uploads (scope);
";

/// The files of skills, which were a part of the configuration before.
const SKILLS: &str = "
CREATE TABLE skills (
    harness TEXT NOT NULL REFERENCES harnesses (id) ON DELETE CASCADE,
    blob TEXT NOT NULL, files TEXT NOT NULL,
    PRIMARY KEY (harness, blob)
) STRICT;
CREATE TEMP TABLE inline AS
    SELECT harnesses.id AS harness, skill.key AS position, skill.value ->> 'name' AS name,
           coalesce(skill.value ->> 'enabled', 1) AS enabled,
           coalesce(skill.value -> 'files', CASE WHEN skill.value ->> 'content' IS NOT NULL THEN
               json_array(json_object('path', 'SKILL.md', 'content', skill.value ->> 'content'))
           END) AS files,
           'skl_' || lower(hex(randomblob(16))) AS blob
    FROM harnesses, json_each(harnesses.config, '$.skills') AS skill;
INSERT INTO skills SELECT harness, blob, files FROM inline WHERE files IS NOT NULL;
UPDATE harnesses SET config = json_set(config, '$.skills', json((
    SELECT coalesce(json_group_array(json_patch(
        json_object('name', name, 'enabled', json(iif(enabled, 'true', 'false'))),
        json_object('blob', iif(files IS NULL, NULL, blob))) ORDER BY position), '[]')
    FROM inline WHERE harness = harnesses.id)));
DROP TABLE inline;
";

/// Read-only links to sessions.
const SHARES: &str = "
CREATE TABLE shares (
    session TEXT PRIMARY KEY REFERENCES sessions (id) ON DELETE CASCADE,
    id TEXT NOT NULL UNIQUE, secret TEXT NOT NULL UNIQUE, created_ms INTEGER NOT NULL
) STRICT;
";

/// Tasks: what each was asked, how it began and how it ended.
const TASKS: &str = "
ALTER TABLE sessions ADD COLUMN harness TEXT;
ALTER TABLE sessions ADD COLUMN title TEXT NOT NULL DEFAULT '';
CREATE INDEX sessions_of ON sessions (scope, created_ms);
CREATE TABLE responses (
    id TEXT PRIMARY KEY, scope TEXT NOT NULL,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE, turn INTEGER NOT NULL,
    harness TEXT NOT NULL, status TEXT NOT NULL, command INTEGER NOT NULL,
    request TEXT NOT NULL, initial TEXT NOT NULL, response TEXT, outcome TEXT,
    stored INTEGER NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL, ended_ms INTEGER,
    UNIQUE (session, turn)
) STRICT;
CREATE INDEX hidden_responses ON responses (id) WHERE deleted OR NOT stored;
-- One task at a time in each session.
CREATE UNIQUE INDEX one_task ON responses (session) WHERE status = 'in_progress';
CREATE TABLE idempotency (
    scope TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, response TEXT NOT NULL,
    created_ms INTEGER NOT NULL, PRIMARY KEY (scope, key)
) STRICT;
CREATE INDEX idempotency_by_age ON idempotency (created_ms);
CREATE INDEX idempotency_of ON idempotency (response);
";

/// Tokens that may run things, and tokens that end.
const ROLES: &str = "
ALTER TABLE tokens RENAME TO older_tokens;
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, scope TEXT NOT NULL,
    access TEXT NOT NULL CHECK (access IN ('full', 'run', 'read')), name TEXT NOT NULL,
    created_ms INTEGER NOT NULL, expires_ms INTEGER
) STRICT;
INSERT INTO tokens SELECT id, digest, scope, access, name, created_ms, NULL FROM older_tokens;
DROP TABLE older_tokens;
";

/// Of what was kept before nobody knows which versions have it: it goes with the next ready one.
const DEPENDENCIES: &str = "
-- The boot during which the packages were kept; absent once they are on disk.
ALTER TABLE dependencies ADD COLUMN boot TEXT;
ALTER TABLE versions ADD COLUMN dependencies TEXT;
";

/// Makes the tables or brings them to the newest format.
pub(super) fn prepare(connection: &mut Connection) -> Result<(), StoreError> {
    prepare_up_to(connection, MIGRATIONS.len())
}

/// The same, to an older format.
pub(super) fn prepare_up_to(connection: &mut Connection, format: usize) -> Result<(), StoreError> {
    configure(connection)?;
    let application: u32 = connection.pragma_query_value(None, "application_id", |r| r.get(0))?;
    let found: u32 = connection.pragma_query_value(None, "user_version", |r| r.get(0))?;
    match (application, found) {
        (0, 0) => connection.pragma_update(None, "application_id", APPLICATION)?,
        (APPLICATION, found) if found > FORMAT => {
            return Err(StoreError::Newer { found, known: FORMAT });
        }
        (APPLICATION, _) => {}
        _ => return Err(StoreError::Foreign),
    }
    for (index, migration) in MIGRATIONS[..format].iter().enumerate().skip(found as usize) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(migration)?;
        transaction.pragma_update(None, "user_version", index as u32 + 1)?;
        transaction.commit()?;
    }
    Ok(())
}

/// What every connection needs.
pub(super) fn configure(connection: &Connection) -> Result<(), StoreError> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(())
}
