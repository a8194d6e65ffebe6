//! Where the host gets its Debian packages from, and which it has: handed to the step that
//! downloads more of them.

use crate::app::{App, blocking, random_hex};
use crate::failure::{Failure, Tried};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// What of `/etc/apt` is handed over: sources, keys, pins. Not `auth.conf`, which has secrets, nor
/// `apt.conf`, whose settings are about the host.
const ETC: &[&str] = &[
    "sources.list",
    "sources.list.d",
    "trusted.gpg",
    "trusted.gpg.d",
    "keyrings",
    "preferences",
    "preferences.d",
];
/// Settings of the host that decide whether its sources can be read at all.
const SETTINGS: &[&str] =
    &["Acquire::Check-Valid-Until", "Acquire::Check-Date", "APT::Default-Release"];
/// Where a session unpacks it; keys that sources name by path are found there.
const UNPACKED: &str = "/home/agent/.hangar-apt/etc";

/// A tar archive of it, open for reading, with no name in any directory.
///
/// # Errors
/// When the host's files cannot be read.
pub async fn sources(app: &App) -> Result<OwnedFd, Failure> {
    let own = app.config.build.apt_sources.clone();
    let path = app.files.uploads().join(format!("{}.apt", random_hex()));
    let made = blocking(move || {
        let written = File::create(&path).and_then(|file| archive(file, own.as_deref()));
        let opened = written.and_then(|()| File::open(&path));
        // It is read through the descriptor from here on.
        let removed = std::fs::remove_file(&path);
        opened.and_then(|file| removed.map(|()| OwnedFd::from(file)))
    });
    made.await.tried("reading where the host gets its Debian packages from")
}

fn archive(file: File, own: Option<&str>) -> io::Result<()> {
    let mut tar = tar::Builder::new(io::BufWriter::new(file));
    for name in ETC {
        let is_source = name.starts_with("sources");
        match own {
            Some(_) if is_source => {}
            _ => add(&mut tar, &Path::new("/etc/apt").join(name), &format!("etc/{name}"))?,
        }
    }
    if let Some(text) = own {
        add_bytes(&mut tar, "etc/sources.list", text.as_bytes())?;
    }
    add_bytes(&mut tar, "apt.conf", settings().as_bytes())?;
    add_bytes(&mut tar, "status", &std::fs::read("/var/lib/dpkg/status")?)?;
    tar.into_inner()?.flush()
}

/// Adds a file, or the files of a directory; what is not there or not for everybody is left out.
fn add(tar: &mut tar::Builder<impl Write>, path: &Path, name: &str) -> io::Result<()> {
    let Ok(metadata) = path.metadata() else { return Ok(()) };
    if metadata.is_dir() {
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let file = entry.file_name();
            // As apt reads the directory: other endings are left over from edits.
            let read = ["list", "sources", "gpg", "asc", "pref"];
            let extension = Path::new(&file).extension().and_then(OsStr::to_str);
            let pin = name.ends_with("preferences.d") && extension.is_none();
            if pin || extension.is_some_and(|extension| read.contains(&extension)) {
                add(tar, &entry.path(), &format!("{name}/{}", file.to_string_lossy()))?;
            }
        }
        return Ok(());
    }
    match std::fs::read(path) {
        Ok(bytes) if name.starts_with("etc/sources") => {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if names_a_password(&text) {
                tracing::warn!("{} has a password and is not used by builds", path.display());
                return Ok(());
            }
            add_bytes(tar, name, text.replace("/etc/apt/", &format!("{UNPACKED}/")).as_bytes())
        }
        Ok(bytes) => add_bytes(tar, name, &bytes),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether an address in a source has a user name in front of its host.
fn names_a_password(sources: &str) -> bool {
    let addresses = sources.split("://").skip(1);
    addresses.filter_map(|rest| rest.split(['/', ' ', '\n']).next()).any(|host| host.contains('@'))
}

fn add_bytes(tar: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    tar.append_data(&mut header, name, bytes)
}

/// The settings, as apt's own tool reads them from the host's configuration.
fn settings() -> String {
    let mut command = Command::new("/usr/bin/apt-config");
    command.arg("shell").env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    for (index, name) in SETTINGS.iter().enumerate() {
        command.arg(format!("S{index}")).arg(name);
    }
    let told = command.output().map(|output| output.stdout).unwrap_or_default();
    let told = String::from_utf8_lossy(&told).into_owned();
    let value = |index: usize| {
        let line = told.lines().find_map(|line| line.strip_prefix(&format!("S{index}=")))?;
        let value = line.trim_matches('\'');
        value.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)).then_some(value)
    };
    let known = SETTINGS.iter().enumerate().filter_map(|(index, name)| Some((name, value(index)?)));
    known.map(|(name, value)| format!("{name} \"{value}\";\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_sources_are_noticed() {
        assert!(names_a_password("deb https://user:word@example.org/debian stable main"));
        assert!(names_a_password("URIs: https://example.org/a https://me@example.org/b\n"));
        assert!(!names_a_password(
            "deb [signed-by=/k/a@b.gpg] https://example.org/x@y stable main"
        ));
    }

    #[test]
    fn settings_are_read_by_apts_own_tool() {
        assert!(settings().lines().all(|line| line.ends_with("\";")), "{}", settings());
    }
}
