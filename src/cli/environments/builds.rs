//! Builds of an environment and their logs.

use super::Named;
use crate::cli::build::{self, Log, Outcome, Show, When};
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::table::{print, print_json};
use crate::cli::terminal::printable;
use crate::cli::wire::{Build, Environment};
use clap::Args;
use serde_json::{Value, json};

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
    /// A variable of the installers and of setup.sh; can be repeated
    #[arg(long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    variables: Vec<(String, String)>,
}

fn variable(text: &str) -> Result<(String, String), &'static str> {
    let (name, value) = text.split_once('=').ok_or("it is not of the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A build, or the version it makes.
#[derive(Debug, Args)]
pub struct LogOptions {
    #[command(flatten)]
    environment: Named,
    /// The number of the build or version [default: the last one]
    version: Option<u32>,
}

impl BuildOptions {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        let when = if self.if_changed { When::Changed } else { When::Always };
        if self.detach {
            let body = build::request(when, &self.variables);
            let started: Build =
                client.post(&format!("/v1/environments/{id}/build"), &body).await?;
            return print(&format!(
                "version {}: {}\n",
                started.version,
                printable(&started.status)
            ));
        }
        match build::build(client, &id, when, &self.variables, &mut Log::new(Show::Stderr)).await? {
            Outcome::Built(version) => print(&format!("version {version}: built\n")),
            Outcome::Unchanged(version) => print(&format!("version {version}: unchanged\n")),
        }
    }
}

impl LogOptions {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let (environment, version) = self.find(client).await?;
        build::follow_log(client, &environment.id, version, &mut Log::new(Show::Stdout)).await
    }

    pub(super) async fn cancel(&self, client: &Client) -> Result<(), CliError> {
        let (environment, version) = self.find(client).await?;
        let path = format!("/v1/hangar/environments/{}/builds/{version}/cancel", environment.id);
        let ended: Build = client.post(&path, &json!({})).await?;
        let reason = ended.error.filter(|reason| !reason.is_empty());
        let reason = reason.map_or(String::new(), |reason| format!(" ({})", printable(&reason)));
        print(&format!("version {version}: {}{reason}\n", printable(&ended.status)))
    }

    pub(super) async fn print_materials(&self, client: &Client) -> Result<(), CliError> {
        let (environment, version) = self.find(client).await?;
        let path = format!("/v1/hangar/environments/{}/versions/{version}/sbom", environment.id);
        let materials: Value = client.get(&path).await?;
        print_json(&materials)
    }

    async fn find(&self, client: &Client) -> Result<(Environment, u32), CliError> {
        let environment = self.environment.find(client).await?;
        let version = match self.version {
            Some(version) => version,
            None => last_build(client, &environment).await?,
        };
        Ok((environment, version))
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
