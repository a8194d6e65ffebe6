//! Packages of any Debian suite, without touching the system's apt.

use crate::failure::{Failure, Step};
use crate::program::{read, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// An apt with state and sources of its own, below one directory.
pub struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Makes the apt and fetches the package lists of the suites.
    ///
    /// # Errors
    /// When the system has no Debian sources, or a list cannot be fetched.
    pub fn with_suites(folder: &Path, suites: &[&str]) -> Result<Self, Failure> {
        for inner in ["lists/partial", "cache/archives/partial"] {
            let path = folder.join(inner);
            std::fs::create_dir_all(&path).step(|| format!("making {}", path.display()))?;
        }
        let list = folder.join("sources.list");
        let lines: String = suites
            .iter()
            .map(|suite| Ok(source_lines(suite)?.join("\n") + "\n"))
            .collect::<Result<_, Failure>>()?;
        std::fs::write(&list, lines).step(|| format!("writing {}", list.display()))?;
        let this = Self { folder: folder.to_owned() };
        run(this.command("apt-get").args(["update", "-qq"]))?;
        Ok(this)
    }

    /// The first package that a package depends on and whose name begins so.
    ///
    /// # Errors
    /// When there is no such package.
    pub fn dependency(&self, package: &str, prefix: &str) -> Result<String, Failure> {
        let said = read(self.command("apt-cache").args(["depends", "--no-recommends", package]))?;
        said.lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|name| name.starts_with(prefix))
            .map(str::to_owned)
            .ok_or_else(|| Failure::new(format!("{package} depends on no package {prefix}…")))
    }

    /// Fetches one package and unpacks its files into a directory.
    ///
    /// # Errors
    /// When the package cannot be fetched or unpacked.
    pub fn unpack(&self, package: &str, into: &Path) -> Result<(), Failure> {
        let downloads = self.folder.join("downloads");
        std::fs::create_dir_all(&downloads).step(|| format!("making {}", downloads.display()))?;
        // The sandbox user of apt cannot write here; root may, and the package is verified.
        let mut download = self.command("apt-get");
        download.args(["-qq", "-oAPT::Sandbox::User=root", "download", package]);
        run(download.current_dir(&downloads))?;
        let deb = newest_deb(&downloads, package)?;
        run(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(into))?;
        std::fs::remove_file(&deb).step(|| format!("removing {}", deb.display()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let folder = self.folder.display();
        command.args([
            format!("-oDir::State::Lists={folder}/lists"),
            format!("-oDir::Cache={folder}/cache"),
            format!("-oDir::Etc::SourceList={folder}/sources.list"),
            "-oDir::Etc::SourceParts=/dev/null".to_owned(),
            "-oDir::Etc::PreferencesParts=/dev/null".to_owned(),
        ]);
        command
    }
}

fn newest_deb(folder: &Path, package: &str) -> Result<PathBuf, Failure> {
    let entries = std::fs::read_dir(folder).step(|| format!("listing {}", folder.display()))?;
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix(package).is_some_and(|rest| rest.starts_with('_'))
        })
        .ok_or_else(|| Failure::new(format!("apt downloaded no file for {package}")))
}

/// The lines of a sources.list for a suite and its security updates, from where the system itself
/// gets its packages.
///
/// # Errors
/// When the system's sources name no Debian archive.
pub fn source_lines(suite: &str) -> Result<Vec<String>, Failure> {
    let places = system_archives()?;
    let archive = places.iter().find(|uri| !is_security(uri));
    let archive = archive
        .ok_or_else(|| Failure::new("/etc/apt names no Debian archive to take packages from"))?;
    let mut lines = vec![format!("deb [signed-by={KEYRING}] {archive} {suite} main")];
    if let Some(security) = places.iter().find(|uri| is_security(uri)) {
        lines.push(format!("deb [signed-by={KEYRING}] {security} {suite}-security main"));
    }
    Ok(lines)
}

/// Debian's security archive is told apart by its path, on every mirror.
fn is_security(uri: &str) -> bool {
    uri.trim_end_matches('/').ends_with("debian-security")
}

fn system_archives() -> Result<Vec<String>, Failure> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(parts) = std::fs::read_dir("/etc/apt/sources.list.d") {
        files.extend(parts.filter_map(|entry| Some(entry.ok()?.path())));
    }
    files.retain(|file| {
        file.extension().is_some_and(|end| end == "list" || end == "sources") && file.exists()
    });
    files.sort();
    let mut archives = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).step(|| format!("reading {}", file.display()))?;
        archives.extend(archives_of(&text));
    }
    Ok(archives)
}

/// The Debian archives that a sources file of either format names.
fn archives_of(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| line.starts_with("deb ") || line.starts_with("URIs:"))
        .flat_map(str::split_whitespace)
        .filter(|word| word.contains("://"))
        .filter(|word| is_security(word) || word.trim_end_matches('/').ends_with("debian"))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::archives_of;

    #[test]
    fn reads_both_formats_of_sources() {
        let new = "Types: deb\n# http://old/debian\nURIs: http://m.test/debian\nSuites: x\n\n\
                   Types: deb\nURIs: http://m.test/debian-security/\n";
        assert_eq!(archives_of(new), ["http://m.test/debian", "http://m.test/debian-security/"]);
        let old = "deb [arch=amd64] http://m.test/debian x main\n#deb http://n.test/debian x main\n\
                   deb http://other.test/node_20.x nodistro main\n";
        assert_eq!(archives_of(old), ["http://m.test/debian"]);
    }
}
