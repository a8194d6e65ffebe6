//! The cgroup hierarchies of the host, and directories in them.

use super::{Controller, STEP};
use crate::error::{AtStep, Cause, SetupError};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A directory of a cgroup filesystem.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: OwnedFd,
    /// The path of the directory on the host, for messages.
    pub(super) path: String,
    /// The path as `/proc/<pid>/cgroup` spells it.
    pub(super) cgroup: String,
    /// The controllers of the hierarchy as `/proc/<pid>/cgroup` lists them.
    pub(super) list: String,
    parent: Option<Rc<Place>>,
}

impl Place {
    fn open(path: String, cgroup: String, list: String) -> Result<Rc<Self>, SetupError> {
        let dir = openat(CWD, &*path, DIRECTORY, Mode::empty())
            .at(STEP, || format!("open({path}, DIRECTORY)"))?;
        Ok(Rc::new(Self { dir, path, cgroup, list, parent: None }))
    }

    pub(super) fn parent(&self) -> Option<&Rc<Self>> {
        self.parent.as_ref()
    }

    /// The last component.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or("")
    }

    /// Makes a directory below, where it is missing.
    pub(super) fn child(self: &Rc<Self>, name: &str) -> Result<Rc<Self>, SetupError> {
        match self.new_child(name) {
            Err(SetupError { cause: Cause::Errno(Errno::EXIST), .. }) => self.open_child(name),
            other => other,
        }
    }

    /// Makes a directory below that is not there yet.
    pub(super) fn new_child(self: &Rc<Self>, name: &str) -> Result<Rc<Self>, SetupError> {
        mkdirat(&self.dir, name, Mode::from_raw_mode(0o755))
            .at(STEP, || format!("mkdir({}/{name})", self.path))?;
        self.open_child(name)
    }

    fn open_child(self: &Rc<Self>, name: &str) -> Result<Rc<Self>, SetupError> {
        let path = format!("{}/{name}", self.path);
        let dir = openat(&self.dir, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())
            .at(STEP, || format!("open({path}, DIRECTORY)"))?;
        let cgroup = format!("{}/{name}", self.cgroup.trim_end_matches('/'));
        let parent = Some(Rc::clone(self));
        Ok(Rc::new(Self { dir, path, cgroup, list: self.list.clone(), parent }))
    }

    /// Lets the groups below have these v2 controllers.
    pub(super) fn enable(&self, controllers: &[Controller]) -> Result<(), SetupError> {
        for controller in controllers {
            self.write("cgroup.subtree_control", &format!("+{}", controller.name()))?;
        }
        Ok(())
    }

    /// Opens `cgroup.procs` for moving processes here.
    pub(super) fn open_procs(&self) -> Result<OwnedFd, SetupError> {
        openat(&self.dir, "cgroup.procs", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .at(STEP, || format!("open({}/cgroup.procs, WRONLY)", self.path))
    }

    /// Writes a value in one call.
    pub(super) fn write(&self, file: &str, value: &str) -> Result<(), SetupError> {
        let write = || {
            let fd = openat(&self.dir, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::retry_on_intr(|| rustix::io::write(&fd, value.as_bytes()))
        };
        write().at(STEP, || format!("write({}/{file}, {value:?})", self.path))?;
        Ok(())
    }

    /// Writes a value and checks that the kernel keeps it, as `kept` says it should read.
    pub(super) fn set(&self, file: &str, value: &str, kept: &str) -> Result<(), SetupError> {
        self.write(file, value)?;
        let found = self.read(file)?;
        if found.trim_end() == kept {
            return Ok(());
        }
        Err(SetupError::mismatch(STEP, format!("{}/{file}", self.path), kept, found.trim_end()))
    }

    /// Reads a whole file.
    pub(super) fn read(&self, file: &str) -> Result<String, SetupError> {
        let read = || {
            let fd = openat(&self.dir, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                match rustix::io::read(&fd, &mut buffer) {
                    Ok(0) => return Ok(bytes),
                    Ok(n) => bytes.extend_from_slice(&buffer[..n]),
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        };
        let bytes: Vec<u8> = read().at(STEP, || format!("read({}/{file})", self.path))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The number after `key` in a file of `key number` lines; 0 when the key is not there.
    pub(super) fn read_counter(&self, file: &str, key: &str) -> Result<u64, SetupError> {
        let text = self.read(file)?;
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        Ok(value.and_then(|number| number.trim().parse().ok()).unwrap_or(0))
    }

    /// Whether the group has this file: it depends on the kernel and its configuration.
    pub(super) fn has(&self, file: &str) -> bool {
        rustix::fs::accessat(
            &self.dir,
            file,
            rustix::fs::Access::EXISTS,
            rustix::fs::AtFlags::empty(),
        )
        .is_ok()
    }

    /// The names of the groups below.
    pub(super) fn children(&self) -> Result<Vec<String>, SetupError> {
        let list = || {
            let mut names = Vec::new();
            for entry in Dir::read_from(&self.dir)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy();
                if entry.file_type() == FileType::Directory && name != "." && name != ".." {
                    names.push(name.into_owned());
                }
            }
            Ok::<_, Errno>(names)
        };
        list().at(STEP, || format!("readdir({})", self.path))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Where cgroup filesystems are mounted and where this process is in them.
pub(super) struct Hierarchies {
    mounts: Vec<Mount>,
    /// `(controllers, path)` of each line of `/proc/self/cgroup`.
    own: Vec<(String, String)>,
}

struct Mount {
    root: String,
    target: String,
    v2: bool,
    super_options: String,
}

impl Hierarchies {
    pub(super) fn read() -> Result<Self, SetupError> {
        let read = |path: &str| std::fs::read_to_string(path).at(STEP, || format!("read({path})"));
        Ok(Self {
            mounts: parse_mounts(&read("/proc/self/mountinfo")?),
            own: parse_own(&read("/proc/self/cgroup")?),
        })
    }

    /// The group that hangar's v2 groups lie below, and which of these controllers it can use.
    pub(super) fn unified_parent(
        &self,
        wanted: &[Controller],
    ) -> Result<(Rc<Place>, Vec<Controller>), SetupError> {
        let mount = self.mounts.iter().find(|mount| mount.v2).ok_or_else(|| {
            SetupError::other(STEP, "find(cgroup2)", "no cgroup v2 hierarchy is mounted")
        })?;
        let root = Place::open(mount.target.clone(), mount.root.clone(), String::new())?;
        let own = self.own.iter().find(|(list, _)| list.is_empty()).map(|(_, path)| path.as_str());
        let parent = match own.and_then(|path| delegated(mount, path)) {
            Some((path, cgroup)) => {
                let group = Place::open(path, cgroup, String::new())?;
                move_processes_to_a_leaf(&group)?;
                group
            }
            None => root,
        };
        let available = parent.read("cgroup.controllers")?;
        let has = |c: &Controller| available.split_whitespace().any(|name| name == c.name());
        let controllers = wanted.iter().copied().filter(has).collect();
        Ok((parent, controllers))
    }

    /// This process's own group in the v1 hierarchy of a controller.
    pub(super) fn v1_parent(&self, controller: Controller) -> Result<Rc<Place>, SetupError> {
        let lists = |list: &str| list.split(',').any(|name| name == controller.name());
        let missing = || {
            let call = format!("find({})", controller.name());
            SetupError::other(STEP, call, "the controller is on no mounted hierarchy")
        };
        let mount = self.mounts.iter().find(|m| !m.v2 && lists(&m.super_options));
        let mount = mount.ok_or_else(missing)?;
        let (list, own) = self.own.iter().find(|(list, _)| lists(list)).ok_or_else(missing)?;
        let below = below(&mount.root, own);
        let path = format!("{}{below}", mount.target);
        Place::open(path, own.clone(), list.clone())
    }
}

/// What is left of a group's path below the group that a mount shows.
fn below(root: &str, own: &str) -> String {
    let rest = if root == "/" { Some(own) } else { own.strip_prefix(root) };
    rest.map(|rest| rest.trim_end_matches('/')).unwrap_or("").to_owned()
}

/// The own group, if the service manager delegated it to this process.
///
/// systemd marks such a group by an attribute; root can write to every group, so that trying
/// would not tell.
fn delegated(mount: &Mount, own: &str) -> Option<(String, String)> {
    let below = below(&mount.root, own);
    if below.is_empty() {
        return None;
    }
    let path = format!("{}{below}", mount.target);
    let marked = ["trusted.delegate", "user.delegate"].iter().any(|attribute| {
        let mut value = [0u8; 8];
        rustix::fs::getxattr(&*path, *attribute, &mut value)
            .is_ok_and(|length| value[..length] == *b"1")
    });
    marked.then(|| (path, own.to_owned()))
}

/// Makes room for groups with controllers: only a group without processes can have them.
fn move_processes_to_a_leaf(group: &Rc<Place>) -> Result<(), SetupError> {
    let leaf = group.child("supervisor")?;
    for pid in group.read("cgroup.procs")?.lines() {
        leaf.write("cgroup.procs", pid)?;
    }
    Ok(())
}

fn parse_own(text: &str) -> Vec<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            Some((parts.next()?.to_owned(), parts.next()?.to_owned()))
        })
        .collect()
}

fn parse_mounts(text: &str) -> Vec<Mount> {
    text.lines()
        .filter_map(|line| {
            let (mount, filesystem) = line.split_once(" - ")?;
            let mut filesystem = filesystem.split(' ');
            let kind = filesystem.next()?;
            let super_options = filesystem.nth(1)?.to_owned();
            let v2 = match kind {
                "cgroup2" => true,
                "cgroup" => false,
                _ => return None,
            };
            let mut mount = mount.split(' ').skip(3);
            let (root, target) = (unescape(mount.next()?), unescape(mount.next()?));
            Some(Mount { root, target, v2, super_options })
        })
        .collect()
}

/// Undoes the `\040` of `/proc/<pid>/mountinfo`.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        match part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_mounts_are_read_from_mountinfo() {
        let mounts = parse_mounts(
            "30 1 8:1 / / rw - ext4 /dev/vda rw\n\
             31 30 0:26 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n\
             32 30 0:27 /a\\040b /sys/fs/c\\134g rw - cgroup2 cgroup2 rw,nsdelegate\n\
             short line\n",
        );
        assert_eq!(mounts.len(), 2);
        assert!(!mounts[0].v2);
        assert_eq!(mounts[0].super_options, "rw,cpu,cpuacct");
        assert_eq!((mounts[1].root.as_str(), mounts[1].target.as_str()), ("/a b", "/sys/fs/c\\g"));
    }

    #[test]
    fn own_groups_are_read_from_proc() {
        let own = parse_own("4:memory:/a:b\n2:cpu,cpuacct:/\n0::/system.slice/h.service\n");
        assert_eq!(own[0], ("memory".into(), "/a:b".into()));
        assert_eq!(own[2], (String::new(), "/system.slice/h.service".into()));
    }

    #[test]
    fn paths_below_a_mount_of_a_part() {
        assert_eq!(below("/", "/"), "");
        assert_eq!(below("/", "/a/b"), "/a/b");
        assert_eq!(below("/a", "/a/b"), "/b");
        assert_eq!(below("/x", "/a/b"), "");
    }
}
