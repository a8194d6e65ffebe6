//! The operator's configuration: `config.toml` in the state directory, and what stands before it
//! ([`sources`]). Every key has a default.
//!
//! `docs/configuration.md` is printed from this file.

#[cfg(test)]
mod document;
pub mod sources;

use hangar_runtime::ids::DEFAULT_RANGE_BASE;
use hangar_runtime::plan::Limits;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::Path;

/// The whole configuration.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Bounds of what clients send.
    pub uploads: Uploads,
    /// How versions are built.
    pub build: Build,
    /// Which versions are kept.
    pub versions: Versions,
    /// What sessions get where a request names nothing else.
    pub session: Session,
    /// How tasks run.
    pub tasks: Tasks,
    /// The privileged process.
    pub warden: Warden,
    /// What the server tells on standard error.
    pub log: Log,
    /// How clients are served.
    pub server: Server,
    /// What a scope may use; everything where nothing is said.
    pub limits: ScopeLimits,
}

/// How clients are served.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Server {
    /// The file of the certificate and those that lead to its issuer, in PEM. With it and a key,
    /// `--listen` speaks TLS. It is read at the start.
    pub tls_certificate: Option<String>,
    /// The file of the certificate's private key, in PEM.
    pub tls_key: Option<String>,
    /// Listen without TLS on an address that is not loopback: something in front of the server
    /// speaks TLS.
    pub plaintext: bool,
    /// How many connections are served at once; others wait.
    pub connections_max: usize,
    /// How long a client may take to send the head of a request, and keep a connection idle.
    pub header_timeout_s: u64,
    /// How long a client may take to send or to take `stall_bytes_min` bytes, while some are waited
    /// for.
    pub stall_timeout_s: u64,
    /// What counts as progress of a slow client.
    pub stall_bytes_min: usize,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            tls_certificate: None,
            tls_key: None,
            plaintext: false,
            connections_max: 512,
            header_timeout_s: 10,
            stall_timeout_s: 60,
            stall_bytes_min: 32 << 10,
        }
    }
}

/// What a scope may use; everything where nothing is said.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScopeLimits {
    /// Requests a minute, with any of its tokens; as many can come at once.
    pub requests_per_minute_max: Option<NonZeroU32>,
    /// Tasks a minute.
    pub tasks_per_minute_max: Option<NonZeroU32>,
    /// Sessions, running or not.
    pub sessions_max: Option<u64>,
}

/// What the server tells on standard error.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// `text`, or `json` for one object a line.
    pub format: LogFormat,
    /// What is told, in the syntax of `tracing`'s filters, such as `hangar=debug`; the variable
    /// `HANGAR_LOG` comes before it.
    pub filter: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, filter: "hangar=info".to_owned() }
    }
}

/// How a line of the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Which versions are kept.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Versions {
    /// How many finished versions of each environment are kept, the newest; all of them when
    /// absent. The active one and those that sessions read are kept beside them.
    pub keep_last: Option<NonZeroU32>,
}

/// Bounds of what clients send.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Uploads {
    /// The largest single file of a source.
    pub file_bytes_max: u64,
    /// The largest archive as it is sent.
    pub import_bytes_max: u64,
    /// The most bytes an archive may unpack to.
    pub unpacked_bytes_max: u64,
    /// The most files and directories of a source.
    pub entries_max: u64,
    /// How long fetching a repository may take.
    pub git_timeout_s: u64,
    /// The largest JSON body.
    pub json_bytes_max: usize,
    /// The largest file of `POST /v1/files`.
    pub input_bytes_max: u64,
    /// The most bytes that the files of `POST /v1/files` in one scope take together.
    pub inputs_bytes_max: u64,
}

