//! Options that several commands share.

use super::client::Client;
use super::error::{CliError, While};
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Which server a command talks to.
#[derive(Debug, Clone, Args)]
pub struct Server {
    /// The state directory of the server on this host
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/lib/hangar")]
    pub state_dir: PathBuf,
    /// A server elsewhere, as http://HOST:PORT or https://…; it wants a token
    #[arg(long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// The file that holds the token for --server [default: the variable HANGAR_TOKEN]
    #[arg(long, global = true, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
}

impl Server {
    /// The server these options name.
    ///
    /// # Errors
    /// When the URL or the token is of no use.
    pub fn client(&self) -> Result<Client, CliError> {
        let Some(url) = &self.server else { return Ok(Client::local(&self.state_dir)) };
        let token = match &self.token_file {
            Some(path) => Some(read_token(path)?),
            None => std::env::var("HANGAR_TOKEN").ok().filter(|token| !token.is_empty()),
        };
        Client::remote(url, token.as_deref())
    }
}

fn read_token(path: &Path) -> Result<String, CliError> {
    let text = std::fs::read_to_string(path)
        .while_doing(|| format!("the token in {} cannot be read", path.display()))?;
    Ok(text.trim().to_owned())
}

/// How a command shows what it found.
#[derive(Debug, Clone, Copy, Args)]
pub struct Format {
    /// Print the server's answer as JSON
    #[arg(long)]
    pub json: bool,
}

/// What a session can use up and reach.
#[derive(Debug, Clone, Default, Args)]
pub struct SessionLimits {
    /// What the session can reach: nothing, its own loopback, or the internet through a proxy
    /// [default: loopback]
    #[arg(long, value_name = "NETWORK", value_parser = ["none", "loopback", "egress"])]
    pub network: Option<String>,
    /// Memory of the session, such as 512M or 4G
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Processes and threads of the session
    #[arg(long, value_name = "COUNT")]
    pub pids: Option<u32>,
    /// CPUs of the session, such as 0.5 or 2
    #[arg(long, value_name = "COUNT", value_parser = parse_cpu_millis)]
    pub cpus: Option<u32>,
}

impl SessionLimits {
    /// Adds the options to the request for a session; what was not said is left to the server.
    pub fn add_to(&self, request: &mut Map<String, Value>) {
        if let Some(network) = &self.network {
            request.insert("network".to_owned(), json!(network));
        }
        let mut limits = Map::new();
        let mut limit = |name: &str, value: Option<u64>| {
            value.map(|value| limits.insert(name.to_owned(), json!(value)));
        };
        limit("memory_bytes_max", self.memory);
        limit("pids_max", self.pids.map(u64::from));
        limit("cpu_millis_max", self.cpus.map(u64::from));
        if !limits.is_empty() {
            request.insert("limits".to_owned(), Value::Object(limits));
        }
    }
}

/// Reads a number of bytes with an optional unit of 1024.
fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of bytes such as 512M or 4G");
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().trim_end_matches('b').trim_end_matches('i') {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

/// Reads a number of CPUs as thousandths of one.
fn parse_cpu_millis(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not a number of CPUs such as 0.5 or 2");
    let cpus: f64 = text.parse().map_err(|_| wrong())?;
    match (0.01..=100_000.0).contains(&cpus) {
        true => Ok((cpus * 1000.0).round() as u32),
        false => Err(wrong()),
    }
}

/// Reads a time in seconds as milliseconds.
///
/// # Errors
/// When it is no number of seconds, or none at all.
pub fn parse_seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a number of seconds such as 90 or 0.5");
    let seconds: f64 = text.strip_suffix('s').unwrap_or(text).parse().map_err(|_| wrong())?;
    match (0.001..=1e9).contains(&seconds) {
        true => Ok((seconds * 1000.0).round() as u64),
        false => Err(wrong()),
    }
}

/// Reads a variable for a command.
///
/// # Errors
/// When there is no name or no value.
pub fn parse_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not of the form NAME=VALUE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("1k", 1024),
            ("512M", 512 << 20),
            ("2GiB", 2 << 30),
            ("1mb", 1 << 20),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for bad in ["", "M", "1.5G", "-1", "1X", "99999999999T", "1 G"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_cpu_millis("0.5"), Ok(500));
        assert_eq!(parse_cpu_millis("2"), Ok(2000));
        for bad in ["0", "-1", "NaN", "inf", "x"] {
            assert!(parse_cpu_millis(bad).is_err(), "{bad}");
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
        assert_eq!(parse_seconds("1.5s"), Ok(1500));
        assert_eq!(parse_variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert!(parse_variable("=x").is_err() && parse_variable("x").is_err());
    }

    #[test]
    fn what_is_not_said_is_left_to_the_server() {
        let mut request = Map::new();
        SessionLimits::default().add_to(&mut request);
        assert!(request.is_empty());
        let limits = SessionLimits {
            network: Some("none".to_owned()),
            memory: Some(1 << 20),
            pids: Some(9),
            cpus: Some(500),
        };
        limits.add_to(&mut request);
        let expected = json!({"network": "none",
            "limits": {"memory_bytes_max": 1 << 20, "pids_max": 9, "cpu_millis_max": 500}});
        assert_eq!(Value::Object(request), expected);
    }
}
