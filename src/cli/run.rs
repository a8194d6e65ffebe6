//! `hangar run`: a project directory and a command, and everything in between.

use super::artifacts::{self, Destination};
use super::build::{self, Existing, Log, Outcome, Show, When};
use super::client::Client;
use super::command::Command;
use super::daemon::{self, Ephemeral};
use super::error::{CliError, While};
use super::options::{Server, SessionLimits, parse_seconds, parse_variable};
use super::project::Project;
use super::sessions::request;
use super::signals::Interrupts;
use super::terminal::{note, printable};
use super::wire::{Environment, Environments, Session};
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What `hangar run` is asked for.
#[derive(Debug, Args)]
#[command(after_help = "\
The project is imported and built when it changed since the last run. The command runs in a fresh
session, in the project's directory /env/<name>, which is read-only and holds what the build
installed. It writes to the session's own directory /workspace, named by the variable WORKSPACE;
--artifacts copies what it left there. Its standard input is empty.

Standard output is the command's and nothing else. The exit status is the command's, 128+n when
signal n ended it, 126 or 127 when the program cannot be executed or is not found, and 125 when
hangar itself failed.

Not imported: .git .hg .svn, installed dependencies (node_modules .venv venv) and caches.

Examples:
  sudo hangar run examples/content-studio -- python3 run.py --episode 12
  sudo hangar run --artifacts out --timeout 60 . -- ./render.sh --all
  sudo hangar run --network none --memory 512M --pids 64 . -- npm test")]
pub struct Run {
    /// Copy the files of /workspace to this directory when the command has ended
    #[arg(long, value_name = "DIR")]
    artifacts: Option<PathBuf>,
    /// End the command after this time
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<u64>,
    #[command(flatten)]
    limits: SessionLimits,
    /// A variable for the command; can be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = parse_variable)]
    variables: Vec<(String, String)>,
    /// Where the command runs [default: the project's directory, /env/<name>]
    #[arg(long, value_name = "PATH")]
    cwd: Option<String>,
    /// The environment's name [default: the last part of PROJECT_DIR]
    #[arg(long)]
    name: Option<String>,
    /// Build also when nothing changed
    #[arg(long)]
    rebuild: bool,
    /// Do not show the build's log
    #[arg(long, short)]
    quiet: bool,
    /// The project
    #[arg(value_name = "PROJECT_DIR")]
    project: PathBuf,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Does it all and returns the exit status.
///
/// # Errors
/// When hangar itself fails; nothing was written to standard output then, unless the session
/// broke while its command ran.
pub async fn run(run: &Run, server: &Server) -> Result<u8, CliError> {
    let destination = run.artifacts.as_deref().map(Destination::create).transpose()?;
    let project = Project::open(&run.project)?;
    let mut interrupts = Interrupts::take_over()?;
    let (client, started) = match &server.server {
        Some(_) => (server.client()?, None),
        None => interrupts.unless(daemon::connect(&server.state_dir)).await?,
    };
    let outcome = run.with_server(&client, project, destination.as_ref(), &mut interrupts).await;
    let stopped = match started {
        Some(daemon) => interrupts.unless(end_daemon(&client, daemon)).await,
        None => Ok(()),
    };
    if let (Err(error), Err(stopped)) = (&outcome, &stopped)
        && error.signal().is_none()
    {
        // A server that ended by itself knows why; the request only saw that it broke off.
        note(&stopped.chain());
    }
    let status = outcome?;
    stopped?;
    Ok(status)
}

/// Ends the daemon this run started, unless others have come to use it.
async fn end_daemon(client: &Client, daemon: Ephemeral) -> Result<(), CliError> {
    let listed: Result<Value, _> = client.get("/v1/hangar/sessions").await;
    let used = listed.is_ok_and(|listed| {
        listed["sessions"].as_array().is_some_and(|sessions| !sessions.is_empty())
    });
    match used {
        true => {
            daemon.leave();
            Ok(())
        }
        false => daemon.stop().await,
    }
}

impl Run {
    async fn with_server(
        &self,
        client: &Client,
        project: Project,
        destination: Option<&Destination>,
        interrupts: &mut Interrupts,
    ) -> Result<u8, CliError> {
        let environment = interrupts.unless(self.environment(client, &project)).await?;
        let version = interrupts.unless(self.version(client, &environment, project)).await?;
        // Not given up half-way: a session whose id is not known could not be deleted.
        let session = self.session(client, &environment, version).await?;
        let ran = self.in_session(client, &environment, &session, destination, interrupts).await;
        let deleted =
            interrupts.unless(client.delete(&format!("/v1/sessions/{}", session.id))).await;
        let status = ran?;
        deleted.while_doing(|| format!("session {} was not deleted", session.id))?;
        Ok(status)
    }

