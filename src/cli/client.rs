//! The HTTP/1.1 client: every command but `serve` and `egress` talks to a server through it.

use super::error::{ApiCode, CliError, While};
use super::secured;
use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited, combinators::BoxBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

/// What is sent with a request.
pub type Body = BoxBody<Bytes, io::Error>;

/// The longest answer that is held in memory.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// The socket below a state directory; the peer's uid is the credential.
    Socket(PathBuf),
    /// `host:port`, with a token as the credential.
    Tcp(String),
    /// The same by TLS.
    Tls(String),
}

/// A server to ask. Each request makes a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    endpoint: Endpoint,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// The server that runs on a state directory of this host.
    #[must_use]
    pub fn local(state_dir: &Path) -> Self {
        let socket = state_dir.join("run/api.sock");
        Self { endpoint: Endpoint::Socket(socket), authorization: None }
    }

    /// The server at `http://host:port` or `https://host:port`.
    ///
    /// # Errors
    /// When the address is not of this form, or the token is not one that fits a header.
    pub fn remote(server: &str, token: Option<&str>) -> Result<Self, CliError> {
        let (scheme, rest) = server.split_once("://").unwrap_or_default();
        let known = ["http", "https"].contains(&scheme).then_some(rest);
        let authority = known
            .map(|rest| rest.trim_end_matches('/'))
            .filter(|rest| !rest.is_empty() && !rest.contains(['/', '@', '?', '#']))
            .ok_or_else(|| {
                let why = format!("{server:?} is not of the form http://host:port");
                CliError::new(why).hint("with https:// the server is asked by TLS")
            })?;
        let has_port = authority.rsplit(']').next().is_some_and(|end| end.contains(':'));
        let endpoint = match has_port {
            true => authority.to_owned(),
            false => format!("{authority}:{}", if scheme == "https" { 443 } else { 80 }),
        };
        let endpoint = match scheme {
            "https" => Endpoint::Tls(endpoint),
            _ => Endpoint::Tcp(endpoint),
        };
        let authorization = token
            .map(|token| HeaderValue::try_from(format!("Bearer {token}")))
            .transpose()
            .map_err(|_| CliError::new("the token has characters no token has"))?
            .map(|mut value| {
                value.set_sensitive(true);
                value
            });
        Ok(Self { endpoint, authorization })
    }

    /// Whether a server takes connections.
    ///
    /// # Errors
    /// Those of `connect`.
    pub async fn probe(&self) -> io::Result<()> {
        match &self.endpoint {
            Endpoint::Socket(path) => UnixStream::connect(path).await.map(drop),
            Endpoint::Tcp(address) | Endpoint::Tls(address) => {
                TcpStream::connect(address).await.map(drop)
            }
        }
    }

    /// Asks and takes a JSON answer.
    ///
    /// # Errors
    /// When there is no server, or it refuses, or its answer is not of this shape.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        self.json(Method::GET, path, None).await
    }

    /// Sends a JSON body and takes a JSON answer.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, CliError> {
        self.json(Method::POST, path, Some(body)).await
    }

    /// Writes a JSON body and takes a JSON answer.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn put<T: DeserializeOwned>(&self, path: &str, body: &Value) -> Result<T, CliError> {
        self.json(Method::PUT, path, Some(body)).await
    }

    /// Writes a file of any length and takes a JSON answer.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn put_file<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Body,
    ) -> Result<T, CliError> {
        let kind = Some(HeaderValue::from_static("application/octet-stream"));
        let response = self.send(Method::PUT, path, kind, body).await?;
        decode(path, response).await
    }

    /// Deletes something and takes no interest in the answer.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn delete(&self, path: &str) -> Result<(), CliError> {
        self.send(Method::DELETE, path, None, empty()).await.map(drop)
    }

    /// Asks for a body of any length, which is read as it comes.
    ///
    /// # Errors
    /// When there is no server, or it refuses.
    pub async fn stream(&self, path: &str) -> Result<Response<Incoming>, CliError> {
        self.send(Method::GET, path, None, empty()).await
    }

    /// Sends a body of any length and takes a JSON answer.
    ///
    /// # Errors
    /// As for [`Client::get`].
    pub async fn upload<T: DeserializeOwned>(
        &self,
        path: &str,
        content_type: &'static str,
        body: Body,
    ) -> Result<T, CliError> {
        let kind = Some(HeaderValue::from_static(content_type));
        let response = self.send(Method::POST, path, kind, body).await?;
        decode(path, response).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, CliError> {
        let response = match body {
            Some(body) => {
                let kind = HeaderValue::from_static("application/json");
                let body = Full::from(body.to_string()).map_err(|never| match never {}).boxed();
                self.send(method, path, Some(kind), body).await?
            }
            None => self.send(method, path, None, empty()).await?,
        };
        decode(path, response).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: Option<HeaderValue>,
        body: Body,
    ) -> Result<Response<Incoming>, CliError> {
        let host = match &self.endpoint {
            Endpoint::Socket(_) => "localhost",
            Endpoint::Tcp(address) | Endpoint::Tls(address) => address,
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, host)
            .body(body)
            .while_doing(|| format!("{path} is not a path of the API"))?;
        let fields: [(HeaderName, Option<HeaderValue>); 2] = [
            (header::CONTENT_TYPE, content_type),
            (header::AUTHORIZATION, self.authorization.clone()),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                request.headers_mut().insert(name, value);
            }
        }
        let response = match &self.endpoint {
            Endpoint::Socket(path) => {
                exchange(UnixStream::connect(path).await.map_err(|e| self.no_server(e))?, request)
                    .await?
            }
            Endpoint::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(|e| self.no_server(e))?;
                exchange(stream, request).await?
            }
            Endpoint::Tls(address) => {
                let stream = secured::connect(address).await.map_err(|e| self.no_server(e))?;
                exchange(stream, request).await?
            }
        };
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refusal(response).await),
        }
    }

    /// Why there is no connection, and what to do about it.
    #[must_use]
    pub fn no_server(&self, error: io::Error) -> CliError {
        let denied = error.kind() == io::ErrorKind::PermissionDenied;
        match &self.endpoint {
            Endpoint::Socket(path) => {
                let error = CliError::caused(format!("no server at {}", path.display()), error);
                error.hint(match denied {
                    true => "root and the group of the API may use the socket: try sudo",
                    false => {
                        "`sudo hangar serve` starts one; --state-dir or --server names another"
                    }
                })
            }
            Endpoint::Tcp(address) => CliError::caused(format!("no server at {address}"), error),
            Endpoint::Tls(address) => {
                CliError::caused(format!("no server at {address} that is trusted"), error)
                    .hint("SSL_CERT_FILE names the certificates to trust instead of the host's")
            }
        }
    }
}

