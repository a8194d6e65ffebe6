//! What a session sees of the host: detached mounts, made by descriptor and handed to init.

use super::toolchain::HostToolchain;
use super::{Launch, SharedTrees, Trees};
use crate::error::{AtStep, SetupError};
use crate::plan::{
    DEPENDENCIES_DIR, ENVIRONMENTS_DIR, Environment, HOME_DIR, PACKS_DIR, Plan, SOURCE_DIR,
    WORKSPACE_DIR,
};
use crate::wire;
use crate::wire::init::{Access, Mount, Order, Setup};
use hangar_runtime_sys::{self as sys, MountAttributes, Recursion};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree, unmount,
};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// One mount of a session before init attaches it.
#[derive(Debug)]
pub struct View {
    pub(crate) target: String,
    pub(crate) access: Access,
    /// Whether other sessions see the same tree; then its inodes are hidden behind an overlay.
    pub(crate) shared: bool,
    pub(crate) mount: OwnedFd,
}

/// A tree that is to become a view.
#[derive(Debug)]
pub struct Wanted<'a> {
    target: String,
    access: Access,
    shared: bool,
    tree: BorrowedFd<'a>,
}

/// What the steps that make views work on.
#[derive(Debug)]
pub struct Views<'a> {
    pub(crate) workshop: &'a Workshop,
    /// The session's user namespace, whose id map the read-only views apply.
    pub(crate) user_namespace: &'a OwnedFd,
    pub(crate) wanted: Vec<Wanted<'a>>,
    pub(crate) made: Vec<View>,
}

/// A tmpfs in the warden's own mount namespace, where lower layers stand for a moment.
///
/// An overlay takes its layers by path; a layer by descriptor fails on the kernels of Debian 12
/// and 13. The paths are the warden's own, and nobody else can reach this mount namespace.
#[derive(Debug)]
pub struct Workshop {
    directory: OwnedFd,
}

/// Where the workshop is mounted, over whatever is there, in the warden's mount namespace alone.
const WORKSHOP: &str = "/tmp";
const EMPTY: &str = "e";
const LOWERS: &str = "l";

impl Workshop {
    /// Unshares the mount namespace and mounts the workshop.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN.
    pub fn new() -> Result<Self, SetupError> {
        use rustix::mount::{MountPropagationFlags, mount_change};
        let name = "open-views";
        sys::unshare(libc::CLONE_NEWNS as u64).at(name, || "unshare(CLONE_NEWNS)")?;
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .at(name, || "mount(/, MS_SLAVE|MS_REC)")?;
        let mount = tmpfs(name, &[("mode", "0700"), ("size", "1m")], MountAttrFlags::empty())?;
        attach_at(name, &mount, rustix::fs::CWD, WORKSHOP)?;
        let directory =
            rustix::fs::open(WORKSHOP, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .at(name, || format!("open({WORKSHOP})"))?;
        for each in [EMPTY, LOWERS] {
            rustix::fs::mkdirat(&directory, each, Mode::from(0o700))
                .at(name, || format!("mkdir({each}) in the workshop"))?;
        }
        Ok(Self { directory })
    }

    /// Puts an overlay over each mount in turn; the overlays have inodes of their own.
    fn overlay(&self, views: &mut [View]) -> Result<(), SetupError> {
        let name = "overlay-views";
        // All lowers stand on one mount, so that taking it away detaches them all at once.
        let bench = tmpfs(name, &[("mode", "0700"), ("size", "64k")], MountAttrFlags::empty())?;
        attach_at(name, &bench, &self.directory, LOWERS)?;
        let overlaid = Self::overlay_on(name, &bench, views);
        let detached = unmount(format!("{WORKSHOP}/{LOWERS}"), UnmountFlags::DETACH)
            .at(name, || "umount2(lowers, MNT_DETACH)");
        overlaid.and(detached)
    }

    fn overlay_on(
        name: &'static str,
        bench: &OwnedFd,
        views: &mut [View],
    ) -> Result<(), SetupError> {
        for (index, view) in views.iter_mut().filter(|view| view.shared).enumerate() {
            let lower = index.to_string();
            rustix::fs::mkdirat(bench, &lower, Mode::from(0o700))
                .at(name, || format!("mkdir({lower}) for a lower layer"))?;
            attach_at(name, &view.mount, bench, &lower)?;
            view.mount = overlay_of(name, &format!("{WORKSHOP}/{LOWERS}/{lower}"), &view.target)?;
        }
        Ok(())
    }
}

fn overlay_of(name: &'static str, lower: &str, target: &str) -> Result<OwnedFd, SetupError> {
    let context = |call: &str| format!("{call} of the overlay for {target}");
    let fs = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).at(name, || context("fsopen"))?;
    // Two lower layers: an overlay without an upper one must have at least two.
    let lowers = format!("{lower}:{WORKSHOP}/{EMPTY}");
    for (key, value) in [("lowerdir", lowers.as_str()), ("xino", "off"), ("index", "off")] {
        fsconfig_set_string(&fs, key, value).at(name, || context(key))?;
    }
    fsconfig_set_flag(&fs, "ro").at(name, || context("ro"))?;
    fsconfig_create(&fs).at(name, || context("fsconfig(CREATE)"))?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        .at(name, || context("fsmount"))
}

