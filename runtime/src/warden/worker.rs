//! Starting `hangar-worker`: the process that reads hostile bytes.
//!
//! It runs in a user namespace in which uid 0 is the owner of what it writes, sees the
//! directories of its job and nothing else, has no network, and is killed with the warden.

use crate::cgroup::{Cgroups, GroupLimits, SessionCgroup};
use crate::error::{AtStep, SetupError};
use crate::ids::{Block, SESSION_IDS};
use crate::proof::IdMapLine;
use caps::{CapSet, Capability, CapsHashSet};
use hangar_runtime_sys as sys;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::net::SendFlags;
use rustix::process::{Resource, Rlimit, Signal};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const STEP: &str = "start-worker";

/// First byte of the datagram by which the set-up tells that it failed.
pub(super) const SETUP_FAILED: u8 = b'E';

/// Limits of every worker: it unpacks and copies, and page cache of its own counts.
const LIMITS: GroupLimits =
    GroupLimits { pids_max: 64, memory_bytes_max: 2 << 30, cpu_millis_max: None };

/// The program and its filters, made once.
#[derive(Debug)]
pub(super) struct Program {
    image: OwnedFd,
    filters: Vec<Vec<sys::SockFilter>>,
    null: OwnedFd,
}

impl Program {
    /// The worker in this sealed file.
    pub(super) fn new(image: OwnedFd) -> Result<Self, SetupError> {
        let program = hangar_seccomp::program(hangar_seccomp::Profile::Worker)
            .map_err(|error| SetupError::other(STEP, "compile(worker filter)", error))?;
        let instruction = |i: &hangar_seccomp::Instruction| sys::SockFilter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        };
        let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .at(STEP, || "open(/dev/null)")?;
        let filters = program.filters.iter().map(|f| f.iter().map(instruction).collect()).collect();
        Ok(Self { image, filters, null })
    }
}

/// Whom the worker works for: which host ids it has, and which rights over their files.
#[derive(Debug, Clone, Copy)]
pub(super) enum Identity {
    /// Writes files of this uid.
    Owner(u32),
    /// Writes files of `store`, reads all files of a build's block.
    Freezer {
        /// The store uid.
        store: u32,
        /// The build.
        build: Block,
    },
    /// Deletes all files of a block.
    BlockRemover(Block),
    /// Deletes all files of this uid.
    OwnerRemover(u32),
}

impl Identity {
    fn id_map(self) -> Vec<IdMapLine> {
        let line = |inside, outside, count| IdMapLine { inside, outside, count };
        match self {
            Self::Owner(uid) | Self::OwnerRemover(uid) => vec![line(0, uid, 1)],
            Self::Freezer { store, build } => {
                vec![line(0, store, 1), line(1, build.base, SESSION_IDS)]
            }
            Self::BlockRemover(block) => vec![line(0, block.base, SESSION_IDS)],
        }
    }

    fn capabilities(self) -> &'static [Capability] {
        match self {
            Self::Owner(_) => &[],
            Self::Freezer { .. } => &[Capability::CAP_DAC_READ_SEARCH],
            Self::BlockRemover(_) | Self::OwnerRemover(_) => {
                &[Capability::CAP_DAC_OVERRIDE, Capability::CAP_FOWNER]
            }
        }
    }
}

/// A directory the worker sees.
#[derive(Debug)]
pub(super) struct View {
    /// Relative to the worker's root, one or two components.
    target: &'static str,
    mount: OwnedFd,
}

impl View {
    /// Shows a directory, for reading only.
    pub(super) fn read_only(target: &'static str, dir: BorrowedFd<'_>) -> Result<Self, SetupError> {
        Self::new(target, dir, sys::MountAttributes::RDONLY)
    }

    /// Shows a directory.
    pub(super) fn writable(target: &'static str, dir: BorrowedFd<'_>) -> Result<Self, SetupError> {
        Self::new(target, dir, 0)
    }

    fn new(target: &'static str, dir: BorrowedFd<'_>, access: u64) -> Result<Self, SetupError> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = open_tree(dir, "", flags).at(STEP, || format!("open_tree({target}, CLONE)"))?;
        let attributes = sys::MountAttributes {
            set: access
                | sys::MountAttributes::NOSUID
                | sys::MountAttributes::NODEV
                | sys::MountAttributes::NOEXEC,
            propagation: sys::MountAttributes::PRIVATE,
            ..Default::default()
        };
        sys::mount_setattr(&mount, sys::Recursion::This, &attributes)
            .at(STEP, || format!("mount_setattr({target}, {:#x})", attributes.set))?;
        Ok(Self { target, mount })
    }
}

/// What is started.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) arguments: Vec<String>,
    pub(super) identity: Identity,
    pub(super) views: Vec<View>,
    /// Descriptor 4 of the worker.
    pub(super) upload: Option<OwnedFd>,
    /// The first datagram.
    pub(super) options: Vec<u8>,
}

/// A running worker. Dropping it does not end it: [`Self::kill`] does.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) pidfd: OwnedFd,
    pub(super) socket: OwnedFd,
    pub(super) group: SessionCgroup,
}

