//! `hangar env`: environments, their builds and versions.

use super::build::{self, Log, Outcome, Show, When};
use super::client::Client;
use super::error::{CliError, While};
use super::options::{Format, Server};
use super::project::Project;
use super::table::{cell, outline, print, print_json, table};
use super::terminal::{note, printable};
use super::wire::{Build, Environment, Environments};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// What `hangar env` can do.
#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Make an environment without files
    Create(Create),
    /// List the environments
    List(Format),
    /// Show an environment
    Show(Shown),
    /// Replace an environment's source by a project directory
    Import(Import),
    /// Build the next version and follow its log
    Build(BuildOptions),
    /// Print the log of a build
    Log(LogOptions),
    /// List the versions of an environment
    Versions(Shown),
    /// Make a finished version the active one
    Activate(Version),
    /// Compare a version with the digests of its manifest
    Verify(Version),
    /// Delete an environment with all its versions
    Rm(Named),
}

/// Names an environment.
#[derive(Debug, Args)]
pub struct Named {
    /// The environment, by id or by slug
    #[arg(value_name = "ENVIRONMENT")]
    name: String,
}

/// Names an environment to show.
#[derive(Debug, Args)]
pub struct Shown {
    #[command(flatten)]
    environment: Named,
    #[command(flatten)]
    format: Format,
}

/// Names a version of an environment.
#[derive(Debug, Args)]
pub struct Version {
    #[command(flatten)]
    environment: Named,
    /// The number of the version
    version: u32,
    #[command(flatten)]
    format: Format,
}

/// A new environment.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  hangar env create 'Content Studio' --entry 'python3 run.py --episode <id>'")]
pub struct Create {
    /// Its name; sessions see it at /env/<slug of the name>
    name: String,
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// The command an agent is told to start with
    #[arg(long)]
    entry: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// A project to import.
#[derive(Debug, Args)]
#[command(after_help = "\
Not imported: .git .hg .svn, installed dependencies (node_modules .venv venv) and caches.")]
pub struct Import {
    #[command(flatten)]
    environment: Named,
    /// The project
    #[arg(value_name = "PROJECT_DIR")]
    project: PathBuf,
}

/// A build to start.
#[derive(Debug, Args)]
pub struct BuildOptions {
    #[command(flatten)]
    environment: Named,
    /// Build only when something changed since the active version
    #[arg(long)]
    if_changed: bool,
    /// Do not wait for the end
    #[arg(long)]
    detach: bool,
}

/// A log to print.
#[derive(Debug, Args)]
pub struct LogOptions {
    #[command(flatten)]
    environment: Named,
    /// The number of the build [default: the last one]
    version: Option<u32>,
}

/// Carries out `hangar env …`.
///
/// # Errors
/// Those of the requests.
pub async fn run(command: &EnvironmentCommand, server: &Server) -> Result<(), CliError> {
    let client = server.client()?;
    match command {
        EnvironmentCommand::Create(create) => create.run(&client).await,
        EnvironmentCommand::List(format) => list(&client, *format).await,
        EnvironmentCommand::Show(shown) => {
            let environment: Value = client.get(&shown.environment.path(&client).await?).await?;
            show(&environment, shown.format)
        }
        EnvironmentCommand::Import(import) => import.run(&client).await,
        EnvironmentCommand::Build(build) => build.run(&client).await,
        EnvironmentCommand::Log(log) => log.run(&client).await,
        EnvironmentCommand::Versions(shown) => versions(&client, shown).await,
        EnvironmentCommand::Activate(version) => {
            let path = version.environment.path(&client).await?;
            let path = format!("{path}/versions/{}/activate", version.version);
            show(&client.post(&path, &json!({})).await?, version.format)
        }
        EnvironmentCommand::Verify(version) => {
            let id = version.environment.find(&client).await?.id;
            let path = format!("/v1/hangar/environments/{id}/versions/{}/verify", version.version);
            verified(&client.post(&path, &json!({})).await?, version.format)
        }
        EnvironmentCommand::Rm(named) => client.delete(&named.path(&client).await?).await,
    }
}

impl Named {
    /// Looks the environment up by its id or slug.
    ///
    /// # Errors
    /// When there is none.
    pub async fn find(&self, client: &Client) -> Result<Environment, CliError> {
        find(client, &self.name).await
    }

