//! `hangar session` and `hangar audit`: sessions, their commands and their proof.

use super::client::Client;
use super::command::Command;
use super::environments;
use super::error::{CliError, While};
use super::options::{Format, Server, SessionLimits, parse_seconds, parse_variable};
use super::signals::Interrupts;
use super::table::{cell, outline, print, print_json, table};
use clap::{Args, Subcommand};
use hangar_runtime::ids::SessionId;
use serde_json::{Map, Value, json};

/// What `hangar session` can do.
#[derive(Debug, Subcommand)]
pub enum SessionCommand {
    /// Start a session
    Create(Create),
    /// List the sessions
    List(Format),
    /// Show a session
    Show(Shown),
    /// Run a command in a session
    Exec(Exec),
    /// End a session and delete its files
    Rm(Named),
}

/// Names a session.
#[derive(Debug, Args)]
pub struct Named {
    /// The session's id
    #[arg(value_name = "SESSION", value_parser = SessionId::parse)]
    id: SessionId,
}

/// Names a session to show.
#[derive(Debug, Args)]
pub struct Shown {
    #[command(flatten)]
    session: Named,
    #[command(flatten)]
    format: Format,
}

/// A new session.
#[derive(Debug, Args)]
pub struct Create {
    /// The environment it reads, by id or slug
    #[arg(long, value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// Its version [default: the active one]
    #[arg(long, requires = "environment")]
    version: Option<u32>,
    #[command(flatten)]
    limits: SessionLimits,
    #[command(flatten)]
    format: Format,
}

/// A command for a session.
#[derive(Debug, Args)]
#[command(after_help = "\
Standard output and the exit status are the command's, as for `hangar run`.

Example:
  hangar session exec hsess0123… -- ls -l /workspace")]
pub struct Exec {
    #[command(flatten)]
    session: Named,
    /// End the command after this time
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<u64>,
    /// A variable for the command; can be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,
    /// Where the command runs [default: /workspace]
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Carries out `hangar session …` and returns the exit status.
///
/// # Errors
/// Those of the requests.
pub async fn run(command: &SessionCommand, server: &Server) -> Result<u8, CliError> {
    let client = server.client()?;
    match command {
        SessionCommand::Create(create) => create.run(&client).await?,
        SessionCommand::List(format) => list(&client, *format).await?,
        SessionCommand::Show(shown) => {
            let session = client.get(&format!("/v1/sessions/{}", shown.session.id)).await?;
            show(&session, shown.format)?;
        }
        SessionCommand::Exec(exec) => return exec.run(&client).await,
        SessionCommand::Rm(named) => client.delete(&format!("/v1/sessions/{}", named.id)).await?,
    }
    Ok(0)
}

/// Carries out `hangar audit`.
///
/// # Errors
/// Those of the request.
pub async fn audit(shown: &Shown, server: &Server) -> Result<(), CliError> {
    let path = format!("/v1/hangar/sessions/{}/isolation", shown.session.id);
    show(&server.client()?.get(&path).await?, shown.format)
}

fn show(value: &Value, format: Format) -> Result<(), CliError> {
    match format.json {
        true => print_json(value),
        false => print(&outline(value)),
    }
}

async fn list(client: &Client, format: Format) -> Result<(), CliError> {
    let listed: Value = client.get("/v1/hangar/sessions").await?;
    if format.json {
        return print_json(&listed);
    }
    let rows: Vec<Vec<String>> = listed["sessions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|s| ["id", "status", "environment", "version"].map(|n| cell(&s[n])).to_vec())
        .collect();
    print(&table(&["ID", "STATUS", "ENVIRONMENT", "VERSION"], &rows))
}

impl Create {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let mut request = Map::new();
        if let Some(name) = &self.environment {
            let id = environments::find(client, name).await?.id;
            request.insert("environment".to_owned(), json!(id));
        }
        if let Some(version) = self.version {
            request.insert("version".to_owned(), json!(version));
        }
        self.limits.add_to(&mut request);
        show(&client.post("/v1/hangar/sessions", &Value::Object(request)).await?, self.format)
    }
}

impl Exec {
    async fn run(&self, client: &Client) -> Result<u8, CliError> {
        let mut interrupts = Interrupts::take_over()?;
        let request = request(&self.command, self.cwd.as_deref(), self.timeout, &self.variables);
        let command = Command::start(client, self.session.id.as_str(), &request)
            .await
            .while_doing(|| "the command was not started")?;
        command.finish(&mut interrupts, &self.command).await
    }
}

/// The request to run a command; what was not said is left to the server.
#[must_use]
pub fn request(
    command: &[String],
    cwd: Option<&str>,
    timeout_ms: Option<u64>,
    variables: &[(String, String)],
) -> Value {
    let mut request = Map::new();
    request.insert("command".to_owned(), json!(command));
    if let Some(cwd) = cwd {
        request.insert("cwd".to_owned(), json!(cwd));
    }
    if let Some(timeout) = timeout_ms {
        request.insert("timeout_ms".to_owned(), json!(timeout));
    }
    if !variables.is_empty() {
        let variables: Map<String, Value> =
            variables.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        request.insert("env".to_owned(), Value::Object(variables));
    }
    Value::Object(request)
}
