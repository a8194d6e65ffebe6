//! TLS to a server elsewhere, whose certificate the host trusts.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where Debian keeps the certificates that the host trusts.
const HOST_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Connects to `host:port`.
///
/// # Errors
/// When nobody listens there, or who does is not trusted to be that host.
pub(super) async fn connect(address: &str) -> io::Result<TlsStream<TcpStream>> {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(host).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(configuration()?));
    connector.connect(name, TcpStream::connect(address).await?).await
}

/// The certificates of `SSL_CERT_FILE`, as other programs know it, or those of the host.
fn configuration() -> io::Result<ClientConfig> {
    let bundle =
        std::env::var_os("SSL_CERT_FILE").map_or_else(|| HOST_BUNDLE.into(), PathBuf::from);
    let certificates = CertificateDer::pem_file_iter(&bundle).map_err(io::Error::other)?;
    let mut roots = RootCertStore::empty();
    // A bundle can have some that this program does not take; those it takes are enough.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        let why = format!("{} has no certificate", bundle.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
