//! Reading the facts of a process from its directory in `/proc`.
//!
//! init reads its own; the warden reads the same files from outside with the same code.

use super::{CapabilitySets, IdMapLine, LandlockFacts, MountLine, ProofRecord};
use crate::error::{AtStep, SetupError};
use rustix::fs::{Mode, OFlags, open, openat, readlinkat};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

const STEP: &str = "check-proof";

/// The namespaces every session has of its own.
pub const NAMESPACES: [&str; 7] = ["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"];

/// Reads the facts of this process. Securebits and Landlock are not in `/proc`.
///
/// # Errors
/// When a file is missing or not in the format the kernel documents.
pub fn observe_self(landlock: LandlockFacts) -> Result<ProofRecord, SetupError> {
    let dir = open("/proc/self", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at(STEP, || "open(/proc/self)")?;
    let securebits =
        rustix::thread::capabilities_secure_bits().at(STEP, || "prctl(PR_GET_SECUREBITS)")?.bits();
    observe(&dir, securebits, landlock)
}

/// The namespaces of this process.
///
/// # Errors
/// As for [`observe_self`].
pub fn own_namespaces() -> Result<BTreeMap<String, u64>, SetupError> {
    let dir = open("/proc/self", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at(STEP, || "open(/proc/self)")?;
    namespaces(&dir)
}

/// Reads the facts of the process whose directory this is.
///
/// # Errors
/// As for [`observe_self`].
pub fn observe(
    dir: &OwnedFd,
    securebits: u32,
    landlock: LandlockFacts,
) -> Result<ProofRecord, SetupError> {
    let text = read(dir, "status")?;
    let status = Status::parse(&text);
    Ok(ProofRecord {
        namespaces: namespaces(dir)?,
        uid_map: id_map(&read(dir, "uid_map")?)?,
        gid_map: id_map(&read(dir, "gid_map")?)?,
        mounts: mounts(&read(dir, "mountinfo")?)?,
        capabilities: CapabilitySets {
            inheritable: status.hex("CapInh")?,
            permitted: status.hex("CapPrm")?,
            effective: status.hex("CapEff")?,
            bounding: status.hex("CapBnd")?,
            ambient: status.hex("CapAmb")?,
        },
        no_new_privs: status.number("NoNewPrivs")? == 1,
        securebits,
        seccomp_mode: status.number("Seccomp")?,
        seccomp_filters: status.number("Seccomp_filters")?,
        landlock,
        cgroups: cgroups(&read(dir, "cgroup")?),
        rlimits: rlimits(&read(dir, "limits")?)?,
        uids: status.four("Uid")?,
        gids: status.four("Gid")?,
        groups: status.list("Groups")?,
    })
}

fn read(dir: &OwnedFd, name: &str) -> Result<String, SetupError> {
    let fd = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .at(STEP, || format!("open(/proc/<init>/{name})"))?;
    let mut bytes = Vec::with_capacity(8192);
    let mut chunk = [0; 16 << 10];
    loop {
        match rustix::io::read(&fd, &mut chunk).at(STEP, || format!("read(/proc/<init>/{name})"))? {
            0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}

fn namespaces(dir: &OwnedFd) -> Result<BTreeMap<String, u64>, SetupError> {
    NAMESPACES
        .iter()
        .map(|name| {
            let link = readlinkat(dir, format!("ns/{name}"), Vec::new())
                .at(STEP, || format!("readlink(/proc/<init>/ns/{name})"))?;
            let text = link.to_string_lossy();
            let number = text
                .split_once('[')
                .and_then(|(_, rest)| rest.strip_suffix(']')?.parse().ok())
                .ok_or_else(|| malformed("ns", &text))?;
            Ok(((*name).to_owned(), number))
        })
        .collect()
}

fn id_map(text: &str) -> Result<Vec<IdMapLine>, SetupError> {
    text.lines()
        .map(|line| {
            let mut fields = line.split_whitespace().map(str::parse);
            match (fields.next(), fields.next(), fields.next()) {
                (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))) => {
                    Ok(IdMapLine { inside, outside, count })
                }
                _ => Err(malformed("uid_map", line)),
            }
        })
        .collect()
}

fn mounts(text: &str) -> Result<Vec<MountLine>, SetupError> {
    text.lines().map(|line| mount_line(line).ok_or_else(|| malformed("mountinfo", line))).collect()
}

fn mount_line(line: &str) -> Option<MountLine> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ');
    let id = left.next()?.parse().ok()?;
    let parent = left.next()?.parse().ok()?;
    let _device = left.next()?;
    let root = left.next()?.to_owned();
    let target = left.next()?.to_owned();
    let options = left.next()?.to_owned();
    let propagation = left.collect::<Vec<_>>().join(" ");
    let mut right = right.split(' ');
    let filesystem = right.next()?.to_owned();
    let _source = right.next()?;
    let super_options = right.next().unwrap_or("").to_owned();
    Some(MountLine { id, parent, root, target, options, propagation, filesystem, super_options })
}

fn cgroups(text: &str) -> BTreeMap<String, String> {
    text.lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':');
            let _hierarchy = fields.next()?;
            Some((fields.next()?.to_owned(), fields.next()?.to_owned()))
        })
        .collect()
}

