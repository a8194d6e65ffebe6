//! Giving up root: a mount namespace in which the API can still reach its files, then every id
//! and capability.

use super::ServeError;
use super::directories::StateDirectory;
use hangar_runtime::ids::Range;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    move_mount, open_tree,
};
use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use std::path::{Path, PathBuf};

/// Where the API finds its files after the drop, in its own mount namespace only.
const FIXED: &str = "/run/hangar";

fn fail(step: &'static str) -> impl Fn(rustix::io::Errno) -> ServeError {
    move |errno| ServeError::step(step, errno)
}

/// Binds the API's directories to a fixed path in a mount namespace of this process, so that it
/// reaches them without the right to walk the path of the state directory, which can lie below a
/// directory of root. The answer is the fixed path.
pub(super) fn enter_mount_namespace(state: &StateDirectory) -> Result<PathBuf, ServeError> {
    std::fs::create_dir_all(FIXED).map_err(|e| ServeError::step(format!("making {FIXED}"), e))?;
    #[expect(deprecated, reason = "the other form is unsafe for flags that are not used here")]
    rustix::thread::unshare(UnshareFlags::NEWNS).map_err(fail("unshare(NEWNS)"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(fail("making the mounts private"))?;
    // Taken before the fixed path is covered: the state directory can lie there.
    let mut trees = Vec::new();
    for name in ["api", "run"] {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, state.path.join(name), flags).map_err(fail("open_tree"))?;
        trees.push((name, tree));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("hangar", FIXED, "tmpfs", flags, c"mode=0755,size=64k")
        .map_err(fail("mounting the fixed path"))?;
    for (name, tree) in trees {
        let target = Path::new(FIXED).join(name);
        std::fs::create_dir(&target).map_err(|e| ServeError::step("making a mount point", e))?;
        let target = openat(CWD, &target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(fail("opening a mount point"))?;
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(&tree, "", &target, "", flags).map_err(fail("move_mount"))?;
    }
    Ok(PathBuf::from(FIXED))
}

/// Becomes the API's user for ever: ids, groups, every capability set, no_new_privs. What was
/// dropped is read back.
pub(super) fn drop_all(range: Range) -> Result<(), ServeError> {
    std::env::set_current_dir("/").map_err(|e| ServeError::step("leaving the directory", e))?;
    set_no_new_privs(true).map_err(fail("no_new_privs"))?;
    drop_bounding_set()?;
    clear_ambient_capability_set().map_err(fail("clearing the ambient set"))?;
    set_thread_groups(&[]).map_err(fail("dropping the groups"))?;
    let (uid, gid) = (Uid::from_raw(range.api()), Gid::from_raw(range.api()));
    set_thread_res_gid(gid, gid, gid).map_err(fail("changing the gid"))?;
    set_thread_res_uid(uid, uid, uid).map_err(fail("changing the uid"))?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(fail("dropping the capabilities"))?;
    check_dropped(range.api())
}

fn drop_bounding_set() -> Result<(), ServeError> {
    for capability in CapabilitySet::all().iter() {
        // One the kernel does not know is an error; nobody can have it.
        if capability_is_in_bounding_set(capability).unwrap_or(false) {
            remove_capability_from_bounding_set(capability)
                .map_err(fail("dropping the bounding set"))?;
        }
    }
    Ok(())
}

/// Reads back what the process is now.
fn check_dropped(uid: u32) -> Result<(), ServeError> {
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|e| ServeError::step("reading back the privileges", e))?;
    let ids = format!("{uid}\t{uid}\t{uid}\t{uid}");
    let expected = [
        ("Uid", ids.as_str()),
        ("Gid", &ids),
        ("Groups", ""),
        ("CapInh", NO_CAPABILITIES),
        ("CapPrm", NO_CAPABILITIES),
        ("CapEff", NO_CAPABILITIES),
        ("CapBnd", NO_CAPABILITIES),
        ("CapAmb", NO_CAPABILITIES),
        ("NoNewPrivs", "1"),
    ];
    for (field, expected) in expected {
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let found = line.unwrap_or("nothing").trim();
        if found != expected {
            let why = format!("{field} is {found}, not {expected}");
            return Err(ServeError::step("dropping the privileges", why));
        }
    }
    Ok(())
}

const NO_CAPABILITIES: &str = "0000000000000000";
