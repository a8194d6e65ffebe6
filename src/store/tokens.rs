//! Bearer tokens. Of a token only its digest is stored.

use super::{Durability, Store, StoreError};
use rusqlite::{Row, params};

/// What a token lets its bearer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything in its scope.
    Full,
    /// Run tasks, sessions and commands, and look; not change what they run on.
    Run,
    /// Look at what is in its scope and change nothing.
    Read,
}

impl Access {
    /// As it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Run => "run",
            Self::Read => "read",
        }
    }

    /// The role of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Full, Self::Run, Self::Read].into_iter().find(|role| role.as_str() == name)
    }
}

/// A token as it is stored.
#[derive(Debug, Clone)]
pub struct TokenRow {
    /// `tok_…`, or [`FIRST_TOKEN`].
    pub id: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// What its bearer sees.
    pub scope: String,
    /// What its bearer may do there.
    pub access: Access,
    /// Whom or what it is for.
    pub name: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// Milliseconds since 1970; it is good for ever where there is none.
    pub expires_ms: Option<i64>,
}

impl TokenRow {
    /// Whether it was good once and is no more.
    #[must_use]
    pub fn is_expired(&self, now_ms: i64) -> bool {
        self.expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms)
    }
}

/// The id of the token in the state directory's file.
pub const FIRST_TOKEN: &str = "first";

fn row(row: &Row<'_>) -> Result<TokenRow, StoreError> {
    let access: String = row.get(3)?;
    let access =
        Access::parse(&access).ok_or_else(|| StoreError::Damaged(format!("access {access}")))?;
    Ok(TokenRow {
        id: row.get(0)?,
        digest: row.get(1)?,
        scope: row.get(2)?,
        access,
        name: row.get(4)?,
        created_ms: row.get(5)?,
        expires_ms: row.get(6)?,
    })
}

impl Store {
    /// Makes a token known; one with the same id is known no more.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn put_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.write(Durability::Power, move |db| {
            db.execute(
                "INSERT OR REPLACE INTO tokens (id, digest, scope, access, name, created_ms,
                                                expires_ms)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    token.id,
                    token.digest,
                    token.scope,
                    token.access.as_str(),
                    token.name,
                    token.created_ms,
                    token.expires_ms
                ],
            )?;
            Ok(())
        })
        .await
    }

    /// Makes a token known no more; `false` when it was not.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn remove_token(&self, id: &str) -> Result<bool, StoreError> {
        let id = id.to_owned();
        self.write(Durability::Power, move |db| {
            Ok(db.execute("DELETE FROM tokens WHERE id = ?1", [id])? == 1)
        })
        .await
    }

    /// All tokens, the oldest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn tokens(&self) -> Result<Vec<TokenRow>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT id, digest, scope, access, name, created_ms, expires_ms FROM tokens
                 ORDER BY created_ms, id",
            )?;
            statement.query_and_then([], row)?.collect()
        })
        .await
    }
}
