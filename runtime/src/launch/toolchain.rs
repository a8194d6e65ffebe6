//! The toolchain `host`: the host's own `/usr`, and an `/etc` made of what programs need of it.

use crate::error::{AtStep, SetupError};
use rustix::fs::{CWD, FileType, Mode, OFlags, open, readlinkat, statat};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Directories of the host's root that are links into `/usr` on a merged-usr system.
const ROOT_DIRECTORIES: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What of the host's `/etc` a toolchain is made of: nothing with a secret, a host name, a user
/// or an address.
const ETC: &[&str] = &[
    "ImageMagick-6",
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "debian_version",
    "environment.d",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java-11-openjdk",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "magic",
    "magic.mime",
    "mailcap",
    "mime.types",
    "os-release",
    "perl",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Files of `/etc` that are the same in every session.
const TEMPLATES: &[(&str, &str)] = &[
    (
        "passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         agent:x:1000:1000:agent:/home/agent:/bin/bash\n\
         hangar-store:x:65530:65530:owner of frozen files:/nonexistent:/usr/sbin/nologin\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nhangar-store:x:65530:\nnogroup:x:65534:\n"),
    ("hosts", "127.0.0.1 localhost hangar\n::1 localhost ip6-localhost ip6-loopback\n"),
    ("hostname", "hangar\n"),
    (
        "resolv.conf",
        "# A session has no route to a name server; names are resolved by the proxy.\n",
    ),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n\
         protocols: files\nservices: files\nethers: files\nrpc: files\n",
    ),
    ("gitconfig", "[safe]\n\tdirectory = *\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

/// The host's own `/usr` as a toolchain.
#[derive(Debug)]
pub struct HostToolchain {
    directories: Vec<(String, OwnedFd)>,
    links: Vec<(String, String)>,
}

impl HostToolchain {
    /// Opens `/usr` and what else of the root holds programs and libraries.
    ///
    /// # Errors
    /// When `/usr` cannot be opened.
    pub fn open() -> Result<Self, SetupError> {
        let mut toolchain = Self { directories: Vec::new(), links: Vec::new() };
        toolchain.add_directory("usr")?;
        for name in ROOT_DIRECTORIES {
            let path = format!("/{name}");
            let Ok(stat) = statat(CWD, &path, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) else {
                continue;
            };
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                toolchain.add_directory(name)?;
                continue;
            }
            let target = readlinkat(CWD, &path, Vec::new())
                .at("open-views", || format!("readlink({path})"))?;
            let target = target.into_string().map_err(|_| {
                SetupError::other("open-views", format!("the link {path}"), "it is not UTF-8")
            })?;
            toolchain.links.push((name.to_owned(), target.trim_start_matches('/').to_owned()));
        }
        Ok(toolchain)
    }

    fn add_directory(&mut self, name: &str) -> Result<(), SetupError> {
        let path = format!("/{name}");
        let fd = open(&path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .at("open-views", || format!("open({path})"))?;
        self.directories.push((path, fd));
        Ok(())
    }

    /// Mount points and the directories that go there.
    pub fn directories(&self) -> impl Iterator<Item = (String, BorrowedFd<'_>)> {
        self.directories.iter().map(|(path, fd)| (path.clone(), fd.as_fd()))
    }

    /// Links of the root: name and target, relative to the root.
    #[must_use]
    pub fn links(&self) -> &[(String, String)] {
        &self.links
    }
}

/// Fills an empty directory with the `/etc` of the toolchain.
///
/// # Errors
/// When the host's `/etc` cannot be read or the directory not be written.
pub fn write_etc(into: BorrowedFd<'_>) -> Result<(), SetupError> {
    let target = PathBuf::from(format!("/proc/self/fd/{}", into.as_raw_fd()));
    write_etc_below(Path::new("/etc"), &target)
        .map_err(|error| SetupError::other("open-views", "making the toolchain's /etc", error))
}

fn write_etc_below(host: &Path, target: &Path) -> io::Result<()> {
    for name in ETC {
        let from = host.join(name);
        if from.symlink_metadata().is_err() {
            continue;
        }
        if let Some(parent) = Path::new(name).parent() {
            fs::create_dir_all(target.join(parent))?;
        }
        copy(&from, &target.join(name))?;
    }
    for (name, text) in TEMPLATES {
        fs::write(target.join(name), text)?;
        fs::set_permissions(target.join(name), fs::Permissions::from_mode(0o644))?;
    }
    symlink("/proc/self/mounts", target.join("mtab"))
}

/// Copies what everybody can read; a private file stays where it is.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let metadata = from.symlink_metadata()?;
    if metadata.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if metadata.permissions().mode() & 0o004 == 0 {
        return Ok(());
    }
    if metadata.is_dir() {
        fs::create_dir_all(to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    } else if metadata.is_file() {
        fs::copy(from, to)?;
        let executable = metadata.permissions().mode() & 0o111;
        fs::set_permissions(to, fs::Permissions::from_mode(0o644 | executable))?;
    }
    Ok(())
}
