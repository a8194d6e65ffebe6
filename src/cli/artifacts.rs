//! Copies what a session wrote to its working directory.
//!
//! Names and bytes come from the session and are written with the rights of whoever runs
//! `hangar`. So a path is taken apart and walked by descriptor below the destination, no symlink
//! is followed or written through, and a file appears under its name only when it is whole.

use super::client::Client;
use super::error::{CliError, While};
use super::terminal::printable;
use super::wire::{Artifact, Artifacts};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// A directory that receives artifacts.
#[derive(Debug)]
pub struct Destination {
    root: OwnedFd,
}

/// The artifacts of a session as the server lists them.
///
/// # Errors
/// Those of the request.
pub async fn list(client: &Client, session: &str) -> Result<Artifacts, CliError> {
    client.get(&format!("/v1/sessions/{session}/files")).await
}

impl Destination {
    /// Makes the directory where it is missing, and opens it.
    ///
    /// # Errors
    /// When it cannot be made, or is no directory.
    pub fn create(path: &Path) -> Result<Self, CliError> {
        let what = || format!("artifacts cannot be written to {}", path.display());
        std::fs::create_dir_all(path).while_doing(what)?;
        let root = rustix::fs::open(path, directory_flags() & !OFlags::NOFOLLOW, Mode::empty())
            .map_err(io::Error::from)
            .while_doing(what)?;
        Ok(Self { root })
    }

    /// Fetches an artifact.
    ///
    /// # Errors
    /// When its name is not one that can stand below the destination, it cannot be fetched
    /// whole, or it cannot be written.
    pub async fn fetch(&self, client: &Client, artifact: &Artifact) -> Result<(), CliError> {
        let shown = printable(&artifact.path);
        let what = || format!("the artifact {shown} was not copied");
        let path = format!(
            "/v1/containers/{}/files/{}/content",
            id(&artifact.container_id)?,
            id(&artifact.id)?
        );
        let mut incoming = Incomplete::create(&self.root, &artifact.path).while_doing(what)?;
        let mut body: Incoming = client.stream(&path).await.while_doing(what)?.into_body();
        while let Some(frame) = body.frame().await {
            if let Ok(bytes) = frame.while_doing(what)?.into_data() {
                incoming.file.write_all(&bytes).while_doing(what)?;
            }
        }
        incoming.complete().while_doing(what)
    }
}

/// An id from the server as a part of a path of the API.
fn id(text: &str) -> Result<&str, CliError> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    match !text.is_empty() && text.bytes().all(plain) {
        true => Ok(text),
        false => Err(CliError::new("the server named a file by something that is no id")),
    }
}

fn directory_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC
}

/// A file that is being received, under a name nobody looks for.
struct Incomplete {
    directory: OwnedFd,
    file: File,
    temporary: String,
    name: String,
    complete: bool,
}

impl Incomplete {
    fn create(root: &OwnedFd, path: &str) -> io::Result<Self> {
        let (directories, name) = components(path)?;
        let mut directory = root.try_clone()?;
        for component in directories {
            match mkdirat(&directory, component, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
            directory = openat(&directory, component, directory_flags(), Mode::empty())?;
        }
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (temporary, file) = loop {
            let temporary = format!(".hangar-incoming-{:016x}", random()?);
            match openat(directory.as_fd(), &temporary, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => break (temporary, File::from(file)),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        Ok(Self { directory, file, temporary, name: name.to_owned(), complete: false })
    }

    /// Gives the file its name; what had it before, a symlink too, is replaced and not followed.
    fn complete(mut self) -> io::Result<()> {
        renameat(&self.directory, &self.temporary, &self.directory, &self.name)?;
        self.complete = true;
        Ok(())
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        if !self.complete {
            // The error that led here is the one to tell.
            let _gone = unlinkat(&self.directory, &self.temporary, AtFlags::empty());
        }
    }
}

fn random() -> io::Result<u64> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()))
}

/// The directories and the name of a relative path, each a plain component.
fn components(path: &str) -> io::Result<(Vec<&str>, &str)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    let plain = |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains('\0');
    match (parts.iter().all(plain), parts.pop()) {
        (true, Some(name)) => Ok((parts, name)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "its name is not a relative path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn write(destination: &Destination, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut incoming = Incomplete::create(&destination.root, path)?;
        incoming.file.write_all(bytes)?;
        incoming.complete()
    }

    #[test]
    fn files_land_below_the_destination() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let destination = Destination::create(&dir.path().join("new/out")).unwrap();
        write(&destination, "a/b/c.png", b"\0one").unwrap();
        write(&destination, "a/b/c.png", b"two").unwrap();
        write(&destination, "..a", b"dots").unwrap();
        assert_eq!(std::fs::read(dir.path().join("new/out/a/b/c.png")).unwrap(), b"two");
        assert_eq!(std::fs::read(dir.path().join("new/out/..a")).unwrap(), b"dots");
        drop(Incomplete::create(&destination.root, "a/b/cut").unwrap());
        assert_eq!(std::fs::read_dir(dir.path().join("new/out/a/b")).unwrap().count(), 1);
    }

    #[test]
    fn no_name_leads_out() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let out = dir.path().join("out");
        let destination = Destination::create(&out).unwrap();
        for bad in ["", "/etc/x", "../x", "a/../../x", "a//b", "a/", ".", "..", "a/./b", "a\0b"] {
            assert!(write(&destination, bad, b"x").is_err(), "{bad:?}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(id("file_../../x").is_err() && id("").is_err() && id("file_0a").is_ok());
    }

    #[test]
    fn symlinks_are_replaced_or_refused_and_never_followed() {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let out = dir.path().join("out");
        let destination = Destination::create(&out).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, b"kept").unwrap();
        symlink(&victim, out.join("file")).unwrap();
        symlink(dir.path(), out.join("directory")).unwrap();
        write(&destination, "file", b"new").unwrap();
        assert!(write(&destination, "directory/victim", b"new").is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"kept");
        assert!(out.join("file").symlink_metadata().unwrap().is_file());
    }
}