/// A detached tmpfs.
pub(crate) fn tmpfs(
    name: &'static str,
    options: &[(&str, &str)],
    attributes: MountAttrFlags,
) -> Result<OwnedFd, SetupError> {
    let fs = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC).at(name, || "fsopen(tmpfs)")?;
    for (key, value) in options {
        fsconfig_set_string(&fs, *key, *value)
            .at(name, || format!("fsconfig(tmpfs, {key}={value})"))?;
    }
    fsconfig_create(&fs).at(name, || "fsconfig(tmpfs, CREATE)")?;
    fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes).at(name, || "fsmount(tmpfs)")
}

/// Attaches a detached mount on a directory or file.
pub(crate) fn attach_at(
    name: &'static str,
    mount: &OwnedFd,
    directory: impl AsFd,
    target: &str,
) -> Result<(), SetupError> {
    move_mount(mount, c"", directory, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at(name, || format!("move_mount({target})"))
}

/// A detached copy of the mount at a directory, without the mounts below it.
pub(crate) fn detach_copy(
    name: &'static str,
    tree: impl AsFd,
    what: &str,
) -> Result<OwnedFd, SetupError> {
    open_tree(
        tree,
        c"",
        OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH,
    )
    .at(name, || format!("open_tree({what}, CLONE)"))
}

/// What every session sees: the toolchain and the packs.
pub(super) fn of_every_session<'a>(
    toolchain: &'a HostToolchain,
    trees: SharedTrees<'a>,
) -> Vec<Wanted<'a>> {
    let shared = |(target, tree)| Wanted { target, access: Access::ReadOnly, shared: true, tree };
    toolchain
        .directories()
        .chain([("/etc".to_owned(), trees.toolchain_etc), (PACKS_DIR.to_owned(), trees.packs)])
        .map(shared)
        .collect()
}

/// What a plan names: the environment, and the session's own directories.
pub(super) fn of_plan<'a>(plan: &Plan, trees: &'a Trees) -> Result<Vec<Wanted<'a>>, SetupError> {
    let missing = |what| SetupError::other("open-views", what, "the warden did not find it");
    let tree = |tree: &'a Option<OwnedFd>, what| {
        tree.as_ref().map(OwnedFd::as_fd).ok_or_else(|| missing(what))
    };
    let mut wanted = Vec::new();
    let mut add = |target: String, access, shared, tree| {
        wanted.push(Wanted { target, access, shared, tree });
    };
    match &plan.environment {
        Environment::None => {}
        Environment::Version { slug, .. } => {
            let target = format!("{ENVIRONMENTS_DIR}/{slug}");
            add(target, Access::ReadOnly, true, tree(&trees.environment, "the version")?);
        }
        Environment::Staging { slug, dependencies, .. } => {
            let target = format!("{ENVIRONMENTS_DIR}/{slug}");
            add(target, Access::ReadWrite, false, tree(&trees.environment, "the staging tree")?);
            let source = tree(&trees.source, "the source")?;
            add(SOURCE_DIR.to_owned(), Access::ReadOnly, false, source);
            if dependencies.is_some() {
                let tree = tree(&trees.dependencies, "dependencies")?;
                add(DEPENDENCIES_DIR.to_owned(), Access::ReadOnly, false, tree);
            }
        }
    }
    add(WORKSPACE_DIR.to_owned(), Access::ReadWrite, false, trees.workspace.as_fd());
    add(HOME_DIR.to_owned(), Access::ReadWrite, false, trees.home.as_fd());
    Ok(wanted)
}