impl Default for Uploads {
    fn default() -> Self {
        Self {
            file_bytes_max: 256 << 20,
            import_bytes_max: 2 << 30,
            unpacked_bytes_max: 8 << 30,
            entries_max: 200_000,
            git_timeout_s: 600,
            json_bytes_max: 1 << 20,
            input_bytes_max: 2 << 30,
            inputs_bytes_max: 64 << 30,
        }
    }
}

/// How versions are built.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Build {
    /// Wall time of a whole build.
    pub timeout_s: u64,
    /// How long a step may print nothing.
    pub silence_timeout_s: u64,
    /// The most bytes of a build's log; what comes after them is left out of it.
    pub log_bytes_max: u64,
    /// The most bytes the steps of a build may print; more end it.
    pub output_bytes_max: u64,
    /// The most bytes of disk a build may take: its tree, its home and its working directory.
    /// They are looked at every few seconds, so a build can be beyond them for as long.
    pub disk_bytes_max: u64,
    /// The free bytes of disk below which builds are ended; looked at as often.
    pub disk_free_bytes_min: u64,
    /// The free inodes below which builds are ended.
    pub disk_free_inodes_min: u64,
    /// How many builds run at once; others wait.
    pub parallel_max: usize,
    /// What a build can use up.
    pub limits: LimitsConfig,
    /// Where pip finds packages; pip's own default when absent.
    pub pip_index_url: Option<String>,
    /// Where npm, pnpm and Yarn find packages; their own default when absent.
    pub npm_registry: Option<String>,
    /// The registry cargo takes for crates.io, such as `sparse+https://…/`.
    pub cargo_registry: Option<String>,
    /// `GOPROXY` of builds.
    pub go_proxy: Option<String>,
    /// Where Bundler finds gems instead of the sources in a Gemfile.
    pub gem_mirror: Option<String>,
    /// The text of a `sources.list` for declared Debian packages; the host's own sources when
    /// absent.
    pub apt_sources: Option<String>,
    /// Certificates that installers and sessions trust: a file below `/usr` or `/etc/ssl/certs`,
    /// which sessions see. The bundle of the host when absent.
    pub ca_bundle: Option<String>,
}

impl Default for Build {
    fn default() -> Self {
        Self {
            timeout_s: 1800,
            silence_timeout_s: 600,
            log_bytes_max: 16 << 20,
            output_bytes_max: 256 << 20,
            disk_bytes_max: 20 << 30,
            disk_free_bytes_min: 256 << 20,
            disk_free_inodes_min: 1000,
            parallel_max: 4,
            limits: LimitsConfig::default(),
            pip_index_url: None,
            npm_registry: None,
            cargo_registry: None,
            go_proxy: None,
            gem_mirror: None,
            apt_sources: None,
            ca_bundle: None,
        }
    }
}

/// What sessions get where a request names nothing else.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Session {
    /// Seconds without a command after which a session's isolation ends; its files stay.
    pub idle_timeout_s: u64,
    /// What a session can use up.
    pub limits: LimitsConfig,
    /// The most files a listing of artifacts reports.
    pub artifacts_max: usize,
}

impl Default for Session {
    fn default() -> Self {
        Self { idle_timeout_s: 1800, limits: LimitsConfig::default(), artifacts_max: 20_000 }
    }
}

/// How tasks run.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// The longest time of a task; requests and harnesses can only name a shorter one.
    pub timeout_s_max: u64,
    /// The most bytes of output of a task; more end it as incomplete.
    pub output_bytes_max: u64,
    /// How many sessions are kept ready for their next task; of more, those that were idle longest
    /// end, and start again when they are needed. Their files stay.
    pub idle_sessions_max: usize,
    /// What the sessions of tasks reach: `none`, `loopback` or `egress`.
    pub network: String,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            timeout_s_max: 3600,
            output_bytes_max: 4 << 20,
            idle_sessions_max: 64,
            network: "loopback".to_owned(),
        }
    }
}