fn empty() -> Body {
    Full::default().map_err(|never| match never {}).boxed()
}

async fn exchange<S>(stream: S, request: Request<Body>) -> Result<Response<Incoming>, CliError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    const BROKEN: &str = "the server broke off";
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.while_doing(|| BROKEN)?;
    tokio::spawn(async move {
        // Its error is seen by the request and by the reader of the body.
        let _ended = connection.await;
    });
    sender.send_request(request).await.while_doing(|| BROKEN)
}

async fn whole(response: Response<Incoming>) -> Result<Bytes, CliError> {
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX);
    Ok(body.collect().await.while_doing(|| "the answer was cut off")?.to_bytes())
}

async fn decode<T: DeserializeOwned>(
    path: &str,
    response: Response<Incoming>,
) -> Result<T, CliError> {
    let bytes = whole(response).await?;
    serde_json::from_slice(&bytes)
        .while_doing(|| format!("the answer to {path} is not what this hangar expects"))
}

/// The error in an answer, in the protocol's shape where the server kept to it.
async fn refusal(response: Response<Incoming>) -> CliError {
    let status = response.status();
    let body: Value = match whole(response).await {
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        Err(error) => return error,
    };
    let text = |field: &str| body["error"][field].as_str().map(super::terminal::printable);
    let code = ApiCode { status: status.as_u16(), code: text("code").unwrap_or_default() };
    let message = text("message").unwrap_or_else(|| format!("the server answered {status}"));
    let hint = hint(&code);
    let error = CliError::from_api(code, message);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// What can be done about a refusal, where that is the same whatever was asked.
fn hint(refused: &ApiCode) -> Option<&'static str> {
    Some(match (refused.status, refused.code.as_str()) {
        (401, _) => "the token is in DIR/token of the server: give it by --token-file",
        (_, "insufficient_scope") => "this takes another token, or the server's local socket",
        (_, "environment_busy") => {
            "`hangar env log` follows the build, and `hangar env cancel` ends it"
        }
        (_, "environment_exists") => "`hangar env list` shows which names are taken",
        (_, "environment_not_ready" | "hangar_version_not_found") => {
            "`hangar env versions` shows those there are, and why builds failed"
        }
        (_, "hangar_version_in_use") => {
            "activate another version, and end the sessions on this one (`hangar session list`)"
        }
        (_, "file_too_large") => "the limits are those under [uploads] in the server's config.toml",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_http_addresses() {
        for (server, address) in [
            ("http://127.0.0.1:8700", "127.0.0.1:8700"),
            ("http://127.0.0.1:8700/", "127.0.0.1:8700"),
            ("http://example", "example:80"),
            ("http://[::1]", "[::1]:80"),
            ("http://[::1]:8700", "[::1]:8700"),
        ] {
            let client = Client::remote(server, Some("token")).unwrap();
            assert_eq!(client.endpoint, Endpoint::Tcp(address.to_owned()));
        }
        let secured = Client::remote("https://x", None).unwrap();
        assert_eq!(secured.endpoint, Endpoint::Tls("x:443".to_owned()));
        for bad in
            ["", "127.0.0.1:80", "ftp://x", "http://", "https://", "http://a@b", "http://a/b"]
        {
            assert!(Client::remote(bad, None).is_err(), "{bad}");
        }
        assert!(Client::remote("http://x", Some("a\nb")).is_err());
    }
}
