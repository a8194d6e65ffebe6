//! What is written of an environment.

use super::{Named, show};
use crate::cli::client::Client;
use crate::cli::error::CliError;
use crate::cli::options::Format;
use clap::Args;
use serde_json::{Map, Value, json};

/// A new environment.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  hangar env create 'Content Studio' --entry 'python3 run.py --episode <id>' --apt ffmpeg")]
pub struct Create {
    /// Its name; sessions see it at /env/<slug of the name>
    name: String,
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    format: Format,
}

/// Changes of an environment.
#[derive(Debug, Args)]
#[command(after_help = "\
What is not named stays as it is. The next build installs what is declared then.

Example:
  hangar env set content-studio --pip numpy==2.3.1 --pip pillow --keep-last 3
  hangar env set content-studio --apt ''        # declares no Debian package any more")]
pub struct Set {
    #[command(flatten)]
    environment: Named,
    /// Another name; the path in sessions stays
    #[arg(long = "name", value_name = "NAME")]
    renamed: Option<String>,
    /// How many finished versions are kept, or `default`
    #[arg(long, value_name = "COUNT", value_parser = parse_keep_last)]
    keep_last: Option<KeepLast>,
    #[command(flatten)]
    written: Written,
    #[command(flatten)]
    format: Format,
}

/// What an owner writes.
#[derive(Debug, Args)]
struct Written {
    /// What it is for
    #[arg(long)]
    description: Option<String>,
    /// The command an agent is told to start with
    #[arg(long)]
    entry: Option<String>,
    /// A Python package to install beside the manifests; can be repeated
    #[arg(long, value_name = "SPEC")]
    pip: Option<Vec<String>>,
    /// A Node package to install beside the manifests; can be repeated
    #[arg(long, value_name = "SPEC")]
    npm: Option<Vec<String>>,
    /// A Debian package to unpack beside the project; can be repeated
    #[arg(long, value_name = "PACKAGE")]
    apt: Option<Vec<String>>,
    /// The minor version of Python, such as 3.12
    #[arg(long, value_name = "VERSION")]
    python: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeepLast(Option<u32>);

fn parse_keep_last(text: &str) -> Result<KeepLast, String> {
    match (text, text.parse()) {
        ("default", _) => Ok(KeepLast(None)),
        (_, Ok(count @ 1..)) => Ok(KeepLast(Some(count))),
        _ => Err(format!("{text:?} is neither a number of versions nor `default`")),
    }
}

impl Written {
    fn request(&self) -> Map<String, Value> {
        let mut request = Map::new();
        for (name, value) in [("description", &self.description), ("entry", &self.entry)] {
            if let Some(value) = value {
                request.insert(name.to_owned(), json!(value));
            }
        }
        let mut packages = Map::new();
        for (name, specs) in [("pip", &self.pip), ("npm", &self.npm), ("apt", &self.apt)] {
            if let Some(specs) = specs {
                let named: Vec<_> = specs.iter().filter(|spec| !spec.is_empty()).collect();
                packages.insert(name.to_owned(), json!(named));
            }
        }
        if !packages.is_empty() {
            request.insert("packages".to_owned(), Value::Object(packages));
        }
        if let Some(python) = &self.python {
            request.insert("runtime".to_owned(), json!({ "python": python }));
        }
        request
    }
}

impl Create {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let mut request = self.written.request();
        request.insert("name".to_owned(), json!(self.name));
        show(&client.post("/v1/environments", &Value::Object(request)).await?, self.format)
    }
}

impl Set {
    pub(super) async fn run(&self, client: &Client) -> Result<(), CliError> {
        let id = self.environment.find(client).await?.id;
        if let Some(KeepLast(count)) = self.keep_last {
            let path = format!("/v1/hangar/environments/{id}/retention");
            let _kept: Value = client.put(&path, &json!({ "keep_last": count })).await?;
        }
        let mut request = self.written.request();
        if let Some(name) = &self.renamed {
            request.insert("name".to_owned(), json!(name));
        }
        let path = format!("/v1/environments/{id}");
        show(&client.put(&path, &Value::Object(request)).await?, self.format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_stays_and_an_empty_name_clears() {
        let written = Written {
            description: None,
            entry: Some("run".to_owned()),
            pip: Some(vec!["numpy".to_owned()]),
            npm: None,
            apt: Some(vec![String::new()]),
            python: Some(String::new()),
        };
        assert_eq!(
            Value::Object(written.request()),
            json!({ "entry": "run", "packages": { "pip": ["numpy"], "apt": [] },
                    "runtime": { "python": "" } })
        );
    }

    #[test]
    fn versions_are_kept_by_number_or_by_default() {
        assert_eq!(parse_keep_last("3"), Ok(KeepLast(Some(3))));
        assert_eq!(parse_keep_last("default"), Ok(KeepLast(None)));
        for bad in ["0", "-1", "all"] {
            assert!(parse_keep_last(bad).is_err(), "{bad}");
        }
    }
}
