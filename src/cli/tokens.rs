//! `hangar token`: bearer tokens for clients elsewhere.

use super::client::Client;
use super::error::CliError;
use super::options::{Format, Server};
use super::table::{cell, print, print_json, table};
use super::terminal::note;
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
  sudo hangar token create ci --scope team-a > token")]
pub struct Create {
    /// Whom or what it is for
    name: String,
    /// What its bearer sees
    #[arg(long, default_value = "default")]
    scope: String,
    /// Its bearer may look and change nothing
    #[arg(long)]
    read_only: bool,
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
        let request =
            json!({ "name": self.name, "scope": self.scope, "read_only": self.read_only });
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
        .map(|token| ["id", "scope", "read_only", "name"].map(|name| cell(&token[name])).to_vec())
        .collect();
    print(&table(&["ID", "SCOPE", "READ ONLY", "NAME"], &rows))
}
