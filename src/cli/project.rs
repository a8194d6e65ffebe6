//! A project directory as an archive for import.
//!
//! It is read with the rights of whoever runs `hangar`, and under `sudo` that is root while the
//! directory may belong to somebody else. So it is walked by descriptor and no symlink is ever
//! followed: a directory that is swapped for a link during the walk cannot make root read what
//! lies elsewhere.

use super::error::{CliError, While};
use super::terminal::printable;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
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

/// The one directory everything in the archive is below. The server removes a wrapping directory;
/// without this one, a project with a single directory at its root would lose that.
const WRAPPER: &str = "project";

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

    /// Writes the project as a tar archive.
    ///
    /// # Errors
    /// When something cannot be read, changes while it is read, or `out` fails. The archive has
    /// no end then and is refused by who receives it.
    pub fn write_archive(&self, out: impl Write) -> Result<Contents, CliError> {
        let mut archive = Archive { tar: tar::Builder::new(out), contents: Contents::default() };
        let stat = rustix::fs::fstat(&self.root).map_err(io::Error::from);
        let stat = stat.while_doing(|| reading(Path::new("")))?;
        archive.entry(Path::new(""), header(tar::EntryType::Directory, &stat), io::empty())?;
        archive.directory(self.root.as_fd(), Path::new(""), 0)?;
        archive.tar.into_inner().and_then(|mut out| out.flush()).while_doing(|| SENDING)?;
        Ok(archive.contents)
    }
}

const SENDING: &str = "the archive was not taken";

/// Directories in each other; each takes a descriptor while it is read.
const DEPTH_MAX: usize = 256;

struct Archive<W: Write> {
    tar: tar::Builder<W>,
    contents: Contents,
}

impl<W: Write> Archive<W> {
    fn directory(
        &mut self,
        directory: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), CliError> {
        if depth > DEPTH_MAX {
            return Err(CliError::new(format!("{} is nested too deep", path.display())));
        }
        for name in entries(directory).while_doing(|| reading(path))? {
            let text = OsStr::from_bytes(name.as_bytes());
            match SKIPPED_NAMES.iter().find(|skipped| text == **skipped) {
                Some(skipped) => *self.contents.skipped.entry(skipped).or_default() += 1,
                None => self.member(directory, &name, &path.join(text), depth)?,
            }
        }
        Ok(())
    }

    fn member(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CString,
        path: &Path,
        depth: usize,
    ) -> Result<(), CliError> {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(io::Error::from)
            .while_doing(|| reading(path))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let below = openat(directory, name, flags, Mode::empty())
                    .map_err(io::Error::from)
                    .while_doing(|| reading(path))?;
                self.entry(path, header(tar::EntryType::Directory, &stat), io::empty())?;
                self.directory(below.as_fd(), path, depth + 1)
            }
            FileType::RegularFile => self.file(directory, name, path),
            FileType::Symlink => {
                let target = readlinkat(directory, name, Vec::new())
                    .map_err(io::Error::from)
                    .while_doing(|| reading(path))?;
                self.symlink(path, &stat, OsStr::from_bytes(target.as_bytes()))
            }
            _ => {
                self.contents.special.push(path.to_owned());
                Ok(())
            }
        }
    }

    fn file(
        &mut self,
        directory: BorrowedFd<'_>,
        name: &CString,
        path: &Path,
    ) -> Result<(), CliError> {
        // NONBLOCK: were it swapped for a pipe, opening would wait for a writer.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = openat(directory, name, flags, Mode::empty())
            .map_err(io::Error::from)
            .while_doing(|| reading(path))?
            .into();
        let stat =
            rustix::fs::fstat(&file).map_err(io::Error::from).while_doing(|| reading(path))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(CliError::new(format!("{} changed while it was read", path.display())));
        }
        let header = header(tar::EntryType::Regular, &stat);
        self.contents.files += 1;
        self.contents.bytes += header.entry_size().unwrap_or(0);
        self.entry(path, header, file)
    }

    fn entry(
        &mut self,
        path: &Path,
        mut header: tar::Header,
        from: impl Read,
    ) -> Result<(), CliError> {
        let mut exact = Exact { from, left: header.entry_size().while_doing(|| reading(path))? };
        let written = self.tar.append_data(&mut header, Path::new(WRAPPER).join(path), &mut exact);
        if exact.left > 0 && written.is_ok() {
            return Err(CliError::new(format!(
                "{} became shorter while it was read",
                path.display()
            )));
        }
        written.while_doing(|| reading(path))
    }

    fn symlink(&mut self, path: &Path, stat: &Stat, target: &OsStr) -> Result<(), CliError> {
        let mut header = header(tar::EntryType::Symlink, stat);
        self.tar
            .append_link(&mut header, Path::new(WRAPPER).join(path), target)
            .while_doing(|| reading(path))
    }
}

/// What an archive keeps of a file besides its bytes: permissions, and the time of its last
/// change, by which tools see whether what they made of it is still good.
fn header(kind: tar::EntryType, stat: &Stat) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.st_mode & 0o777);
    header.set_mtime(u64::try_from(stat.st_mtime).unwrap_or(0));
    header.set_size(match kind {
        tar::EntryType::Regular => u64::try_from(stat.st_size).unwrap_or(0),
        _ => 0,
    });
    header
}

fn reading(path: &Path) -> String {
    match path.as_os_str().is_empty() {
        true => "the project's root cannot be read".to_owned(),
        false => format!("{} cannot be read", printable(&path.to_string_lossy())),
    }
}

/// The names in a directory, sorted, so that one project always makes one archive.
fn entries(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_owned();
        if !matches!(name.as_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Reads as many bytes as the header said and no more, whatever becomes of the file meanwhile.
struct Exact<R> {
    from: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.from.read(&mut buffer[..wanted])?;
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let contents = project.write_archive(&mut bytes).unwrap();
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
            Project::open(dir.path()).unwrap().write_archive(&mut bytes).unwrap();
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
        assert!(Project::open(dir.path()).unwrap().write_archive(Full).is_err());
    }

    #[test]
    fn a_file_that_shrinks_or_grows_is_noticed_or_cut() {
        let mut exact = Exact { from: &b"abcdef"[..], left: 4 };
        let mut bytes = Vec::new();
        exact.read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.as_slice(), exact.left), (&b"abcd"[..], 0));
        let mut exact = Exact { from: &b"ab"[..], left: 4 };
        exact.read_to_end(&mut bytes).unwrap();
        assert_eq!(exact.left, 2);
    }

    #[test]
    fn only_directories_are_projects() {
        assert!(Project::open(Path::new("/etc/passwd")).is_err());
        assert!(Project::open(Path::new("/nonexistent")).is_err());
        assert_eq!(Project::open(Path::new("/")).unwrap().name(), None);
    }
}
