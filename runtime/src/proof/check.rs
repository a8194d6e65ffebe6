//! The warden's check: what init reports must be what the kernel shows from outside, and both
//! must be what the plan says.

use super::observe::{NAMESPACES, observe};
use super::{CapabilitySets, IdMapLine, MountLine, ProofRecord};
use crate::error::SetupError;
use crate::init::command::resource_limits;
use crate::init::privileges::{INIT_CAPABILITIES, SECUREBITS};
use crate::init::{landlock, locks};
use crate::launch::namespaces::outer_map;
use crate::launch::views::setup_of;
use crate::launch::{Launch, open_proc};
use crate::steps::includes;
use crate::wire::init::Access;
use std::collections::BTreeMap;
use std::fmt::Debug;

const STEP: &str = "check-proof";

/// Checks a record. The field that does not hold is named in the error.
///
/// Facts that only init can read (securebits, the state of Landlock) are compared with what the
/// plan demands; everything else is read again from `/proc`, which init cannot influence.
///
/// # Errors
/// The first field that differs.
pub fn check(launch: &Launch<'_>, record: &ProofRecord) -> Result<(), SetupError> {
    let check = Check { launch, record, seen: &see(launch, record)? };
    check.namespaces()?;
    check.id_maps()?;
    check.mounts()?;
    check.privileges()?;
    check.landlock()?;
    check.cgroups()?;
    check.rlimits()?;
    check.ids()
}

/// The same record as the kernel shows it to the warden.
fn see(launch: &Launch<'_>, record: &ProofRecord) -> Result<ProofRecord, SetupError> {
    let proc = open_proc(launch.pid())?;
    observe(&proc, record.securebits, record.landlock.clone())
}

struct Check<'a> {
    launch: &'a Launch<'a>,
    record: &'a ProofRecord,
    seen: &'a ProofRecord,
}

