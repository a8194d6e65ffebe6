//! The walk over a project and the archive it makes.
//!
//! The project is read with the rights of whoever runs `hangar`, and under `sudo` that is root
//! while the directory may belong to somebody else. So it is walked by descriptor and no symlink
//! is ever followed: a directory that is swapped for a link during the walk cannot make root read
//! what lies elsewhere.

use super::error::{CliError, While};
use super::project::{Contents, SKIPPED_NAMES};
use super::terminal::printable;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, readlinkat, statat};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The one directory everything in the archive is below. The server removes a wrapping directory;
/// without this one, a project with a single directory at its root would lose that.
const WRAPPER: &str = "project";

/// Writes what lies below a directory as a tar archive, where all of it lies `below` another.
///
/// # Errors
/// When something cannot be read, changes while it is read, or `out` fails. The archive has no end
/// then and is refused by who receives it.
pub fn write(
    root: BorrowedFd<'_>,
    out: impl Write,
    below: Option<&str>,
) -> Result<Contents, CliError> {
    let top = Path::new(WRAPPER).join(below.unwrap_or_default());
    let mut archive = Archive { tar: tar::Builder::new(out), top, contents: Contents::default() };
    let stat = rustix::fs::fstat(root).map_err(io::Error::from);
    let stat = stat.while_doing(|| reading(Path::new("")))?;
    archive.entry(Path::new(""), header(tar::EntryType::Directory, &stat), io::empty())?;
    archive.directory(root, Path::new(""), 0)?;
    let end = archive.tar.into_inner().and_then(|mut out| out.flush());
    end.while_doing(|| "the archive was not taken")?;
    Ok(archive.contents)
}

/// Directories in each other; each takes a descriptor while it is read.
const DEPTH_MAX: usize = 256;

struct Archive<W: Write> {
    tar: tar::Builder<W>,
    top: PathBuf,
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
        let written = self.tar.append_data(&mut header, self.top.join(path), &mut exact);
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
        self.tar.append_link(&mut header, self.top.join(path), target).while_doing(|| reading(path))
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
}
