//! Listeners, and serving what connects.

use super::ServeError;
use super::paced::{Pace, Paced};
use crate::api::auth::Peer;
use crate::config::Server;
use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::STRICT_TRANSPORT_SECURITY;
use axum::middleware::map_response;
use axum::response::Response;
use hangar_runtime::ids::Range;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::fs::{AtFlags, CWD, Gid, Mode, Uid, chmodat, chownat};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How many connections of this host are served at once; more wait.
const CONNECTIONS_MAX: usize = 512;
/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// How long a client of this host may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// The socket for clients on this host; the group of the API and root can connect.
pub(super) fn local(dir: &Path, range: Range) -> Result<UnixListener, ServeError> {
    let path = dir.join("run/api.sock");
    let fail = |e: &dyn std::fmt::Display| ServeError::step("making the local socket", e);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(fail(&error)),
        _ => {}
    }
    // Nobody can connect until the mode is set: the directory lets only the group pass, and a
    // socket is made without write permission for the group.
    let listener = UnixListener::bind(&path).map_err(|e| fail(&e))?;
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Some(Uid::from_raw(0)), Some(Gid::from_raw(range.api())));
        chownat(CWD, &path, uid, gid, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| fail(&e))?;
    }
    chmodat(CWD, &path, Mode::from_raw_mode(0o660), AtFlags::empty()).map_err(|e| fail(&e))?;
    listener.set_nonblocking(true).map_err(|e| fail(&e))?;
    Ok(listener)
}

/// The socket for clients anywhere.
pub(super) fn remote(address: SocketAddr) -> Result<TcpListener, ServeError> {
    let step = || format!("listening on {address}");
    let listener = TcpListener::bind(address).map_err(|e| ServeError::step(step(), e))?;
    listener.set_nonblocking(true).map_err(|e| ServeError::step(step(), e))?;
    Ok(listener)
}

/// Serves clients of the local socket. The kernel says who they are; others are closed at once.
pub(super) async fn serve_local(listener: tokio::net::UnixListener, router: Router, range: Range) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(peer) if is_allowed(peer.uid(), peer.gid(), range) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        serve(stream, router, Peer::Local, HEADER_TIMEOUT).await;
                        drop(place);
                    });
                }
                _ => tracing::warn!("a local client that is neither root nor of the API's group"),
            },
            Err(error) => accept_failed(&error).await,
        }
    }
}

fn is_allowed(uid: u32, gid: u32, range: Range) -> bool {
    uid == 0 || uid == range.api() || gid == range.api()
}

/// How clients anywhere are served.
#[derive(Clone)]
pub(super) struct Remote {
    tls: Option<TlsAcceptor>,
    header_timeout: Duration,
    pace: Pace,
    connections_max: usize,
}

impl Remote {
    pub(super) fn new(server: &Server, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let within = Duration::from_secs(server.stall_timeout_s);
        Self {
            tls: tls.map(TlsAcceptor::from),
            header_timeout: Duration::from_secs(server.header_timeout_s),
            pace: Pace { within, bytes_min: server.stall_bytes_min },
            connections_max: server.connections_max,
        }
    }

    async fn serve(self, stream: TcpStream, router: Router) {
        // Frames of output are small and wanted at once.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("TCP_NODELAY: {error}");
        }
        let stream = Paced::new(stream, self.pace);
        let Some(tls) = self.tls else {
            return serve(stream, router, Peer::Remote, self.header_timeout).await;
        };
        match tokio::time::timeout(self.header_timeout, tls.accept(stream)).await {
            Ok(Ok(stream)) => {
                let router = router.layer(map_response(keep_to_tls));
                serve(stream, router, Peer::Remote, self.header_timeout).await;
            }
            Ok(Err(error)) => tracing::debug!("a client spoke no TLS: {error}"),
            Err(_) => tracing::debug!("a client took too long to begin with TLS"),
        }
    }
}

/// Tells browsers to come back by TLS only: RFC 6797.
async fn keep_to_tls(mut response: Response) -> Response {
    let value = HeaderValue::from_static("max-age=31536000");
    response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, value);
    response
}

/// Serves clients anywhere.
pub(super) async fn serve_remote(
    listener: tokio::net::TcpListener,
    router: Router,
    remote: Remote,
) {
    let places = Arc::new(Semaphore::new(remote.connections_max));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let (remote, router) = (remote.clone(), router.clone());
                tokio::spawn(async move {
                    remote.serve(stream, router).await;
                    drop(place);
                });
            }
            Err(error) => accept_failed(&error).await,
        }
    }
}

/// Out of descriptors: others have to end first.
async fn accept_failed(error: &std::io::Error) {
    tracing::warn!("a connection was not accepted: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn serve<S>(stream: S, router: Router, peer: Peer, header_timeout: Duration)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router.layer(axum::Extension(peer)));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(64 << 10)
        .max_header_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error}");
    }
}