impl Worker {
    /// Kills the worker; its end shows at `pidfd`.
    pub(super) fn kill(&self) -> Result<(), SetupError> {
        self.group.kill_all()
    }
}

/// Starts a worker; `name` names its cgroup.
///
/// # Errors
/// When the child could not be made. What fails in the child comes as a datagram
/// [`SETUP_FAILED`].
pub(super) fn start(
    program: &Program,
    cgroups: &Cgroups,
    name: &str,
    plan: &Plan,
) -> Result<Worker, SetupError> {
    let group = cgroups.create(name, &LIMITS, 0)?;
    let result = fork(program, &group, plan);
    match result {
        Ok((pidfd, socket)) => Ok(Worker { pidfd, socket, group }),
        Err(error) => {
            // Nothing of the group runs: a child that was made is dead and reaped.
            let _ = group.try_remove();
            Err(error)
        }
    }
}

fn fork(
    program: &Program,
    group: &SessionCgroup,
    plan: &Plan,
) -> Result<(OwnedFd, OwnedFd), SetupError> {
    let (near, far) = crate::wire::pair()
        .map_err(|error| SetupError::other(STEP, "socketpair(SEQPACKET)", error))?;
    rustix::io::ioctl_fionbio(&near, true).at(STEP, || "ioctl(socket, FIONBIO)")?;
    let (wait, go) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).at(STEP, || "pipe2(CLOEXEC)")?;
    let namespaces = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    let clone = sys::Clone {
        namespaces: u64::from(namespaces.unsigned_abs()),
        cgroup: Some(group.directory()),
    };
    let forked = sys::clone3(&clone)
        .at(STEP, || "clone3(NEWUSER|NEWNS|NEWPID|NEWNET|NEWIPC|NEWUTS|INTO_CGROUP)")?;
    match forked {
        sys::Forked::Child => {
            drop(go);
            become_worker(program, plan, &wait, &far)
        }
        sys::Forked::Parent { pid, pidfd } => {
            drop((wait, far));
            let released = group
                .attach_v1(pid)
                .and_then(|()| write_id_maps(pid, plan.identity))
                .and_then(|()| send(&near, &plan.options))
                .and_then(|()| rustix::io::write(&go, b"g").at(STEP, || "write(go)").map(|_| ()));
            if let Err(error) = released {
                // Without its byte the child exits by itself; the signal is for a stuck one.
                let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                let _ = super::reap(&pidfd);
                return Err(error);
            }
            Ok((pidfd, near))
        }
    }
}

fn write_id_maps(pid: i32, identity: Identity) -> Result<(), SetupError> {
    let text: String = identity
        .id_map()
        .iter()
        .map(|line| format!("{} {} {}\n", line.inside, line.outside, line.count))
        .collect();
    for map in ["uid_map", "gid_map"] {
        let path = format!("/proc/{pid}/{map}");
        std::fs::write(&path, &text).at(STEP, || format!("write({path}, {text:?})"))?;
    }
    Ok(())
}

fn send(socket: &OwnedFd, bytes: &[u8]) -> Result<(), SetupError> {
    rustix::net::send(socket, bytes, SendFlags::NOSIGNAL).at(STEP, || "send(options)")?;
    Ok(())
}

/// The child: never returns.
fn become_worker(program: &Program, plan: &Plan, wait: &OwnedFd, socket: &OwnedFd) -> ! {
    let mut go = [0];
    if !matches!(rustix::io::retry_on_intr(|| rustix::io::read(wait, &mut go)), Ok(1)) {
        sys::exit_now(1);
    }
    let Err(error) = confine_and_execute(program, plan, socket);
    let mut datagram = vec![SETUP_FAILED];
    datagram.extend(error.to_string().bytes());
    // The exit status tells as well, for the case that this cannot be sent.
    let _ = rustix::net::send(socket, &datagram, SendFlags::NOSIGNAL);
    sys::exit_now(125);
}

fn confine_and_execute(
    program: &Program,
    plan: &Plan,
    socket: &OwnedFd,
) -> Result<std::convert::Infallible, SetupError> {
    sys::become_ids(0, 0).at(STEP, || "setresuid(0)")?;
    // After the change of ids, which clears it. The warden can have died before; then the socket
    // is closed and the worker ends at its first read.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .at(STEP, || "prctl(PDEATHSIG, KILL)")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    enter_root(&plan.views)?;
    limit_resources()?;
    keep_capabilities(plan.identity.capabilities())?;
    rustix::thread::set_no_new_privs(true).at(STEP, || "prctl(NO_NEW_PRIVS)")?;
    execute(program, plan, socket)
}

