//! The toolchain `host`: what the host offers to builds and sessions, by an id.

use crate::app::{blocking, hex};
use crate::failure::{Code, Failure};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Where sessions find interpreters.
const DIRECTORIES: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];
/// How long an id is taken for current.
const CURRENT_FOR: Duration = Duration::from_secs(30);

/// What the host offers; looked at again when it was not for a while.
#[derive(Debug, Default)]
pub struct Toolchain {
    last: Mutex<Option<(Instant, ToolchainId)>>,
}

/// What decides whether something built once still runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolchainId {
    /// Digest of the versions of the interpreters and the release of the host.
    pub interpreters: String,
    /// Digest of the host's package database.
    pub packages: String,
}

impl ToolchainId {
    /// As it is stored beside a version.
    #[must_use]
    pub fn text(&self) -> String {
        format!("host:{}:{}", self.interpreters, self.packages)
    }
}

impl Toolchain {
    /// The id now.
    pub async fn id(&self) -> ToolchainId {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, id)) if at.elapsed() < CURRENT_FOR => id.clone(),
            _ => {
                let id = blocking(read).await;
                *last = Some((Instant::now(), id.clone()));
                id
            }
        }
    }

    /// Refuses a version that was built with other interpreters than the host has now; a host
    /// that only got other packages is logged.
    ///
    /// # Errors
    /// [`Code::EnvironmentNotReady`] when the version has to be built again.
    pub async fn check(&self, built_with: Option<&str>) -> Result<(), Failure> {
        let now = self.id().await;
        match built_with {
            Some(text) if text == now.text() => Ok(()),
            Some(text) if text.starts_with(&format!("host:{}:", now.interpreters)) => {
                tracing::warn!("the packages of the host changed since a version was built");
                Ok(())
            }
            _ => Err(Failure::new(
                Code::EnvironmentNotReady,
                "the interpreters of the host changed since this version was built; rebuild it",
            )),
        }
    }
}

/// Whether sessions find a program.
#[must_use]
pub fn has(program: &str) -> bool {
    find(program).is_some()
}

/// What tells one installation of a program from another, without running it: its file and what
/// the file says about itself. Empty when sessions do not find the program.
#[must_use]
pub fn identity(program: &str) -> String {
    use std::os::unix::fs::MetadataExt;
    let file = find(program).and_then(|path| std::fs::canonicalize(path).ok());
    let told = file.and_then(|file| Some((file.metadata().ok()?, file)));
    told.map_or_else(String::new, |(metadata, file)| {
        format!("{} {} {}", file.display(), metadata.len(), metadata.mtime())
    })
}

/// The first number of what a program says its version is.
#[must_use]
pub fn major(program: &str) -> Option<u32> {
    let version = version(program);
    let digits = version.trim_start_matches(|c: char| !c.is_ascii_digit());
    digits.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

fn find(program: &str) -> Option<std::path::PathBuf> {
    DIRECTORIES.iter().map(|dir| Path::new(dir).join(program)).find(|path| path.exists())
}

fn read() -> ToolchainId {
    let mut interpreters = Sha256::new();
    interpreters.update(std::fs::read("/etc/os-release").unwrap_or_default());
    for program in ["python3", "node", "npm"] {
        interpreters.update(format!("\n{program} {}", version(program)));
    }
    let packages = Sha256::digest(std::fs::read("/var/lib/dpkg/status").unwrap_or_default());
    let short = |digest: &[u8]| hex(&digest[..8]);
    ToolchainId { interpreters: short(&interpreters.finalize()), packages: short(&packages) }
}

/// What a program says its version is; empty when a session would not find it.
fn version(program: &str) -> String {
    let Some(path) = find(program) else { return String::new() };
    let output = Command::new(path)
        .arg("--version")
        .env_clear()
        .env("PATH", DIRECTORIES.join(":"))
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .stdin(std::process::Stdio::null())
        .output();
    output.map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_where_sessions_find_them() {
        assert!(has("sh") && !has("no-such-program"));
        assert_eq!(major("python3"), Some(3));
        assert_eq!(major("no-such-program"), None);
        assert_ne!(identity("python3"), identity("sh"));
        assert_eq!(identity("no-such-program"), "");
    }

    #[tokio::test]
    async fn other_packages_are_a_warning_and_other_interpreters_a_refusal() {
        let toolchain = Toolchain::default();
        let now = toolchain.id().await;
        assert!(toolchain.check(Some(&now.text())).await.is_ok());
        let drifted = ToolchainId { packages: "0".repeat(16), ..now.clone() };
        assert!(toolchain.check(Some(&drifted.text())).await.is_ok());
        let other = ToolchainId { interpreters: "0".repeat(16), ..now };
        let refused = toolchain.check(Some(&other.text())).await.unwrap_err();
        assert_eq!(refused.code, Code::EnvironmentNotReady);
    }
}
