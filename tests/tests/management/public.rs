//! A server that clients reach by a port, each with a token of its own.

use hangar_tests::checked::Checked;
use hangar_tests::http::{Answer, exchange};
use serde_json::{Value, json};
use std::net::{TcpListener, TcpStream};

/// A server and its address.
pub struct Public {
    pub server: Checked,
    pub address: String,
}

impl Public {
    pub fn start() -> Self {
        Self::configured("")
    }

    pub fn configured(config: &str) -> Self {
        let address = free_address();
        Self { server: Checked::configured(config, &["--listen", &address]), address }
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    /// Asks with a token or without.
    pub fn call(&self, token: &str, method: &str, path: &str, body: &Value) -> Answer {
        let bearer = format!("Bearer {token}");
        let mut fields = vec![("Content-Type", "application/json")];
        if !token.is_empty() {
            fields.push(("Authorization", &bearer));
        }
        let body = if body.is_null() { String::new() } else { body.to_string() };
        exchange(self.connect(), method, path, &fields, body.as_bytes()).unwrap()
    }

    pub fn get(&self, token: &str, path: &str) -> Answer {
        self.call(token, "GET", path, &Value::Null)
    }

    /// Makes a token of a scope and a role; the answer is what its bearer sends.
    pub fn token(&self, scope: &str, role: &str) -> String {
        let made = self
            .server
            .daemon()
            .post("/v1/hangar/tokens", &json!({ "scope": scope, "role": role }));
        made["token"].as_str().unwrap().to_owned()
    }
}

/// An address that nobody listens on now.
pub fn free_address() -> String {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    format!("127.0.0.1:{port}")
}