type RlimitTable = BTreeMap<String, (Option<u64>, Option<u64>)>;

fn rlimits(text: &str) -> Result<RlimitTable, SetupError> {
    text.lines()
        .skip(1)
        .map(|line| {
            // The name is padded to 26 columns and has single spaces in it.
            let (name, rest) =
                line.split_at_checked(26).ok_or_else(|| malformed("limits", line))?;
            let mut values = rest.split_whitespace().map(|value| match value {
                "unlimited" => Ok(None),
                number => number.parse().map(Some),
            });
            match (values.next(), values.next()) {
                (Some(Ok(soft)), Some(Ok(hard))) => Ok((name.trim().to_owned(), (soft, hard))),
                _ => Err(malformed("limits", line)),
            }
        })
        .collect()
}

struct Status<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Status<'a> {
    fn parse(text: &'a str) -> Self {
        Self(text.lines().filter_map(|line| line.split_once(':')).collect())
    }

    fn field(&self, name: &str) -> Result<&'a str, SetupError> {
        self.0.get(name).copied().map(str::trim).ok_or_else(|| malformed("status", name))
    }

    fn hex(&self, name: &str) -> Result<u64, SetupError> {
        let text = self.field(name)?;
        u64::from_str_radix(text, 16).map_err(|_| malformed("status", text))
    }

    fn number(&self, name: &str) -> Result<u32, SetupError> {
        let text = self.field(name)?;
        text.parse().map_err(|_| malformed("status", text))
    }

    fn list(&self, name: &str) -> Result<Vec<u32>, SetupError> {
        let text = self.field(name)?;
        text.split_whitespace()
            .map(|part| part.parse().map_err(|_| malformed("status", text)))
            .collect()
    }

    fn four(&self, name: &str) -> Result<[u32; 4], SetupError> {
        self.list(name)?.try_into().map_err(|_| malformed("status", name))
    }
}

fn malformed(file: &str, text: &str) -> SetupError {
    SetupError::other(STEP, format!("parsing /proc/<init>/{file}"), format!("at {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_observed() {
        let record = observe_self(LandlockFacts::none(0)).unwrap();
        assert_eq!(record.namespaces.len(), 7);
        assert!(record.mounts.iter().any(|mount| mount.target == "/"));
        assert!(record.rlimits.contains_key("Max open files"));
        assert_eq!(record.uids[0], rustix::process::getuid().as_raw());
    }

    #[test]
    fn a_mount_line_is_taken_apart() {
        let line = "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 shared:2 - ext3 /dev/root rw";
        let mount = mount_line(line).unwrap();
        assert_eq!((mount.id, mount.parent), (36, 35));
        assert_eq!(mount.target, "/mnt/a\\040b");
        assert_eq!(mount.propagation, "master:1 shared:2");
        assert_eq!((mount.filesystem.as_str(), mount.super_options.as_str()), ("ext3", "rw"));
        assert!(mount_line("36 35").is_none());
    }
}
