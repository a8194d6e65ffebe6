//! What a build can be made with on this host, and nothing that is not there.

use crate::app::blocking;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Where sessions find programs, the first wins.
const DIRECTORIES: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];
/// How long a look at the host is good.
const CURRENT_FOR: Duration = Duration::from_secs(300);

/// What the host has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// Minor versions of Python that make virtual environments, such as `3.11`.
    pub python: Vec<String>,
    /// Major versions of Node with npm.
    pub node: Vec<String>,
    /// Name and version of the distribution.
    pub os: (String, String),
    /// Debian packages can be downloaded and unpacked.
    pub apt: bool,
}

/// What the host has, looked at again when it was not for a while.
#[derive(Debug, Default)]
pub struct Runtimes {
    last: Mutex<Option<(Instant, Found)>>,
}

impl Runtimes {
    /// What the host has now.
    pub async fn found(&self) -> Found {
        let mut last = self.last.lock().await;
        match &*last {
            Some((at, found)) if at.elapsed() < CURRENT_FOR => found.clone(),
            _ => {
                let found = blocking(look).await;
                *last = Some((Instant::now(), found.clone()));
                found
            }
        }
    }
}

fn look() -> Found {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let has = |name: &str| program(name).is_some();
    let node = || {
        let text = said(&program("node")?, &["--version"])?;
        Some(text.trim_start_matches('v').split('.').next()?.to_owned())
    };
    Found {
        python: pythons(),
        node: node().filter(|_| has("npm")).into_iter().collect(),
        os: (field(&release, "ID"), field(&release, "VERSION_ID")),
        apt: has("apt-get") && has("dpkg-deb") && has("python3"),
    }
}

/// Each minor version once, in order; an interpreter without `venv` makes no environment.
fn pythons() -> Vec<String> {
    const TRIED: &str = "import venv, ensurepip, sys; print('%d.%d' % sys.version_info[:2])";
    let names = DIRECTORIES.iter().flat_map(|directory| std::fs::read_dir(directory).ok());
    let names = names.flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_minor = |name: &String| {
        let minor = name.strip_prefix("python3.");
        minor.is_some_and(|minor| minor.parse::<u32>().is_ok())
    };
    let names = names.filter(is_minor).chain(["python3".to_owned()]);
    let works = |name: String| said(&program(&name)?, &["-I", "-c", TRIED]);
    let mut found: Vec<String> = names.filter_map(works).collect();
    found.sort_by_key(|version| {
        version.split('.').filter_map(|part| part.parse().ok()).collect::<Vec<u32>>()
    });
    found.dedup();
    found
}

fn program(name: &str) -> Option<PathBuf> {
    DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)).find(|path| path.exists())
}

/// What a program of the host prints, when it ends well.
fn said(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", DIRECTORIES.join(":"))
        .env("HOME", "/nonexistent")
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}

fn field(release: &str, name: &str) -> String {
    let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    value.unwrap_or_default().trim_matches('"').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_works_is_told() {
        let found = Runtimes::default().found().await;
        assert!(!found.python.is_empty(), "the tests need a Python with venv");
        for version in &found.python {
            assert!(version.starts_with("3.") && !version.contains('\n'), "{version}");
        }
        assert_eq!(said(Path::new("/bin/false"), &[]), None);
    }

    #[test]
    fn the_distribution_is_read_from_its_release() {
        let release = "PRETTY_NAME=\"x\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(field(release, "ID"), "debian");
        assert_eq!(field(release, "VERSION_ID"), "12");
        assert_eq!(field(release, "NAME"), "");
    }
}