    async fn path(&self, client: &Client) -> Result<String, CliError> {
        Ok(format!("/v1/environments/{}", self.find(client).await?.id))
    }
}

/// Looks an environment up by its id or slug.
///
/// # Errors
/// When there is none.
pub async fn find(client: &Client, name: &str) -> Result<Environment, CliError> {
    let known: Environments = client.get("/v1/environments").await?;
    known
        .environments
        .into_iter()
        .find(|environment| environment.id == name || environment.slug == name)
        .ok_or_else(|| {
            CliError::new(format!("there is no environment {}", printable(name)))
                .hint("`hangar env list` shows those there are")
        })
}

fn show(value: &Value, format: Format) -> Result<(), CliError> {
    match format.json {
        true => print_json(value),
        false => print(&outline(value)),
    }
}

fn verified(answer: &Value, format: Format) -> Result<(), CliError> {
    show(answer, format)?;
    match answer["intact"].as_bool() {
        Some(true) => Ok(()),
        _ => Err(CliError::new("the version is not what was built")),
    }
}

async fn list(client: &Client, format: Format) -> Result<(), CliError> {
    let listed: Value = client.get("/v1/environments").await?;
    if format.json {
        return print_json(&listed);
    }
    let rows: Vec<Vec<String>> = listed["environments"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| ["slug", "status", "version", "id", "description"].map(|n| cell(&e[n])).to_vec())
        .collect();
    print(&table(&["SLUG", "STATUS", "VERSION", "ID", "DESCRIPTION"], &rows))
}

async fn versions(client: &Client, shown: &Shown) -> Result<(), CliError> {
    let path = shown.environment.path(client).await?;
    let listed: Value = client.get(&format!("{path}/versions")).await?;
    if shown.format.json {
        return print_json(&listed);
    }
    let active = &listed["active"];
    let rows: Vec<Vec<String>> = listed["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|v| {
            let active = if v["version"] == *active { "*" } else { "" };
            let mut row = vec![active.to_owned()];
            row.extend(
                ["version", "status", "files", "bytes", "packages", "error"].map(|n| cell(&v[n])),
            );
            row
        })
        .collect();
    print(&table(&["", "VERSION", "STATUS", "FILES", "BYTES", "PACKAGES", "ERROR"], &rows))
}

impl Create {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let mut request = Map::new();
        request.insert("name".to_owned(), json!(self.name));
        for (name, value) in [("description", &self.description), ("entry", &self.entry)] {
            if let Some(value) = value {
                request.insert(name.to_owned(), json!(value));
            }
        }
        show(&client.post("/v1/environments", &Value::Object(request)).await?, self.format)
    }
}

impl Import {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let environment = self.environment.find(client).await?;
        let project = Project::open(&self.project)?;
        let (contents, imported) = build::import(client, &environment.id, project)
            .await
            .while_doing(|| "the project was not imported")?;
        contents.left_out().iter().for_each(|line| note(line));
        imported.dropped().iter().for_each(|line| note(line));
        print(&format!("{} files, {} bytes\n", imported.count, imported.bytes))
    }
}

impl BuildOptions {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        let when = if self.if_changed { When::Changed } else { When::Always };
        if self.detach {
            let body = json!({ "if_changed": when == When::Changed });
            let started: Build =
                client.post(&format!("/v1/environments/{id}/build"), &body).await?;
            return print(&format!(
                "version {}: {}\n",
                started.version,
                printable(&started.status)
            ));
        }
        match build::build(client, &id, when, &mut Log::new(Show::Stderr)).await? {
            Outcome::Built(version) => print(&format!("version {version}: built\n")),
            Outcome::Unchanged(version) => print(&format!("version {version}: unchanged\n")),
        }
    }
}

impl LogOptions {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let environment = self.environment.find(client).await?;
        let version = match self.version {
            Some(version) => version,
            None => last_build(client, &environment).await?,
        };
        build::follow_log(client, &environment.id, version, &mut Log::new(Show::Stdout)).await
    }
}

async fn last_build(client: &Client, environment: &Environment) -> Result<u32, CliError> {
    let listed: Value =
        client.get(&format!("/v1/environments/{}/versions", environment.id)).await?;
    let numbers = listed["versions"].as_array().into_iter().flatten();
    numbers
        .filter_map(|version| u32::try_from(version["version"].as_u64()?).ok())
        .max()
        .ok_or_else(|| CliError::new("nothing was built yet"))
}
