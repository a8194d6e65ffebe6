//! The source of an environment: imported whole, pushed in parts, listed.

use super::Named;
use crate::cli::build::{self, Existing};
use crate::cli::client::{Body, Client};
use crate::cli::error::{CliError, While};
use crate::cli::frames::Stream;
use crate::cli::options::Format;
use crate::cli::output::Output;
use crate::cli::progress::{Progress, human};
use crate::cli::project::Project;
use crate::cli::table::{cell, print, print_json, table};
use crate::cli::terminal::note;
use crate::cli::wire::Imported;
use crate::environments::source_path::encode_into;
use clap::Args;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tokio_util::io::ReaderStream;

/// A project to import.
#[derive(Debug, Args)]
#[command(after_help = "\
Not imported of a directory: .git .hg .svn, installed dependencies (node_modules .venv venv) and
caches. A repository is cloned by the server, in a session of its own.

Example:
  hangar env import content-studio ./content-studio
  hangar env import content-studio --git https://example.org/content-studio.git --ref main")]
pub struct Import {
    #[command(flatten)]
    environment: Named,
    /// The project
    #[arg(value_name = "PROJECT_DIR", required_unless_present = "git")]
    project: Option<PathBuf>,
    /// A repository instead of a directory
    #[arg(long, value_name = "URL", conflicts_with = "project")]
    git: Option<String>,
    /// The branch or tag [default: the repository's own]
    #[arg(long = "ref", value_name = "REF", requires = "git")]
    reference: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// Files to put into a source.
#[derive(Debug, Args)]
#[command(after_help = "\
What is there stays, but for the files that are pushed.

Example:
  hangar env push content-studio run.py
  hangar env push content-studio ./brand --to assets/brand")]
pub struct Push {
    #[command(flatten)]
    environment: Named,
    /// A file, or a directory with all that is in it
    #[arg(value_name = "PATH")]
    from: PathBuf,
    /// Where it goes in the source [default: a file by its name, a directory to the root]
    #[arg(long, value_name = "PATH")]
    to: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// A source to look at.
#[derive(Debug, Args)]
pub struct Files {
    #[command(flatten)]
    environment: Named,
    /// The file to print, byte for byte [default: list all]
    #[arg(value_name = "PATH", conflicts_with = "json")]
    file: Option<String>,
    #[command(flatten)]
    format: Format,
}

/// The path of a file of a source in the API.
pub(super) fn file_path(id: &str, file: &str) -> String {
    let mut path = format!("/v1/environments/{id}/files/");
    encode_into(&mut path, file.as_bytes());
    path
}

impl Import {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        let imported = match (&self.project, &self.git) {
            (Some(project), _) => import(client, &id, project, None, Existing::Replaced).await?,
            (None, Some(url)) => self.clone_into(client, &id, url).await?,
            (None, None) => return Err(CliError::new("nothing to import is named")),
        };
        told(&imported, self.format)
    }

    async fn clone_into(&self, client: &Client, id: &str, url: &str) -> Result<Imported, CliError> {
        note("the server clones the repository; a large one takes minutes");
        let mut git = json!({ "url": url });
        if let Some(reference) = &self.reference {
            git["ref"] = json!(reference);
        }
        let body = json!({ "git": git, "replace": true });
        client
            .post(&format!("/v1/environments/{id}/import"), &body)
            .await
            .while_doing(|| "the repository was not imported")
    }
}

async fn import(
    client: &Client,
    id: &str,
    directory: &Path,
    below: Option<String>,
    existing: Existing,
) -> Result<Imported, CliError> {
    let project = Project::open(directory)?;
    let (contents, imported) = build::import(client, id, project, below, existing)
        .await
        .while_doing(|| "the files were not imported")?;
    contents.left_out().iter().for_each(|line| note(line));
    Ok(imported)
}

fn told(imported: &Imported, format: Format) -> Result<(), CliError> {
    imported.dropped().iter().chain(&imported.hints()).for_each(|line| note(line));
    if format.json {
        let whole =
            serde_json::to_value(imported).while_doing(|| "the answer cannot be printed")?;
        return print_json(&whole);
    }
    print(&format!("{} files, {} bytes\n", imported.count, imported.bytes))
}

impl Push {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        let what = || format!("{} cannot be read", self.from.display());
        let metadata = tokio::fs::metadata(&self.from).await.while_doing(what)?;
        if metadata.is_dir() {
            let below = self.to.clone();
            let imported = import(client, &id, &self.from, below, Existing::Kept).await?;
            return told(&imported, self.format);
        }
        let name = self.from.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let to = self.to.clone().or(name).ok_or_else(|| {
            CliError::new("the file has no name to go by").hint("--to gives it one")
        })?;
        let file = tokio::fs::File::open(&self.from).await.while_doing(what)?;
        let mut progress = Progress::new("sent");
        let pieces = ReaderStream::with_capacity(file, 256 << 10).map(move |piece| {
            piece.map(|bytes| {
                progress.add(bytes.len() as u64);
                Frame::data(bytes)
            })
        });
        let body: Body = BodyExt::boxed(StreamBody::new(pieces));
        let written: Value = client
            .put_file(&file_path(&id, &to), body)
            .await
            .while_doing(|| format!("{to} was not written"))?;
        if self.format.json {
            return print_json(&written);
        }
        print(&format!("{}: {} bytes\n", cell(&written["path"]), cell(&written["bytes"])))
    }
}

impl Files {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        if let Some(file) = &self.file {
            return print_file(client, &file_path(&id, file)).await;
        }
        let listed: Value = client.get(&format!("/v1/environments/{id}/files")).await?;
        if self.format.json {
            return print_json(&listed);
        }
        let rows: Vec<Vec<String>> = listed["entries"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|entry| {
                let slash = if entry["dir"] == true { "/" } else { "" };
                let size =
                    if entry["dir"] == true { "-".to_owned() } else { cell(&entry["bytes"]) };
                vec![size, format!("{}{slash}", cell(&entry["path"]))]
            })
            .collect();
        print(&table(&["BYTES", "PATH"], &rows))?;
        let bytes = listed["bytes"].as_u64().unwrap_or(0);
        note(&format!("{} files, {}", cell(&listed["count"]), human(bytes)));
        Ok(())
    }
}

async fn print_file(client: &Client, path: &str) -> Result<(), CliError> {
    let mut body = client.stream(path).await?.into_body();
    let mut output = Output::of_this_process()?;
    while let Some(frame) = body.frame().await {
        if let Ok(bytes) = frame.while_doing(|| "the file was cut off")?.into_data() {
            output.write(Stream::Stdout, bytes.to_vec()).await?;
        }
    }
    Ok(())
}
