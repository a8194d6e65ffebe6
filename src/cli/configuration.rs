//! `hangar config`: what a server on this host would be started with.

use super::error::CliError;
use super::options::Format;
use super::table::{print, print_json, table};
use crate::config::sources;
use clap::{Args, Subcommand};
use serde_json::{Map, json};
use std::path::Path;

/// What `hangar config` can do.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every value and where it comes from
    Show(Show),
}

/// Shows the configuration.
#[derive(Debug, Args)]
#[command(after_help = "\
Reads config.toml in the state directory and the variables HANGAR_SECTION__KEY, as `hangar serve`
does. What --set of `hangar serve` would change is shown with the same --set here.

Example:
  sudo HANGAR_BUILD__TIMEOUT_S=600 hangar config show --set log.format=json")]
pub struct Show {
    /// A value as `hangar serve` would be given it; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    format: Format,
}

/// Carries out `hangar config …`.
///
/// # Errors
/// When something in the configuration is not valid.
pub fn run(command: &ConfigCommand, state_dir: &Path) -> Result<u8, CliError> {
    let ConfigCommand::Show(show) = command;
    let resolved =
        sources::resolve(state_dir, std::env::vars(), &show.set).map_err(CliError::new)?;
    if show.format.json {
        let values: Map<_, _> = resolved
            .values
            .into_iter()
            .map(|(key, (value, origin))| {
                (key, json!({ "value": value, "source": origin.to_string() }))
            })
            .collect();
        return print_json(&values.into()).map(|()| 0);
    }
    let rows: Vec<Vec<String>> = resolved
        .values
        .iter()
        .map(|(key, (value, origin))| vec![key.clone(), value.to_string(), origin.to_string()])
        .collect();
    print(&table(&["KEY", "VALUE", "SOURCE"], &rows)).map(|()| 0)
}
