//! The proxy of one session: its listener and its limits.

use super::connection;
use super::policy::Policy;
use super::report::Reports;
use hangar_runtime::ids::SessionId;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// What one session can use up of the proxy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections at a time; further ones wait in the listener's queue.
    pub(super) connections_max: usize,
    /// Look-ups in the resolver at a time.
    pub(super) lookups_max: usize,
    /// From the connection to the end of the request's head.
    pub(super) head_timeout: Duration,
    /// For a name to resolve.
    pub(super) lookup_timeout: Duration,
    /// For one address to answer.
    pub(super) connect_timeout: Duration,
    /// Without a byte in either direction.
    pub(super) idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections_max: 128,
            lookups_max: 8,
            head_timeout: Duration::from_secs(20),
            lookup_timeout: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(300),
        }
    }
}

/// What the connections of a session share.
#[derive(Debug)]
pub(super) struct Session<P> {
    pub(super) id: SessionId,
    pub(super) policy: Arc<P>,
    pub(super) limits: Limits,
    pub(super) lookups: Arc<Semaphore>,
    pub(super) reports: Reports,
}

impl<P: Policy> Session<P> {
    pub(super) fn new(id: SessionId, policy: Arc<P>, limits: Limits, reports: Reports) -> Self {
        let lookups = Arc::new(Semaphore::new(limits.lookups_max));
        Self { id, policy, limits, lookups, reports }
    }
}

/// The listener as the runtime takes it.
pub(super) fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts until the task is aborted; the connections are aborted with it.
pub(super) async fn serve<P: Policy>(listener: TcpListener, session: Arc<Session<P>>) {
    /// Pause after `accept` failed, as it does while the process has no descriptor left.
    const BREATH: Duration = Duration::from_millis(100);
    let slots = Arc::new(Semaphore::new(session.limits.connections_max));
    let mut connections = JoinSet::new();
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let session = Arc::clone(&session);
                connections.spawn(async move {
                    // Nagle's algorithm would hold small records back until the session's kernel
                    // sends its delayed acknowledgement, 40 ms each. A socket that cannot take
                    // the option is closed already.
                    if stream.set_nodelay(true).is_ok() {
                        connection::serve(stream, session).await;
                    }
                    drop(slot);
                });
            }
            Err(_) => tokio::time::sleep(BREATH).await,
        }
    }
}
