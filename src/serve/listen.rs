//! Listeners, and serving what connects.

use super::ServeError;
use crate::api::auth::Peer;
use axum::Router;
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
use tokio::sync::Semaphore;

/// How many connections are served at once; more wait.
const CONNECTIONS_MAX: usize = 512;
/// How long a client may take to send the head of a request.
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
                    tokio::spawn(serve(stream, router.clone(), Peer::Local, place));
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

/// Serves clients anywhere.
pub(super) async fn serve_remote(listener: tokio::net::TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let place = Arc::clone(&places).acquire_owned().await.expect("never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                // Frames of output are small and wanted at once.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY: {error}");
                }
                tokio::spawn(serve(stream, router.clone(), Peer::Remote, place));
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

async fn serve<S>(stream: S, router: Router, peer: Peer, _place: tokio::sync::OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router.layer(axum::Extension(peer)));
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(64 << 10)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error}");
    }
}