impl Check<'_> {
    fn includes(&self, step: &str) -> bool {
        includes(self.launch.request.steps, step)
    }

    fn namespaces(&self) -> Result<(), SetupError> {
        same("namespaces", &self.seen.namespaces, &self.record.namespaces)?;
        let own = &self.launch.launcher.namespaces;
        for name in NAMESPACES {
            let step = match name {
                "mnt" => "new-mount-namespace",
                "net" => "new-network-namespace",
                "cgroup" => "new-cgroup-namespace",
                "pid" => "new-pid-namespace",
                "ipc" => "new-ipc-namespace",
                "uts" => "new-uts-namespace",
                _ => "new-user-namespace",
            };
            let shared = own.get(name) == self.seen.namespaces.get(name);
            if shared && self.includes(step) {
                return Err(SetupError::mismatch(
                    STEP,
                    format!("namespaces.{name}"),
                    "one of the session's own",
                    "the warden's",
                ));
            }
        }
        Ok(())
    }

    fn id_maps(&self) -> Result<(), SetupError> {
        let outer = outer_map(self.launch.range(), self.launch.block());
        let (inside, outside) = if self.includes("lock-mounts") {
            let inner = locks::inner_map(self.launch.range());
            (inner.to_vec(), inner.iter().map(|line| through(line, &outer)).collect())
        } else {
            (outer.to_vec(), outer.to_vec())
        };
        same("uid_map", &inside, &self.record.uid_map)?;
        same("gid_map", &inside, &self.record.gid_map)?;
        same("uid_map (from outside)", &outside, &self.seen.uid_map)?;
        same("gid_map (from outside)", &outside, &self.seen.gid_map)
    }

    fn mounts(&self) -> Result<(), SetupError> {
        same("mounts", &self.seen.mounts, &self.record.mounts)?;
        if !self.includes("attach-views") || !self.includes("pivot-root") {
            return Ok(());
        }
        for wanted in setup_of(self.launch).mounts {
            let found = self.seen.mounts.iter().rfind(|mount| mount.target == wanted.target);
            let Some(found) = found else {
                return Err(SetupError::mismatch(STEP, "mounts", &wanted.target, "no mount there"));
            };
            self.view(found, wanted.access)?;
        }
        if self.includes("make-root-read-only") {
            let root = self.seen.mounts.iter().find(|mount| mount.target == "/");
            let read_only = root.is_some_and(|root| has(root, "ro") && root.filesystem == "tmpfs");
            require("mounts", read_only, "a read-only tmpfs at /", &root)?;
        }
        Ok(())
    }

    fn view(&self, mount: &MountLine, access: Access) -> Result<(), SetupError> {
        let demands = [
            ("ro", "make-views-read-only", access == Access::ReadOnly),
            ("nosuid", "deny-setuid-on-views", true),
            ("nodev", "deny-devices-on-views", true),
        ];
        for (option, step, applies) in demands {
            let holds = !applies || has(mount, option) || !self.includes(step);
            require("mounts", holds, &format!("{option} at {}", mount.target), &mount.options)?;
        }
        require("mounts", mount.propagation.is_empty(), "private mounts", &mount.propagation)
    }

    fn privileges(&self) -> Result<(), SetupError> {
        same("capabilities", &self.seen.capabilities, &self.record.capabilities)?;
        let kept = INIT_CAPABILITIES.iter().map(caps::Capability::bitmask).sum();
        if self.includes("drop-capabilities") && self.includes("drop-bounding-set") {
            let wanted = CapabilitySets {
                inheritable: 0,
                permitted: kept,
                effective: kept,
                bounding: 0,
                ambient: 0,
            };
            same("capabilities", &wanted, &self.seen.capabilities)?;
        }
        same("no_new_privs", &self.seen.no_new_privs, &self.record.no_new_privs)?;
        require(
            "no_new_privs",
            self.seen.no_new_privs || !self.includes("set-no-new-privs"),
            "1",
            &self.seen.no_new_privs,
        )?;
        if self.includes("lock-securebits") {
            same("securebits", &SECUREBITS.bits(), &self.record.securebits)?;
        }
        same("seccomp_mode", &self.seen.seccomp_mode, &self.record.seccomp_mode)?;
        same("seccomp_filters", &self.seen.seccomp_filters, &self.record.seccomp_filters)?;
        if self.includes("install-init-filter") {
            same("seccomp_mode", &2, &self.seen.seccomp_mode)?;
            let installed = self.launch.launcher.filters.init.len();
            require(
                "seccomp_filters",
                self.seen.seccomp_filters as usize >= installed,
                &installed.to_string(),
                &self.seen.seccomp_filters,
            )?;
        }
        Ok(())
    }

    fn landlock(&self) -> Result<(), SetupError> {
        if !self.includes("enforce-landlock") {
            return Ok(());
        }
        let wanted =
            landlock::facts(self.launch.launcher.landlock_abi, &setup_of(self.launch).mounts);
        same("landlock", &wanted, &self.record.landlock)
    }

    fn cgroups(&self) -> Result<(), SetupError> {
        for (controllers, path) in self.launch.cgroups() {
            let found = self.seen.cgroups.get(controllers);
            require("cgroups (from outside)", found == Some(path), path, &found)?;
            if self.includes("new-cgroup-namespace") {
                let inside = self.record.cgroups.get(controllers).map(String::as_str);
                require("cgroups", inside == Some("/"), "/", &inside)?;
            }
        }
        let hierarchies = |map: &BTreeMap<String, String>| map.keys().cloned().collect::<Vec<_>>();
        same("cgroups", &hierarchies(&self.seen.cgroups), &hierarchies(&self.record.cgroups))
    }

    fn rlimits(&self) -> Result<(), SetupError> {
        same("rlimits", &self.seen.rlimits, &self.record.rlimits)?;
        if !self.includes("lower-resource-limits") {
            return Ok(());
        }
        for (resource, value) in resource_limits(&self.launch.request.plan.limits) {
            let Some(name) = proc_name(resource) else { continue };
            let found = self.seen.rlimits.get(name).copied();
            let holds = found.is_some_and(|(soft, hard)| {
                [soft, hard].iter().all(|limit| limit.is_some_and(|limit| limit <= value))
            });
            require("rlimits", holds, &format!("{name} of at most {value}"), &found)?;
        }
        Ok(())
    }

    fn ids(&self) -> Result<(), SetupError> {
        let base = self.launch.block().base;
        same("uids", &[0; 4], &self.record.uids)?;
        same("gids", &[0; 4], &self.record.gids)?;
        same("uids (from outside)", &[base; 4], &self.seen.uids)?;
        same("gids (from outside)", &[base; 4], &self.seen.gids)?;
        same("groups", &self.seen.groups, &self.record.groups)?;
        same("groups", &Vec::<u32>::new(), &self.record.groups)
    }
}

/// An inner map line as the host sees it.
fn through(line: &IdMapLine, outer: &[IdMapLine]) -> IdMapLine {
    let found = outer
        .iter()
        .find(|o| line.outside >= o.inside && line.outside - o.inside < o.count)
        .map_or(u32::MAX, |o| o.outside + (line.outside - o.inside));
    IdMapLine { outside: found, ..*line }
}

fn has(mount: &MountLine, option: &str) -> bool {
    mount.options.split(',').any(|found| found == option)
}

fn proc_name(resource: rustix::process::Resource) -> Option<&'static str> {
    use rustix::process::Resource;
    match resource {
        Resource::Core => Some("Max core file size"),
        Resource::Nofile => Some("Max open files"),
        Resource::Nproc => Some("Max processes"),
        Resource::Memlock => Some("Max locked memory"),
        Resource::Rtprio => Some("Max realtime priority"),
        Resource::Msgqueue => Some("Max msgqueue size"),
        _ => None,
    }
}

fn same<T: PartialEq + Debug + ?Sized>(
    field: &str,
    expected: &T,
    found: &T,
) -> Result<(), SetupError> {
    if expected == found {
        return Ok(());
    }
    let text = |value: &T| {
        let text = format!("{value:?}");
        if text.len() > 400 {
            format!("{}…", text.chars().take(400).collect::<String>())
        } else {
            text
        }
    };
    Err(SetupError::mismatch(STEP, field, text(expected), text(found)))
}

fn require(field: &str, holds: bool, expected: &str, found: &impl Debug) -> Result<(), SetupError> {
    if holds {
        return Ok(());
    }
    Err(SetupError::mismatch(STEP, field, expected, format!("{found:?}")))
}
