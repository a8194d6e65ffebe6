//! The launch as a table: every step, who does it, what it protects against.
//!
//! The launcher and init walk this table; `docs/launch-sequence.md` is printed from it. Shipped
//! programs pass [`LAUNCH`] whole. Tests pass it with rows left out, to show that each barrier
//! holds alone and that the attack works when all are gone.

use crate::error::SetupError;
use crate::init::{CommandSetup, Confinement};
use crate::launch::namespaces::Cloning;
use crate::launch::views::Views;
use crate::launch::{Launch, StageOne};
use crate::{init, launch};
use std::fmt::Write as _;

/// One row of the table.
#[derive(Clone, Copy)]
pub struct Step {
    /// Verb first, in kebab case; errors name it.
    pub name: &'static str,
    /// The attack or accident that gets through without it.
    pub protects: &'static str,
    /// The first Linux that has what the step needs.
    pub kernel: &'static str,
    /// What is done, and by whom.
    pub action: Action,
}

/// What a step does, by the process that does it.
#[derive(Clone, Copy)]
pub enum Action {
    /// The warden, outside, before it is known what the session is for.
    Clone(fn(&mut Cloning<'_>) -> Result<(), SetupError>),
    /// The warden, outside: once for the views every session has, ahead of time, and once for
    /// those of the plan.
    Views(fn(&mut Views<'_>) -> Result<(), SetupError>),
    /// The warden, outside.
    Warden(fn(&mut Launch<'_>) -> Result<(), SetupError>),
    /// The warden's child, inside the new namespaces, before it becomes init.
    StageOne(fn(&StageOne<'_>) -> Result<(), SetupError>),
    /// init, before it runs anything.
    Init(fn(&mut Confinement<'_>) -> Result<(), SetupError>),
    /// The child of init that becomes a command.
    Command(fn(&CommandSetup<'_>) -> Result<(), SetupError>),
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Action {
    /// Who does it, in words.
    #[must_use]
    pub fn side(self) -> &'static str {
        match self {
            Self::Clone(_) | Self::Views(_) | Self::Warden(_) => "warden",
            Self::StageOne(_) => "stage one",
            Self::Init(_) => "init",
            Self::Command(_) => "command",
        }
    }
}

/// Whether a launch with these steps includes the one with this name.
#[must_use]
pub fn includes(steps: &[Step], name: &str) -> bool {
    steps.iter().any(|step| step.name == name)
}

macro_rules! steps {
    ($($side:ident $name:literal, $kernel:literal, $function:path: $protects:literal;)*) => {
        &[$(Step {
            name: $name,
            protects: $protects,
            kernel: $kernel,
            action: Action::$side($function),
        }),*]
    };
}

/// The launch, in order.
///
/// Up to `receive-setup` no row needs the plan, only ids and a group of the session's own: that
/// part is done ahead of time where it can be. The warden's rows from `open-views` on run beside
/// those of stage one and init.
pub const LAUNCH: &[Step] = steps! {
    Clone "new-user-namespace", "5.3", launch::namespaces::user:
        "root of the session being root of the host (V1, V10)";
    Clone "new-mount-namespace", "5.3", launch::namespaces::mount:
        "mounts of the session appearing on the host (P017)";
    Clone "new-pid-namespace", "5.3", launch::namespaces::pid:
        "seeing, signalling and tracing processes of others (P034, P053)";
    Clone "new-network-namespace", "5.3", launch::namespaces::network:
        "abstract sockets and services of the host and of other sessions (P048, P060)";
    Clone "new-ipc-namespace", "5.3", launch::namespaces::ipc:
        "shared memory, semaphores and queues of others (P057)";
    Clone "new-uts-namespace", "5.3", launch::namespaces::uts:
        "reading or changing the name of the host";
    Clone "clone-stage-one", "5.7", launch::namespaces::clone_stage_one:
        "a process of the session outside its cgroup, whose limits are set before the plan is sent";
    Clone "map-ids", "3.8", launch::namespaces::map_ids:
        "two sessions sharing a uid (P055, P058)";
    StageOne "join-cgroups", "2.6.24", launch::stage_one::join_cgroups:
        "a session without limits where the controllers are on v1 (P074, P075, P078)";
    StageOne "join-new-keyring", "2.6.12", launch::stage_one::join_keyring:
        "keys of the warden being readable by possession (P030)";
    StageOne "new-cgroup-namespace", "4.6", launch::stage_one::new_cgroup_namespace:
        "reading the cgroup layout of the host (P033)";
    StageOne "become-inner-root", "3.8", launch::stage_one::become_inner_root:
        "supplementary groups of the warden staying with the session (P024)";
    StageOne "close-inherited-descriptors", "5.11", launch::stage_one::close_descriptors:
        "a descriptor of the warden in the session (P066)";
    StageOne "execute-init", "3.19", launch::stage_one::execute_init:
        "memory of the warden in the session; a program file the session could overwrite (P070)";
    Init "become-undumpable", "2.3.20", init::privileges::become_undumpable:
        "the session tracing init or reading its memory (P034, P068)";
    Init "make-propagation-private", "2.6.15", init::root::make_propagation_private:
        "mount events of the host reaching the session, and back (P017)";
    Init "make-own-root", "5.2", init::root::make_own_root:
        "mount points in a tree somebody else wrote (P064, P104)";
    Init "mount-devices", "5.2", init::devices::mount_devices:
        "devices and terminals of the host (P032, P041, P084)";
    Init "mount-proc", "5.8", init::proc::mount_proc:
        "seeing processes of the host; reading init (P034)";
    Init "limit-namespaces", "4.9", init::proc::limit_namespaces:
        "kernel code that only a new user namespace reaches (P018, P052)";
    Init "mask-proc", "5.12", init::proc::mask_proc:
        "kernel settings and memory through /proc (P029, P031, P069)";
    Init "set-host-name", "2.6.19", init::network::set_host_name:
        "learning the name of the host";
    Views "open-views", "5.2", launch::views::open:
        "a path being exchanged while it is mounted (P064, P065): mounts are made by descriptor";
    Views "map-owners", "5.12", launch::views::map_owners:
        "the session owning what it only reads: chmod, utimes, xattrs, leases (P005, P006, P063b)";
    Views "overlay-views", "5.19", launch::views::overlay:
        "file locks and inotify as channels between sessions (P062, P063)";
    Views "make-views-read-only", "5.12", launch::views::make_read_only:
        "writing the environment, the toolchain or a pack (P001 to P010)";
    Views "deny-setuid-on-views", "5.12", launch::views::deny_setuid:
        "gaining rights by a setuid file (P020)";
    Views "deny-devices-on-views", "5.12", launch::views::deny_devices:
        "opening a device node somebody planted (P021)";
    Warden "send-setup", "2.6.12", launch::views::send_setup:
        "init reading its orders from a place the session can write";
    Init "receive-setup", "2.6.12", init::receive_setup:
        "one session carrying out the plan of another: each has a connection of its own";
    Init "mount-temporary-directories", "5.2", init::root::mount_temporary_directories:
        "sharing /tmp, /run and /dev/shm; filling memory through them (P056, P075)";
    Init "attach-views", "5.2", init::root::attach_views:
        "seeing anything but what the plan names";
    Init "pivot-root", "2.3.41", init::root::pivot:
        "a path back to the host's root";
    Init "make-root-read-only", "5.12", init::root::make_root_read_only:
        "writing the root, /dev and mount points";
    Init "configure-network", "2.6.24", init::network::configure:
        "more network than the plan gives: there is no route, at most a proxy";
    Init "lower-resource-limits", "2.6.36", init::command::lower_resource_limits:
        "core dumps outside, descriptors and locked memory without bound (P035, P080)";
    Init "lock-mounts", "3.12", init::locks::lock_mounts:
        "unmounting or remounting to reveal or write, even as root of the session (P013 to P016)";
    Init "lock-securebits", "2.6.26", init::privileges::lock_securebits:
        "uid 0 of the session regaining capabilities (P023)";
    Init "drop-bounding-set", "2.6.25", init::privileges::drop_bounding_set:
        "capabilities coming back through a file (P022, P027)";
    Init "drop-capabilities", "2.6.25", init::privileges::drop_capabilities:
        "init having more than KILL, SETGID and SETUID (P022)";
    Init "die-with-the-warden", "2.1.57", init::privileges::die_with_the_warden:
        "a session that nobody can stop any more";
    Init "set-no-new-privs", "3.5", init::privileges::set_no_new_privs:
        "gaining rights by executing a file (P020, P023)";
    Init "enforce-landlock", "5.19", init::landlock::enforce:
        "writing outside the session's own directories when a mount would not refuse (P042)";
    Init "install-init-filter", "3.17", init::seccomp::install_init_filter:
        "system calls no session needs (P036 to P041)";
    Command "start-process-session", "1.0", init::command::start_process_session:
        "a terminal of somebody else (P083)";
    Command "limit-file-size", "2.6.36", init::command::limit_file_size:
        "one file filling the disk (P076)";
    Command "connect-streams", "5.11", init::command::connect_streams:
        "descriptors of init in a command (P066)";
    Command "become-agent", "3.8", init::command::become_agent:
        "a command signalling or tracing init (P045c)";
    Command "drop-command-capabilities", "2.6.25", init::command::drop_capabilities:
        "a command with any capability (P022)";
    Command "install-command-filter", "3.17", init::seccomp::install_command_filter:
        "the calls init needs and no command does (P024, P036)";
    Command "enter-directory", "5.6", init::command::enter_directory:
        "a working directory outside the session (P067)";
};

/// The table as it stands in `docs/launch-sequence.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# The launch sequence\n\n\
         Printed from `runtime/src/steps.rs`; a test compares the two. P and V numbers are the\n\
         probes and attack classes of [the probe catalogue](probes.md).\n\n\
         | # | step | done by | without it | since Linux |\n|---|---|---|---|---|\n",
    );
    for (number, step) in (1..).zip(LAUNCH) {
        let _ = writeln!(
            text,
            "| {number} | `{}` | {} | {} | {} |",
            step.name,
            step.action.side(),
            step.protects,
            step.kernel
        );
    }
    text
}