    /// The environment of this project: the one an earlier run made, or a new one.
    ///
    /// Two directories can have the same name, so the environment's description holds the path.
    async fn environment(
        &self,
        client: &Client,
        project: &Project,
    ) -> Result<Environment, CliError> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => project.name().ok_or_else(|| {
                CliError::new("the project's directory has no name").hint("--name gives it one")
            })?,
        };
        let path = project.path.to_str().ok_or_else(|| {
            CliError::new(format!("the path {} is not UTF-8", project.path.display()))
        })?;
        let description = format!("hangar run: {path}");
        let known: Environments = client.get("/v1/environments").await?;
        let ours = known.environments.iter().find(|environment| {
            environment.name == name && environment.description.as_ref() == Some(&description)
        });
        if let Some(environment) = ours {
            return Ok(environment.clone());
        }
        let request = json!({ "name": name, "description": description });
        match client.post("/v1/environments", &request).await {
            Err(error) if error.code() == Some("environment_exists") => Err(CliError::new(
                format!(
                    "there is an environment {} already, and it is not of {path}",
                    printable(&name)
                ),
            )
            .hint("--name gives this project another name; `hangar env list` shows whose it is")),
            other => other,
        }
    }

    async fn version(
        &self,
        client: &Client,
        environment: &Environment,
        project: Project,
    ) -> Result<u32, CliError> {
        let (contents, imported) =
            build::import(client, &environment.id, project, None, Existing::Replaced)
                .await
                .while_doing(|| "the project was not imported")?;
        if !self.quiet {
            contents.left_out().iter().for_each(|line| note(line));
        }
        imported.dropped().iter().for_each(|line| note(line));
        let mut log = Log::new(if self.quiet { Show::Nowhere } else { Show::Stderr });
        let when = if self.rebuild { When::Always } else { When::Changed };
        let outcome = build::build(client, &environment.id, when, &[], &mut log).await?;
        if let (Outcome::Built(version), false) = (outcome, self.quiet) {
            note(&format!("built version {version} of {}", printable(&environment.name)));
        }
        Ok(outcome.version())
    }

    async fn session(
        &self,
        client: &Client,
        environment: &Environment,
        version: u32,
    ) -> Result<Session, CliError> {
        let mut request = Map::new();
        request.insert("environment".to_owned(), json!(environment.id));
        request.insert("version".to_owned(), json!(version));
        self.limits.add_to(&mut request);
        client
            .post("/v1/hangar/sessions", &Value::Object(request))
            .await
            .while_doing(|| "no session was started")
    }

    async fn in_session(
        &self,
        client: &Client,
        environment: &Environment,
        session: &Session,
        destination: Option<&Destination>,
        interrupts: &mut Interrupts,
    ) -> Result<u8, CliError> {
        let cwd = self.cwd.as_ref().unwrap_or(&environment.mount);
        let request = request(&self.command, Some(cwd), self.timeout, &self.variables);
        let command = interrupts
            .unless(Command::start(client, &session.id, &request))
            .await
            .while_doing(|| "the command was not started")?;
        let status = command.finish(interrupts, &self.command).await?;
        let copied = match destination {
            Some(destination) => interrupts.unless(copy(client, &session.id, destination)).await,
            None if self.quiet => Ok(()),
            None => interrupts.unless(tell_what_is_lost(client, &session.id)).await,
        };
        match (copied, status) {
            (Err(error), 0) => Err(error),
            (Err(error), _) => {
                note(&error.chain());
                Ok(status)
            }
            (Ok(()), _) => Ok(status),
        }
    }
}

async fn copy(client: &Client, session: &str, destination: &Destination) -> Result<(), CliError> {
    let listed = artifacts::list(client, session).await?;
    for artifact in &listed.files {
        destination.fetch(client, artifact).await?;
    }
    match listed.truncated {
        true => Err(CliError::new("there are more files in /workspace than the server lists")),
        false => Ok(()),
    }
}

/// A user who forgot `--artifacts` should not have to find out by missing the files.
async fn tell_what_is_lost(client: &Client, session: &str) -> Result<(), CliError> {
    let listed = artifacts::list(client, session).await?;
    match listed.files.as_slice() {
        [] => {}
        [file] => {
            let name = printable(&file.path);
            note(&format!("{name} in /workspace was not kept; --artifacts DIR copies it"));
        }
        files => {
            let count = files.len();
            note(&format!(
                "{count} files in /workspace were not kept; --artifacts DIR copies them"
            ));
        }
    }
    Ok(())
}