/// The privileged process. A warden that runs keeps what it was started with.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Warden {
    /// The first of hangar's host ids: a multiple of 65,536, not handed out to anybody else. It
    /// stays what it was when the state directory was made.
    pub range_base: u32,
    /// Seconds for which sessions go on when their API is gone.
    pub orphan_timeout_s: u32,
}

impl Default for Warden {
    fn default() -> Self {
        Self { range_base: DEFAULT_RANGE_BASE, orphan_timeout_s: 600 }
    }
}

/// Limits of a session, each optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Processes and threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_max: Option<u32>,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<u64>,
    /// Thousandths of one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_millis_max: Option<u32>,
    /// Open files of each process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<u32>,
    /// The largest file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_max: Option<u64>,
    /// Bytes of each tmpfs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tmpfs_bytes_max: Option<u64>,
}

impl LimitsConfig {
    /// These limits, with `base` where nothing is said.
    #[must_use]
    pub fn over(&self, base: Limits) -> Limits {
        Limits {
            pids_max: self.pids_max.unwrap_or(base.pids_max),
            memory_bytes_max: self.memory_bytes_max.unwrap_or(base.memory_bytes_max),
            cpu_millis_max: self.cpu_millis_max.unwrap_or(base.cpu_millis_max),
            open_files_max: self.open_files_max.unwrap_or(base.open_files_max),
            file_bytes_max: self.file_bytes_max.unwrap_or(base.file_bytes_max),
            tmpfs_bytes_max: self.tmpfs_bytes_max.unwrap_or(base.tmpfs_bytes_max),
        }
    }
}

impl Tasks {
    /// Checks what the types do not tell.
    fn check(&self) -> Result<(), String> {
        match self.network.as_str() {
            "none" | "loopback" | "egress" => Ok(()),
            other => Err(format!("tasks.network is {other}, which is no network")),
        }
    }
}

impl Server {
    /// Checks what the types do not tell.
    fn check(&self) -> Result<(), String> {
        if self.tls_certificate.is_some() != self.tls_key.is_some() {
            return Err("server.tls_certificate and server.tls_key need each other".to_owned());
        }
        if self.connections_max == 0 || self.header_timeout_s == 0 || self.stall_timeout_s == 0 {
            return Err("a limit of [server] is 0, so nobody could be served".to_owned());
        }
        Ok(())
    }
}

impl Build {
    /// Checks what the types do not tell.
    fn check(&self) -> Result<(), String> {
        let Some(bundle) = &self.ca_bundle else { return Ok(()) };
        let seen = ["/usr/", "/etc/ssl/certs/"].iter().any(|above| bundle.starts_with(above));
        if !seen || bundle.split('/').any(|name| name == "..") {
            return Err("build.ca_bundle lies where sessions do not see it".to_owned());
        }
        match Path::new(bundle).is_file() {
            true => Ok(()),
            false => Err("build.ca_bundle names no file".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_lie_where_sessions_see_them() {
        let check =
            |bundle: &str| Build { ca_bundle: Some(bundle.to_owned()), ..Build::default() }.check();
        assert!(check("/etc/ssl/certs/ca-certificates.crt").is_ok());
        assert!(check("/root/ca.pem").unwrap_err().contains("do not see"));
        assert!(check("/usr/../root/ca.pem").unwrap_err().contains("do not see"));
        assert!(check("/usr/no-such-file.pem").unwrap_err().contains("no file"));
    }

    #[test]
    fn keys_that_are_not_known_are_refused() {
        assert!(toml::from_str::<Config>("[build]\ntimeout_s = 5").is_ok());
        assert!(toml::from_str::<Config>("[build]\ntimeout = 5").is_err());
    }

    #[test]
    fn named_limits_replace_the_defaults_and_only_those() {
        let limits: LimitsConfig = serde_json::from_str(r#"{"pids_max": 64}"#).unwrap();
        let over = limits.over(Limits::default());
        assert_eq!(over, Limits { pids_max: 64, ..Limits::default() });
    }
}
