//! TLS for clients elsewhere: the certificate and its key are read as root, once.

use super::ServeError;
use crate::config::Server;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use std::sync::Arc;

/// What a listener speaks TLS with; `None` where nothing is configured.
///
/// # Errors
/// When a file cannot be read, holds no certificate or key, or the two do not fit.
pub(super) fn configure(server: &Server) -> Result<Option<Arc<ServerConfig>>, ServeError> {
    let (Some(certificate), Some(key)) = (&server.tls_certificate, &server.tls_key) else {
        return Ok(None);
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|e| ServeError::step("reading server.tls_certificate", e))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|e| ServeError::step("reading server.tls_key", e))?;
    let fail = |e: rustls::Error| ServeError::step("preparing TLS", e);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(fail)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(fail)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(Arc::new(config)))
}

/// Lets a server listen without TLS only where nobody else can hear it, or where the operator says
/// that something in front of it speaks TLS.
pub(super) fn check_address(address: SocketAddr, server: &Server) -> Result<(), ServeError> {
    let secured = server.tls_certificate.is_some() || server.plaintext;
    match secured || address.ip().is_loopback() {
        true => Ok(()),
        false => Err(ServeError::Plaintext(address)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_stays_on_this_host() {
        let plain = Server::default();
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(check_address(address.parse().unwrap(), &plain).is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            let address = address.parse().unwrap();
            let refused = check_address(address, &plain).unwrap_err().to_string();
            assert!(refused.contains("hint:"), "{refused}");
            let told = Server { plaintext: true, ..Server::default() };
            assert!(check_address(address, &told).is_ok());
        }
    }
}
