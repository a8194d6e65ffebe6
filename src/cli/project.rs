//! A project directory: what of it is imported, and what is not.

use super::archive;
use super::error::{CliError, While};
use super::terminal::printable;
use rustix::fs::{Mode, OFlags};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Entries that are left out at every depth: version control keeps what no session needs, and
/// installed dependencies and caches are made anew by the build.
pub const SKIPPED_NAMES: &[&str] = &[
    ".cache",
    ".git",
    ".hg",
    ".mypy_cache",
    ".nox",
    ".pnpm-store",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "venv",
];

/// A directory that is to be imported.
#[derive(Debug)]
pub struct Project {
    root: OwnedFd,
    /// Its absolute path without symlinks.
    pub path: PathBuf,
}

/// What an archive holds and what was left out of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Regular files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How often each of [`SKIPPED_NAMES`] was met.
    pub skipped: BTreeMap<&'static str, u64>,
    /// Sockets, pipes and devices, which no archive of a project can hold.
    pub special: Vec<PathBuf>,
}

impl Contents {
    /// What was left out, in sentences for the user.
    #[must_use]
    pub fn left_out(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.skipped.is_empty() {
            let names: Vec<String> = self
                .skipped
                .iter()
                .map(|(name, count)| match count {
                    1 => (*name).to_owned(),
                    _ => format!("{name} ({count} times)"),
                })
                .collect();
            lines.push(format!("not imported: {}", names.join(", ")));
        }
        for path in &self.special {
            let path = printable(&path.to_string_lossy());
            lines
                .push(format!("not imported: {path} is neither a file, a directory nor a symlink"));
        }
        lines
    }
}

impl Project {
    /// Opens a project directory.
    ///
    /// # Errors
    /// When it is not there, not a directory or not readable.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let what = || format!("the project {} cannot be read", path.display());
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(io::Error::from)
            .while_doing(what)?;
        let path = path.canonicalize().while_doing(what)?;
        Ok(Self { root, path })
    }

    /// The last part of the path, which names the environment.
    #[must_use]
    pub fn name(&self) -> Option<String> {
        Some(self.path.file_name()?.to_str()?.to_owned())
    }

    /// Writes the project as a tar archive, at its root or below a directory.
    ///
    /// # Errors
    /// As for [`archive::write`].
    pub fn write_archive(
        &self,
        out: impl Write,
        below: Option<&str>,
    ) -> Result<Contents, CliError> {
        archive::write(self.root.as_fd(), out, below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn project() -> tempfile::TempDir {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = dir.path();
        for name in [".git", "src", "src/node_modules", "deep/__pycache__", "empty"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        for (name, bytes) in [
            ("run.py", &b"print(1)\n"[..]),
            (".git/config", b"secret"),
            ("src/a.bin", b"\0\xff\x00"),
            ("src/node_modules/x.js", b"x"),
            ("deep/__pycache__/y", b"y"),
            (&format!("deep/{}", "n".repeat(200)), b"long"),
        ] {
            std::fs::write(root.join(name), bytes).unwrap();
        }
        std::fs::set_permissions(root.join("run.py"), PermissionsExt::from_mode(0o4755)).unwrap();
        symlink("../run.py", root.join("src/link")).unwrap();
        symlink("/etc", root.join("outside")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap());
        dir
    }

    #[test]
    fn the_archive_holds_the_project_and_nothing_else() {
        let dir = project();
        let mut bytes = Vec::new();
        let project = Project::open(dir.path()).unwrap();
        let contents = project.write_archive(&mut bytes, None).unwrap();
        assert_eq!((contents.files, contents.bytes), (3, 9 + 3 + 4));
        assert_eq!(
            contents.left_out(),
            [
                "not imported: .git, __pycache__, node_modules",
                "not imported: socket is neither a file, a directory nor a symlink",
            ]
        );
        let mut names = Vec::new();
        let mut archive = tar::Archive::new(bytes.as_slice());
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().into_owned();
            let name = path.to_string_lossy().trim_end_matches('/').to_owned();
            match name.as_str() {
                "project/run.py" => assert_eq!(entry.header().mode().unwrap(), 0o755),
                "project/src/a.bin" => {
                    let mut content = Vec::new();
                    entry.read_to_end(&mut content).unwrap();
                    assert_eq!(content, b"\0\xff\x00");
                }
                "project/src/link" => {
                    assert_eq!(entry.link_name().unwrap().unwrap(), Path::new("../run.py"));
                }
                "project/outside" => assert!(entry.header().entry_type().is_symlink()),
                _ => {}
            }
            names.push(name);
        }
        let long = format!("project/deep/{}", "n".repeat(200));
        assert_eq!(
            names,
            [
                "project",
                "project/deep",
                &long,
                "project/empty",
                "project/outside",
                "project/run.py",
                "project/src",
                "project/src/a.bin",
                "project/src/link",
            ]
        );
    }

    #[test]
    fn one_project_makes_one_archive() {
        let dir = project();
        let archive = || {
            let mut bytes = Vec::new();
            Project::open(dir.path()).unwrap().write_archive(&mut bytes, None).unwrap();
            bytes
        };
        assert!(archive() == archive());
    }

    #[test]
    fn a_reader_that_stops_ends_the_walk() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let dir = project();
        assert!(Project::open(dir.path()).unwrap().write_archive(Full, None).is_err());
    }

    #[test]
    fn only_directories_are_projects() {
        assert!(Project::open(Path::new("/etc/passwd")).is_err());
        assert!(Project::open(Path::new("/nonexistent")).is_err());
        assert_eq!(Project::open(Path::new("/")).unwrap().name(), None);
    }
}
