//! `hangar serve`: from root to an unprivileged server, in an order that is never changed.
//!
//! Everything that needs root happens first and in one thread: directories and token, the warden,
//! listeners, the mount namespace, the drop of privileges. Only then the runtime starts its
//! threads, and the first byte of a client is read.

mod directories;
mod listen;
mod paced;
mod privileges;
mod range;
mod server;
mod tls;
mod warden;

use crate::app::ApiFiles;
use crate::config::{Config, sources};
use crate::warden_client::{OtherBuild, WardenError, connect_blocking};
use hangar_runtime::ids::Range;
use hangar_runtime_sys::SignalFd;
use rustix::process::Signal;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

/// What `hangar serve` is told.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where everything is kept.
    pub state_dir: PathBuf,
    /// Where clients connect by TCP; none for a server of the local socket only.
    pub listen: Option<SocketAddr>,
    /// Values of the configuration, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// The server ends after its standard input did, once no command runs any more.
    pub ephemeral: bool,
}

/// Why the server did not start, or ended other than it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Neither root nor a warden that runs.
    #[error(
        "serving needs root, or a running warden and the rights of the API's user\n\
         hint: start it with `sudo hangar serve`"
    )]
    NotRoot,
    /// Another server uses the state directory.
    #[error("another `hangar serve` uses this state directory")]
    InUse,
    /// Tokens and files would cross a network in clear.
    #[error(
        "listening on {0} without TLS is refused: what clients send could be read on the way\n\
         hint: name server.tls_certificate and server.tls_key in config.toml, listen on 127.0.0.1, \
         or set server.plaintext = true where something in front of the server speaks TLS"
    )]
    Plaintext(SocketAddr),
    /// A warden of another build holds the state directory.
    #[error(
        "a warden of another build runs on this state directory: {0}\n\
         hint: `sudo kill {pid}` ends it and its sessions, whose files are kept; or serve with the \
         hangar of its build",
        pid = .0.pid
    )]
    OtherBuild(OtherBuild),
    /// The warden did not come up; it said why on standard error.
    #[error("the warden did not start: {0}")]
    Warden(String),
    /// The warden ended while the server ran, and every session with it.
    #[error(
        "the warden ended ({0}), and every session with it\n\
         hint: start the server again; environments, versions and the files of sessions are kept"
    )]
    WardenLost(String),
    /// A step failed.
    #[error("{step} failed: {cause}")]
    Step {
        /// What was done.
        step: String,
        /// Why it failed.
        cause: String,
    },
}

impl ServeError {
    fn step(step: impl Into<String>, cause: impl std::fmt::Display) -> Self {
        Self::Step { step: step.into(), cause: cause.to_string() }
    }
}

/// What is at hand when the privileges are gone.
#[derive(Debug)]
struct Ready {
    config: Config,
    files: ApiFiles,
    warden: OwnedFd,
    warden_socket: PathBuf,
    /// The warden, where this process started it.
    child: Option<Child>,
    local: UnixListener,
    remote: Option<TcpListener>,
    tls: Option<Arc<rustls::ServerConfig>>,
    token_digest: Option<[u8; 32]>,
    ephemeral: bool,
    range: Range,
    /// SIGTERM and SIGINT.
    signals: SignalFd,
    /// Held for as long as the process lives.
    _lock: OwnedFd,
}

/// Serves until SIGTERM or SIGINT. It must be called before any thread exists.
///
/// # Errors
/// When something that is needed is not there; what was started is ended again.
pub fn run(options: Options) -> Result<(), ServeError> {
    // From here on a signal waits until there is somebody to end what was started.
    let signals = SignalFd::new(&[Signal::TERM.as_raw(), Signal::INT.as_raw()])
        .map_err(|errno| ServeError::step("watching for signals", errno))?;
    let ready = if rustix::process::geteuid().is_root() {
        prepare_as_root(&options, signals)?
    } else {
        prepare_without_root(&options, signals)?
    };
    server::serve(ready)
}

fn prepare_as_root(options: &Options, signals: SignalFd) -> Result<Ready, ServeError> {
    let config = configuration(options)?;
    let tls = tls::configure(&config.server)?;
    options.listen.map(|at| tls::check_address(at, &config.server)).transpose()?;
    let range = range::checked(config.warden.range_base, &options.state_dir)?;
    let state = directories::prepare(&options.state_dir, range)?;
    let lock = directories::lock(&state.path)?;
    let token_digest = directories::token(&state.path, range)?;
    let (warden, child) = warden::start_or_adopt(&state.path, &config.warden)?;
    let mut started = warden::EndUnlessServed::new(child);
    let local = listen::local(&state.path, range)?;
    let remote = options.listen.map(listen::remote).transpose()?;
    let root = privileges::enter_mount_namespace(&state)?;
    privileges::drop_all(range)?;
    Ok(Ready {
        config,
        files: ApiFiles { root: root.join("api") },
        warden,
        warden_socket: root.join("run/warden.sock"),
        child: started.served(),
        local,
        remote,
        tls,
        token_digest: Some(token_digest),
        ephemeral: options.ephemeral,
        range,
        signals,
        _lock: lock,
    })
}

/// Without root: only where a warden runs, and as the user the API's files belong to.
fn prepare_without_root(options: &Options, signals: SignalFd) -> Result<Ready, ServeError> {
    let dir = &options.state_dir;
    let config = configuration(options)?;
    let tls = tls::configure(&config.server)?;
    options.listen.map(|at| tls::check_address(at, &config.server)).transpose()?;
    let range = range::checked(config.warden.range_base, dir)?;
    let own = rustix::process::geteuid().as_raw() == range.api();
    let warden = match connect_blocking(&socket_of(dir)) {
        Ok(warden) if own => warden,
        Err(WardenError::OtherBuild(other)) => return Err(ServeError::OtherBuild(other)),
        _ => return Err(ServeError::NotRoot),
    };
    Ok(Ready {
        config,
        files: ApiFiles { root: dir.join("api") },
        warden,
        warden_socket: socket_of(dir),
        child: None,
        local: listen::local(dir, range)?,
        remote: options.listen.map(listen::remote).transpose()?,
        tls,
        token_digest: directories::stored_token_digest(dir),
        ephemeral: options.ephemeral,
        range,
        signals,
        _lock: directories::lock(dir)?,
    })
}

fn configuration(options: &Options) -> Result<Config, ServeError> {
    let resolved = sources::resolve(&options.state_dir, std::env::vars(), &options.set);
    let resolved = resolved.map_err(|why| ServeError::step("reading the configuration", why))?;
    Ok(resolved.config)
}

fn socket_of(dir: &Path) -> PathBuf {
    dir.join("run/warden.sock")
}
