//! `hangar env`: environments, their files, builds and versions.

mod builds;
mod files;
mod settings;
mod versions;

use super::client::Client;
use super::error::CliError;
use super::options::{Format, Server};
use super::table::{cell, outline, print, print_json, table};
use super::terminal::printable;
use super::wire::{Environment, Environments};
use clap::{Args, Subcommand};
use serde_json::Value;

/// What `hangar env` can do.
#[derive(Debug, Subcommand)]
pub enum EnvironmentCommand {
    /// Make an environment without files
    Create(settings::Create),
    /// List the environments
    List(Format),
    /// Show an environment
    Show(Shown),
    /// Change what is written of an environment
    Set(settings::Set),
    /// Replace an environment's source by a project directory or a git repository
    Import(files::Import),
    /// Put files over an environment's source
    Push(files::Push),
    /// List an environment's source, or print a file of it
    Files(files::Files),
    /// Build the next version and follow its log
    Build(builds::BuildOptions),
    /// End a build that runs
    Cancel(builds::LogOptions),
    /// Print the log of a build
    Log(builds::LogOptions),
    /// List the versions of an environment
    Versions(Shown),
    /// Make a finished version the active one
    Activate(Version),
    /// Tell what two versions differ in
    Diff(versions::Diff),
    /// Compare a version with the digests of its manifest
    Verify(Version),
    /// Print the bill of materials of a version (CycloneDX JSON)
    Sbom(builds::LogOptions),
    /// Tell what an environment takes on disk
    Usage(Shown),
    /// List the harnesses whose tasks read an environment
    Harnesses(Shown),
    /// Delete an environment with all its versions, or one version or file of it
    Rm(Rm),
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

/// What to delete.
#[derive(Debug, Args)]
#[command(after_help = "\
The active version and those that sessions read are not deleted: activate another one and delete
the sessions first.")]
pub struct Rm {
    #[command(flatten)]
    environment: Named,
    /// Delete this version only
    #[arg(long, value_name = "NUMBER")]
    version: Option<u32>,
    /// Delete this file or directory of the source only
    #[arg(long, value_name = "PATH", conflicts_with = "version")]
    file: Option<String>,
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
        EnvironmentCommand::Set(set) => set.run(&client).await,
        EnvironmentCommand::Import(import) => import.run(&client).await,
        EnvironmentCommand::Push(push) => push.run(&client).await,
        EnvironmentCommand::Files(files) => files.run(&client).await,
        EnvironmentCommand::Build(build) => build.run(&client).await,
        EnvironmentCommand::Cancel(build) => build.cancel(&client).await,
        EnvironmentCommand::Sbom(version) => version.print_materials(&client).await,
        EnvironmentCommand::Log(log) => log.run(&client).await,
        EnvironmentCommand::Versions(shown) => versions::list(&client, shown).await,
        EnvironmentCommand::Activate(version) => versions::activate(&client, version).await,
        EnvironmentCommand::Diff(diff) => diff.run(&client).await,
        EnvironmentCommand::Verify(version) => versions::verify(&client, version).await,
        EnvironmentCommand::Usage(shown) => versions::usage(&client, shown).await,
        EnvironmentCommand::Harnesses(shown) => harnesses(&client, shown).await,
        EnvironmentCommand::Rm(rm) => rm.run(&client).await,
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

async fn list(client: &Client, format: Format) -> Result<(), CliError> {
    let listed: Value = client.get("/v1/environments").await?;
    if format.json {
        return print_json(&listed);
    }
    let members = ["slug", "status", "version", "id", "description"];
    let rows = rows(&listed["environments"], members);
    print(&table(&["SLUG", "STATUS", "VERSION", "ID", "DESCRIPTION"], &rows))
}

async fn harnesses(client: &Client, shown: &Shown) -> Result<(), CliError> {
    let path = shown.environment.path(client).await?;
    let listed: Value = client.get(&format!("{path}/harnesses")).await?;
    if shown.format.json {
        return print_json(&listed);
    }
    print(&table(&["NAME", "BASE", "ID"], &rows(&listed["harnesses"], ["name", "base", "id"])))
}

/// These members of each object of a list.
fn rows<const N: usize>(list: &Value, members: [&str; N]) -> Vec<Vec<String>> {
    let objects = list.as_array().into_iter().flatten();
    objects.map(|object| members.map(|name| cell(&object[name])).to_vec()).collect()
}

impl Rm {
    async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        client
            .delete(&match (self.version, &self.file) {
                (Some(version), _) => format!("/v1/hangar/environments/{id}/versions/{version}"),
                (None, Some(file)) => files::file_path(&id, file),
                (None, None) => format!("/v1/environments/{id}"),
            })
            .await
    }
}