/// Makes a detached mount of every tree.
///
/// # Errors
/// Names the tree that could not be opened.
pub fn open(views: &mut Views<'_>) -> Result<(), SetupError> {
    for Wanted { target, access, shared, tree } in views.wanted.drain(..) {
        let mount = detach_copy("open-views", tree, &target)?;
        views.made.push(View { target, access, shared, mount });
    }
    Ok(())
}

/// Applies the session's id map to every read-only view.
///
/// Files of the host's root then belong to the session's root, and frozen files to an id no
/// process has. Writable views are never mapped: what a session writes must belong to its own
/// host ids, else it could leave a setuid file of the host's root behind (isolation fact 4).
///
/// # Errors
/// `EINVAL` when the filesystem below the view does not support id maps.
pub fn map_owners(views: &mut Views<'_>) -> Result<(), SetupError> {
    let name = "map-owners";
    let idmap = Some(views.user_namespace.as_fd());
    for view in views.made.iter().filter(|view| view.access == Access::ReadOnly) {
        let attributes = MountAttributes { idmap, ..MountAttributes::default() };
        sys::mount_setattr(&view.mount, Recursion::This, &attributes)
            .at(name, || format!("mount_setattr({}, IDMAP)", view.target))?;
    }
    Ok(())
}

/// Puts a private overlay before every shared view, so that no two sessions share an inode.
///
/// # Errors
/// `EINVAL` before Linux 5.19, whose overlay takes no id-mapped layer.
pub fn overlay(views: &mut Views<'_>) -> Result<(), SetupError> {
    if !views.made.iter().any(|view| view.shared) {
        return Ok(());
    }
    views.workshop.overlay(&mut views.made)
}

/// Makes every read-only view refuse writes, whatever the session's rights.
///
/// # Errors
/// `ENOSYS` before Linux 5.12; the launch fails, nothing is skipped.
pub fn make_read_only(views: &mut Views<'_>) -> Result<(), SetupError> {
    let attributes = MountAttributes { set: MountAttributes::RDONLY, ..MountAttributes::default() };
    for view in views.made.iter().filter(|view| view.access == Access::ReadOnly) {
        sys::mount_setattr(&view.mount, Recursion::Below, &attributes)
            .at("make-views-read-only", || format!("mount_setattr({}, RDONLY)", view.target))?;
    }
    Ok(())
}

/// Takes the effect of setuid bits and file capabilities away in every view.
///
/// # Errors
/// `ENOSYS` before Linux 5.12.
pub fn deny_setuid(views: &mut Views<'_>) -> Result<(), SetupError> {
    set_on_all(views, "deny-setuid-on-views", MountAttributes::NOSUID)
}

/// Makes device nodes of every view unusable, and the mount private.
///
/// # Errors
/// `ENOSYS` before Linux 5.12.
pub fn deny_devices(views: &mut Views<'_>) -> Result<(), SetupError> {
    set_on_all(views, "deny-devices-on-views", MountAttributes::NODEV)
}

fn set_on_all(views: &Views<'_>, name: &'static str, set: u64) -> Result<(), SetupError> {
    let attributes = MountAttributes {
        set,
        propagation: MountAttributes::PRIVATE,
        ..MountAttributes::default()
    };
    for view in &views.made {
        sys::mount_setattr(&view.mount, Recursion::Below, &attributes)
            .at(name, || format!("mount_setattr({}, {set:#x})", view.target))?;
    }
    Ok(())
}

/// Sends init its orders and the mounts.
///
/// # Errors
/// When init is gone.
pub fn send_setup(launch: &mut Launch<'_>) -> Result<(), SetupError> {
    let setup = setup_of(launch);
    let fds: Vec<_> = launch.request.prepared.views.iter().map(|view| view.mount.as_fd()).collect();
    wire::send(&launch.request.prepared.control, &Order::Setup(Box::new(setup)), &fds)
        .map_err(|error| SetupError::other("send-setup", "sendmsg(init)", error))
}

/// The part of the plan that init carries out.
pub(crate) fn setup_of(launch: &Launch<'_>) -> Setup {
    let plan = launch.request.plan;
    Setup {
        mounts: launch
            .request
            .prepared
            .views
            .iter()
            .map(|view| Mount { target: view.target.clone(), access: view.access })
            .collect(),
        links: launch.launcher.toolchain.links().to_vec(),
        network: plan.network,
        limits: plan.limits,
        range_base: launch.range().base,
        landlock_abi: launch.launcher.landlock_abi,
        filters: launch.launcher.filters.clone(),
    }
}
