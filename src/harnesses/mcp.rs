//! MCP servers of a harness: remote ones, checked when they are written.
//!
//! What a server is asked with (its bearer token, the values of its headers) is stored and never
//! told again. A client that writes back what it read keeps it, as long as the server is at the
//! same place: a credential does not follow an address that somebody changed.

use crate::failure::{Code, Failure};
use http::Uri;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What is told of a value that is secret.
pub const HIDDEN: &str = "********";

const SERVERS_MAX: usize = 100;
const NAME_BYTES_MAX: usize = 64;
const URL_BYTES_MAX: usize = 2048;
const VALUE_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 50;

/// A text that no log shows.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(HIDDEN)
    }
}

/// How a server is spoken to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Streamable HTTP.
    #[default]
    Http,
    /// HTTP with server-sent events.
    Sse,
}

/// A server as it is written and stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    /// What the agent calls it.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// How it is spoken to.
    #[serde(default)]
    pub transport: Transport,
    /// Whether it is contacted at all.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Fields of every request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, Secret>,
    /// A bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Secret>,
}

fn yes() -> bool {
    true
}

impl McpServer {
    /// The server as it is told: with the names of its headers and no value of them.
    #[must_use]
    pub fn told(&self) -> Self {
        let hidden = Secret(HIDDEN.to_owned());
        let headers = self.headers.keys().map(|name| (name.clone(), hidden.clone())).collect();
        Self { headers, auth: self.auth.as_ref().map(|_| hidden), ..self.clone() }
    }

    /// Puts the name into the form that every agent takes.
    fn checked(mut self, stored: &[Self]) -> Result<Self, Failure> {
        self.name = safe_name(&self.name);
        if self.name.is_empty() {
            return Err(invalid("an MCP server has no name"));
        }
        let place = place(&self.url)?;
        let before = stored.iter().find(|known| known.name == self.name);
        let before = before.filter(|known| self::place(&known.url).is_ok_and(|old| old == place));
        if self.headers.len() > HEADERS_MAX {
            return Err(invalid("an MCP server has too many headers"));
        }
        for (name, value) in &mut self.headers {
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(invalid("an MCP server has a header that is none"));
            }
            restore(value, before.and_then(|known| known.headers.get(name)))?;
        }
        self.auth = self.auth.filter(|auth| !auth.0.is_empty());
        if let Some(auth) = &mut self.auth {
            restore(auth, before.and_then(|known| known.auth.as_ref()))?;
        }
        Ok(self)
    }
}

/// Checks the servers that a client wrote, and gives them the secrets that are stored where it sent
/// back what it read.
///
/// # Errors
/// [`Code::InvalidInput`] with what is wrong.
pub fn checked(written: Vec<McpServer>, stored: &[McpServer]) -> Result<Vec<McpServer>, Failure> {
    if written.len() > SERVERS_MAX {
        return Err(invalid("there are too many MCP servers"));
    }
    let servers: Vec<_> =
        written.into_iter().map(|server| server.checked(stored)).collect::<Result<_, _>>()?;
    for (index, server) in servers.iter().enumerate() {
        if servers[..index].iter().any(|other| other.name == server.name) {
            return Err(invalid("two MCP servers have the same name"));
        }
    }
    Ok(servers)
}

/// Letters, digits, `-` and `_`; everything else between them is one `-`.
fn safe_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: Vec<&str> = name.split(|c| !fits(c)).filter(|word| !word.is_empty()).collect();
    let mut name = words.join("-");
    name.truncate(NAME_BYTES_MAX);
    name
}

/// The scheme, host and port of an address that a server can have.
fn place(url: &str) -> Result<(String, String), Failure> {
    let odd = || {
        invalid("an MCP server has an address http://… or https://… without a user and a fragment")
    };
    let uri: Uri = url.parse().map_err(|_| odd())?;
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().ok_or_else(odd)?.as_str();
    let is_fine = matches!(scheme, "http" | "https")
        && url.len() <= URL_BYTES_MAX
        && !authority.is_empty()
        && !authority.contains('@')
        && !url.contains('#');
    match is_fine {
        true => Ok((scheme.to_owned(), authority.to_ascii_lowercase())),
        false => Err(odd()),
    }
}

fn restore(value: &mut Secret, stored: Option<&Secret>) -> Result<(), Failure> {
    if value.0 == HIDDEN {
        let why = "a credential that is not known here has to be written again";
        *value = stored.ok_or_else(|| invalid(why))?.clone();
    }
    let is_odd = value.0.len() > VALUE_BYTES_MAX || value.0.chars().any(char::is_control);
    match is_odd {
        true => Err(invalid("a credential is too long or has control characters")),
        false => Ok(()),
    }
}

fn invalid(why: &str) -> Failure {
    Failure::new(Code::InvalidInput, why).with_param("mcp_servers")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn server(value: Value) -> Result<McpServer, Failure> {
        after(value, &[])
    }

    fn after(value: Value, stored: &[McpServer]) -> Result<McpServer, Failure> {
        let written = serde_json::from_value(value).map_err(|_| invalid("shape"))?;
        checked(vec![written], stored).map(|mut servers| servers.remove(0))
    }

    #[test]
    fn servers_are_remote() {
        let plain = server(json!({ "name": "my vault!", "url": "https://mcp.example.com/x?y" }));
        let plain = plain.unwrap();
        assert_eq!(
            (plain.name.as_str(), plain.transport, plain.enabled),
            ("my-vault", Transport::Http, true)
        );
        let odd = [
            json!({ "name": "m" }),
            json!({ "name": "m", "url": "file:///etc/passwd" }),
            json!({ "name": "m", "url": "/mcp" }),
            json!({ "name": "m", "url": "https://" }),
            json!({ "name": "m", "url": "https://user:word@x" }),
            json!({ "name": "m", "url": "https://x/#y" }),
            json!({ "name": "m", "url": "https://x", "transport": "stdio" }),
            json!({ "name": "m", "url": "https://x", "headers": { "a b": "x" } }),
            json!({ "name": "m", "url": "https://x", "headers": { "a": "x\r\ny: z" } }),
            json!({ "name": "m", "url": "https://x", "enabled": "no" }),
            json!({ "name": "!!", "url": "https://x" }),
        ];
        for odd in odd {
            assert!(server(odd.clone()).is_err(), "{odd}");
        }
        let twice = vec![plain.clone(), plain];
        assert!(checked(twice, &[]).is_err());
    }

    #[test]
    fn a_secret_is_kept_and_never_told() {
        let written = json!({ "name": "m", "url": "https://x:1/a", "auth": "topsecret",
                              "headers": { "X-Key": "topsecret" } });
        let stored = server(written).unwrap();
        assert!(!format!("{stored:?}").contains("topsecret"));
        let told = serde_json::to_value(stored.told()).unwrap();
        assert!(!told.to_string().contains("topsecret"));
        assert_eq!(told["headers"]["X-Key"], HIDDEN);
        // What was read is sent back: the same place keeps it, another one does not get it.
        assert_eq!(after(told.clone(), std::slice::from_ref(&stored)).unwrap(), stored);
        let mut moved = told.clone();
        moved["url"] = json!("https://x:1/b");
        assert!(after(moved.clone(), std::slice::from_ref(&stored)).is_ok());
        for url in ["https://y:1/a", "http://x:1/a", "https://x:2/a"] {
            moved["url"] = json!(url);
            assert!(after(moved.clone(), std::slice::from_ref(&stored)).is_err(), "{url}");
        }
        assert!(server(told).is_err(), "there is none");
    }
}
