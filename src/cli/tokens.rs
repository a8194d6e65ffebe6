//! `hangar token`: bearer tokens for clients elsewhere.

use super::client::Client;
use super::error::CliError;
use super::options::{Format, Server};
use super::table::{cell, print, print_json, table};
use super::terminal::note;
use crate::app::now_ms;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// What `hangar token` can do. The server does it for clients of its local socket only.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a token and print it, once
    Create(Create),
    /// List the tokens, without what is secret of them
    List(Format),
    /// Make a token invalid at once
    Revoke(Revoke),
}

/// A new token.
#[derive(Debug, Args)]
#[command(after_help = "\
A client sees what is in the scope of its token and nothing else. The scope of local clients and of
the first token is `default`.

Example:
  sudo hangar token create ci --scope team-a --role run --expires-in 30d > token")]
pub struct Create {
    /// Whom or what it is for
    name: String,
    /// What its bearer sees
    #[arg(long, default_value = "default")]
    scope: String,
    /// What its bearer may do: everything, run tasks and look, or look
    #[arg(long, default_value = "full", value_parser = ["full", "run", "read"])]
    role: String,
    /// The same as --role read
    #[arg(long, conflicts_with = "role")]
    read_only: bool,
    /// How long it is good, such as 90s, 12h or 30d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    expires_in: Option<u64>,
    #[command(flatten)]
    format: Format,
}

/// Names a token.
#[derive(Debug, Args)]
pub struct Revoke {
    /// The id, as `hangar token list` shows it
    id: String,
}

/// Carries out `hangar token …`.
///
/// # Errors
/// Those of the requests.
pub async fn run(command: &TokenCommand, server: &Server) -> Result<(), CliError> {
    let client = server.client()?;
    match command {
        TokenCommand::Create(create) => create.run(&client).await,
        TokenCommand::List(format) => list(&client, *format).await,
        TokenCommand::Revoke(revoke) => {
            client.delete(&format!("/v1/hangar/tokens/{}", revoke.id)).await
        }
    }
}

impl Create {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let role = if self.read_only { "read" } else { &self.role };
        let request = json!({
            "name": self.name, "scope": self.scope, "role": role,
            "expires_in_seconds": self.expires_in,
        });
        let made: Value = client.post("/v1/hangar/tokens", &request).await?;
        if self.format.json {
            return print_json(&made);
        }
        note(&format!("{}: this is shown once and never again", cell(&made["id"])));
        print(&format!("{}\n", made["token"].as_str().unwrap_or_default()))
    }
}

async fn list(client: &Client, format: Format) -> Result<(), CliError> {
    let listed: Value = client.get("/v1/hangar/tokens").await?;
    if format.json {
        return print_json(&listed);
    }
    let rows: Vec<Vec<String>> = listed["tokens"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|token| {
            let good = match (&token["expired"], &token["expiresAt"]) {
                (Value::Bool(true), _) => "expired".to_owned(),
                (_, Value::Null) => "until revoked".to_owned(),
                (_, end) => time_left(end.as_i64().unwrap_or_default()),
            };
            let [id, scope, role, name] =
                ["id", "scope", "role", "name"].map(|name| cell(&token[name]));
            vec![id, scope, role, good, name]
        })
        .collect();
    print(&table(&["ID", "SCOPE", "ROLE", "GOOD", "NAME"], &rows))
}

/// `12h` and the like, rounded up to whole units.
fn time_left(end_ms: i64) -> String {
    let seconds = (end_ms - now_ms()).max(0) / 1000 + 1;
    let units = [(86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let (unit, name) = units.into_iter().find(|(unit, _)| seconds >= *unit).unwrap_or((1, "s"));
    format!("{}{name} more", (seconds as u64).div_ceil(unit as u64))
}

/// A time such as `90s`, `5m`, `12h` or `30d`.
fn parse_seconds(text: &str) -> Result<u64, String> {
    let odd = || "a time is a number with s, m, h or d behind it".to_owned();
    let unit = match text.chars().last() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 3600,
        Some('d') => 86_400,
        _ => return Err(odd()),
    };
    let count: u64 = text[..text.len() - 1].parse().map_err(|_| odd())?;
    count.checked_mul(unit).filter(|seconds| *seconds > 0).ok_or_else(odd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("12h", 43_200), ("30d", 2_592_000)] {
            assert_eq!(parse_seconds(text), Ok(seconds));
        }
        for odd in ["", "s", "30", "-1s", "0s", "1w", "99999999999999999999s", "\u{fc}"] {
            assert!(parse_seconds(odd).is_err(), "{odd}");
        }
        assert_eq!(time_left(now_ms() + 30 * 86_400_000), "31d more");
        assert_eq!(time_left(0), "1s more");
    }
}
