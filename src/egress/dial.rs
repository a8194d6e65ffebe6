//! From a target to a connection: resolved once, judged, dialled.

use super::policy::{Denied, Policy};
use super::session::Session;
use super::target::{Host, Target};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// The policy denies every address of the target.
    #[error("{0}, which sessions cannot reach")]
    Denied(Denied),
    /// The name has no address.
    #[error("the name does not resolve: {0}")]
    Unresolved(io::Error),
    /// The resolver or the target did not answer in time.
    #[error("{0} did not answer in time")]
    Silent(&'static str),
    /// No address took the connection.
    #[error("the connection failed: {0}")]
    Failed(io::Error),
}

/// How many addresses of one name are tried.
const ADDRESSES_MAX: usize = 4;

/// Connects to the target.
///
/// The look-up is made once. Only addresses the policy has seen and let pass are dialled, by
/// address; nothing resolves the name again.
pub(super) async fn dial<P: Policy>(
    target: &Target,
    session: &Session<P>,
) -> Result<TcpStream, DialError> {
    let addresses = resolve(target, session).await?;
    let mut last = DialError::Silent("the target");
    for address in permitted(&addresses, &*session.policy)?.into_iter().take(ADDRESSES_MAX) {
        match timeout(session.limits.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A proxy that gathers small writes delays both sides.
                stream.set_nodelay(true).map_err(DialError::Failed)?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = DialError::Failed(error),
            Err(_) => last = DialError::Silent("the target"),
        }
    }
    Err(last)
}

async fn resolve<P: Policy>(
    target: &Target,
    session: &Session<P>,
) -> Result<Vec<SocketAddr>, DialError> {
    let name = match &target.host {
        Host::Address(address) => return Ok(vec![SocketAddr::new(*address, target.port)]),
        Host::Name(name) => name.clone(),
    };
    let port = target.port;
    let lookups = Arc::clone(&session.lookups);
    // A task of its own: a look-up cannot be cancelled, so its place among the session's
    // look-ups stays taken until the resolver returns, also when nobody waits any more.
    let lookup = tokio::spawn(async move {
        let _place = lookups.acquire_owned().await;
        tokio::net::lookup_host((name, port)).await.map(Iterator::collect::<Vec<_>>)
    });
    match timeout(session.limits.lookup_timeout, lookup).await {
        Err(_) => Err(DialError::Silent("the name service")),
        Ok(Err(ended)) => Err(DialError::Unresolved(io::Error::other(ended))),
        Ok(Ok(Err(error))) => Err(DialError::Unresolved(error)),
        Ok(Ok(Ok(addresses))) if addresses.is_empty() => {
            Err(DialError::Unresolved(io::ErrorKind::NotFound.into()))
        }
        Ok(Ok(Ok(addresses))) => Ok(addresses),
    }
}

/// The addresses the policy lets pass; where it lets none pass, the first denial.
fn permitted(addresses: &[SocketAddr], policy: &impl Policy) -> Result<Vec<SocketAddr>, DialError> {
    let mut denied = None;
    let mut passed = Vec::new();
    for address in addresses {
        match policy.check(address.ip(), address.port()) {
            Ok(()) => passed.push(*address),
            Err(why) => denied = denied.or(Some(why)),
        }
    }
    match denied {
        Some(why) if passed.is_empty() => Err(DialError::Denied(why)),
        _ => Ok(passed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::policy::NamedList;

    #[test]
    fn of_a_mixed_answer_only_what_passes_is_dialled() {
        let parse = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mixed = ["127.0.0.1:443", "203.0.113.80:443", "[::1]:443", "10.0.0.1:443"].map(parse);
        assert_eq!(permitted(&mixed, &NamedList).unwrap(), [parse("203.0.113.80:443")]);
        let inside = ["10.0.0.1:443", "127.0.0.1:443"].map(parse);
        match permitted(&inside, &NamedList) {
            Err(DialError::Denied(why)) => assert_eq!(why.address, inside[0].ip()),
            other => panic!("{other:?}"),
        }
    }
}
