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
/// The interpreters whose versions decide.
const INTERPRETERS: [&str; 3] = ["python3", "node", "npm"];
/// How long an id is taken for current.
const CURRENT_FOR: Duration = Duration::from_secs(2);

/// What the host offers; looked at again when it was not for a while.
#[derive(Debug, Default)]
pub struct Toolchain {
    last: Mutex<Option<Seen>>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// The files of the interpreters. While they and the packages stay the same, nobody asks the
    /// programs again: npm alone takes a good part of a second to tell its version.
    files: String,
    id: ToolchainId,
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
        let seen = match last.take() {
            Some(seen) if seen.at.elapsed() < CURRENT_FOR => seen,
            before => blocking(move || Seen::now(before)).await,
        };
        last.insert(seen).id.clone()
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

/// What Yarn 2 or newer is called where Yarn 1 has the name `yarn`.
const YARN_BERRY: &str = "yarn-berry";

/// The program that is Yarn 2 or newer, if any is; both can be installed beside each other.
#[must_use]
pub fn yarn_berry() -> &'static str {
    if has(YARN_BERRY) { YARN_BERRY } else { "yarn" }
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

impl Seen {
    fn now(before: Option<Self>) -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let packages =
            short(&Sha256::digest(std::fs::read("/var/lib/dpkg/status").unwrap_or_default()));
        let files = INTERPRETERS.map(identity).join("\n") + "\n" + &release;
        let same = before.filter(|seen| seen.files == files && seen.id.packages == packages);
        let interpreters =
            same.map_or_else(|| ask_interpreters(&release), |seen| seen.id.interpreters);
        Self { at: Instant::now(), files, id: ToolchainId { interpreters, packages } }
    }
}

/// The digest of what the interpreters say.
fn ask_interpreters(release: &str) -> String {
    let mut digest = Sha256::new();
    digest.update(release);
    let asked = std::thread::scope(|scope| {
        INTERPRETERS
            .map(|program| scope.spawn(move || version(program)))
            .map(|asked| asked.join().expect("a version is text"))
    });
    for (program, version) in INTERPRETERS.iter().zip(asked) {
        digest.update(format!("\n{program} {version}"));
    }
    short(&digest.finalize())
}

fn short(digest: &[u8]) -> String {
    hex(&digest[..8])
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

    #[test]
    fn interpreters_are_asked_again_when_their_files_or_the_packages_changed() {
        let first = Seen::now(None);
        let marked = |files: &str, packages: &str| {
            let id = ToolchainId { interpreters: "kept".into(), packages: packages.into() };
            Seen::now(Some(Seen { at: first.at, files: files.into(), id })).id.interpreters
        };
        assert_eq!(marked(&first.files, &first.id.packages), "kept");
        assert_eq!(marked("other files", &first.id.packages), first.id.interpreters);
        assert_eq!(marked(&first.files, "other packages"), first.id.interpreters);
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