/// A root of its own: a small tmpfs with the views, read-only itself.
fn enter_root(views: &[View]) -> Result<(), SetupError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at(STEP, || "mount(/, PRIVATE|REC)")?;
    let root = tmpfs()?;
    move_mount(&root, "", CWD, "/", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at(STEP, || "move_mount(root, /)")?;
    rustix::process::fchdir(&root).at(STEP, || "fchdir(root)")?;
    for view in views {
        attach(&root, view)?;
    }
    let attributes = sys::MountAttributes {
        set: sys::MountAttributes::RDONLY
            | sys::MountAttributes::NOSUID
            | sys::MountAttributes::NODEV
            | sys::MountAttributes::NOEXEC,
        ..Default::default()
    };
    sys::mount_setattr(&root, sys::Recursion::This, &attributes)
        .at(STEP, || "mount_setattr(root, RDONLY)")?;
    rustix::process::pivot_root(".", ".").at(STEP, || "pivot_root(., .)")?;
    unmount(".", UnmountFlags::DETACH).at(STEP, || "umount2(old root, DETACH)")?;
    rustix::process::chdir("/").at(STEP, || "chdir(/)")
}

fn tmpfs() -> Result<OwnedFd, SetupError> {
    let make = || {
        let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(context.as_fd(), "size", "64k")?;
        fsconfig_set_string(context.as_fd(), "mode", "755")?;
        fsconfig_create(context.as_fd())?;
        fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    };
    make().at(STEP, || "fsmount(tmpfs, size=64k)")
}

fn attach(root: &OwnedFd, view: &View) -> Result<(), SetupError> {
    let mut path = String::new();
    for component in view.target.split('/') {
        path.push_str(component);
        match mkdirat(root, &*path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno).at(STEP, || format!("mkdirat(root, {path})")),
        }
        path.push('/');
    }
    move_mount(&view.mount, "", root, view.target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .at(STEP, || format!("move_mount(view, {})", view.target))
}

fn limit_resources() -> Result<(), SetupError> {
    let limits = [(Resource::Core, 0), (Resource::Nofile, 1024), (Resource::Memlock, 0)];
    for (resource, wanted) in limits {
        let current = rustix::process::getrlimit(resource);
        let value = current.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let limit = Rlimit { current: Some(value), maximum: Some(value) };
        rustix::process::setrlimit(resource, limit)
            .at(STEP, || format!("setrlimit({resource:?}, {value})"))?;
    }
    Ok(())
}

/// Leaves these capabilities and no others, now and after the exec, and reads them back.
fn keep_capabilities(keep: &[Capability]) -> Result<(), SetupError> {
    let keep: CapsHashSet = keep.iter().copied().collect();
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error: caps::errors::CapsError| SetupError::other(STEP, what, error)
    };
    let bounding = caps::read(None, CapSet::Bounding).map_err(failed("read(bounding set)"))?;
    for capability in bounding.difference(&keep) {
        caps::drop(None, CapSet::Bounding, *capability).map_err(failed("drop(bounding set)"))?;
    }
    caps::clear(None, CapSet::Ambient).map_err(failed("clear(ambient set)"))?;
    caps::clear(None, CapSet::Inheritable).map_err(failed("clear(inheritable set)"))?;
    caps::set(None, CapSet::Effective, &keep).map_err(failed("set(effective set)"))?;
    caps::set(None, CapSet::Permitted, &keep).map_err(failed("set(permitted set)"))?;
    for set in [CapSet::Bounding, CapSet::Permitted, CapSet::Effective] {
        let found = caps::read(None, set).map_err(failed("read back"))?;
        if found != keep {
            let text = |set: &CapsHashSet| format!("{set:?}");
            return Err(SetupError::mismatch(STEP, format!("{set:?}"), text(&keep), text(&found)));
        }
    }
    Ok(())
}

fn execute(
    program: &Program,
    plan: &Plan,
    socket: &OwnedFd,
) -> Result<std::convert::Infallible, SetupError> {
    // Copies above the numbers that are given away next: one that is moved could be overwritten.
    let copy = |fd: BorrowedFd<'_>| fcntl_dupfd_cloexec(fd, 16).at(STEP, || "fcntl(DUPFD)");
    let (image, null) = (copy(program.image.as_fd())?, copy(program.null.as_fd())?);
    let socket = copy(socket.as_fd())?;
    let upload = plan.upload.as_ref().map(|upload| copy(upload.as_fd())).transpose()?;
    let placed = [&null, &null, &null, &socket].into_iter().chain(&upload);
    let arguments = std::iter::once("hangar-worker")
        .chain(plan.arguments.iter().map(String::as_str))
        .map(CString::new)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| SetupError::other(STEP, "execveat(worker)", error))?;
    sys::reset_signals().at(STEP, || "sigaction(SIG_DFL)")?;
    for (fd, number) in placed.zip(0..) {
        sys::duplicate_to(fd.as_fd(), number).at(STEP, || format!("dup2(fd, {number})"))?;
    }
    sys::close_from(if upload.is_some() { 5 } else { 4 }).at(STEP, || "close_range(CLOEXEC)")?;
    for filter in &program.filters {
        sys::install_seccomp_filter(filter).at(STEP, || "seccomp(SET_MODE_FILTER)")?;
    }
    Err(sys::execveat(image.as_fd(), &arguments, &[])).at(STEP, || "execveat(worker)")
}
