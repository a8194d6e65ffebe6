//! From a fork of init to a command: the steps, then the program.

use super::Confinement;
use super::privileges::{expect_empty, set_exactly};
use crate::error::{AtStep, Cause, SetupError};
use crate::ids::AGENT_UID;
use crate::plan::Limits;
use crate::steps::{Action, Step};
use crate::wire::init::{Instruction, Start};
use crate::wire::warden::Program;
use caps::{CapSet, CapsHashSet};
use hangar_runtime_sys as sys;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// What a command's steps work on.
#[derive(Debug)]
pub struct CommandSetup<'a> {
    pub(crate) start: &'a Start,
    pub(crate) limits: &'a Limits,
    pub(crate) filters: &'a [Vec<Instruction>],
    /// Standard input, output and error.
    pub(crate) streams: [BorrowedFd<'a>; 3],
}

/// Goes through the steps and becomes the program. What goes wrong is written to standard error
/// and, as an error number, to `status`, which an exec closes.
pub(super) fn become_command(steps: &[Step], setup: &CommandSetup<'_>, status: &OwnedFd) -> ! {
    let result =
        sys::reset_signals().at("start-process-session", || "sigaction()").and_then(|()| {
            for step in steps {
                if let Action::Command(action) = step.action {
                    action(setup)?;
                }
            }
            Ok(())
        });
    let errno = match result {
        Ok(()) => run(&setup.start.program, &setup.start.environment),
        Err(error) => {
            complain(&error.to_string());
            match error.cause {
                Cause::Errno(errno) => errno,
                Cause::Mismatch { .. } | Cause::Other(_) => Errno::PERM,
            }
        }
    };
    // When init is gone the session is going too.
    let _ = rustix::io::write(status, &errno.raw_os_error().to_ne_bytes());
    sys::exit_now(126)
}

fn complain(text: &str) {
    // Standard error is the command's record; there is no other place to say it.
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("hangar: {text}\n").as_bytes());
}

fn run(program: &Program, environment: &[Vec<u8>]) -> Errno {
    match program {
        Program::Arguments(arguments) => execute(arguments, environment),
        Program::CopyTree { from, to, skip } => match super::copy_tree::copy_tree(from, to, skip) {
            Ok(count) => {
                println!("copied {count} files");
                sys::exit_now(0)
            }
            Err(error) => {
                complain(&error);
                sys::exit_now(1)
            }
        },
    }
}

/// Executes a program; a name without a slash is looked up in the `PATH` it is to run with.
fn execute(arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Errno {
    let Some(first) = arguments.first().filter(|first| !first.is_empty()) else {
        return Errno::NOENT;
    };
    let strings = |list: &[Vec<u8>]| -> Result<Vec<CString>, Errno> {
        list.iter().map(|s| CString::new(s.clone()).map_err(|_| Errno::INVAL)).collect()
    };
    let (Ok(argv), Ok(envp)) = (strings(arguments), strings(environment)) else {
        return Errno::INVAL;
    };
    let mut answer = Errno::NOENT;
    for candidate in candidates(first, environment) {
        let Ok(path) = CString::new(candidate) else { return Errno::INVAL };
        let mut errno = sys::execve(&path, &argv, &envp);
        if errno == Errno::NOEXEC {
            // A script without an interpreter line, which every shell runs by itself.
            let shell: Vec<CString> = [c"/bin/sh".to_owned(), path]
                .into_iter()
                .chain(argv.iter().skip(1).cloned())
                .collect();
            errno = sys::execve(c"/bin/sh", &shell, &envp);
        }
        match errno {
            Errno::NOENT | Errno::NOTDIR => {}
            // A file that cannot be executed is remembered, as shells do, but a later one counts.
            Errno::ACCESS => answer = Errno::ACCESS,
            other => return other,
        }
    }
    answer
}

fn candidates(name: &[u8], environment: &[Vec<u8>]) -> Vec<Vec<u8>> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    let path = environment
        .iter()
        .find_map(|entry| entry.strip_prefix(b"PATH="))
        .unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
    path.split(|&byte| byte == b':')
        .filter(|directory| directory.first() == Some(&b'/'))
        .map(|directory| [directory, b"/", name].concat())
        .collect()
}

/// Starts a process session of its own: no controlling terminal is inherited.
///
/// # Errors
/// None is expected.
pub fn start_process_session(_: &CommandSetup<'_>) -> Result<(), SetupError> {
    rustix::process::setsid().at("start-process-session", || "setsid()").map(drop)
}

/// Lowers resource limits of init, and so of every command; none is ever raised.
///
/// A core limit of 1 is the value at which the kernel neither writes a core file nor starts a
/// core handler, which would run in the host's namespaces (V29).
///
/// # Errors
/// When what is read back is above what was asked.
pub fn lower_resource_limits(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    for (resource, value) in resource_limits(&confinement.setup("lower-resource-limits")?.limits) {
        lower("lower-resource-limits", resource, value)?;
    }
    Ok(())
}

/// The resource limits of init and every command.
#[must_use]
pub fn resource_limits(limits: &Limits) -> [(Resource, u64); 6] {
    [
        (Resource::Core, 1),
        (Resource::Nofile, u64::from(limits.open_files_max)),
        // Above the cgroup's limit, which is the one that is counted when it is met.
        (Resource::Nproc, u64::from(limits.pids_max) + 64),
        (Resource::Memlock, 64 << 20),
        (Resource::Rtprio, 0),
        (Resource::Msgqueue, 819_200),
    ]
}

/// Lowers the size of files a command can write. init is exempt: it writes output records.
///
/// # Errors
/// When what is read back is above what was asked.
pub fn limit_file_size(setup: &CommandSetup<'_>) -> Result<(), SetupError> {
    lower("limit-file-size", Resource::Fsize, setup.limits.file_bytes_max)
}

fn lower(name: &'static str, resource: Resource, value: u64) -> Result<(), SetupError> {
    let before = getrlimit(resource);
    let capped = |limit: Option<u64>| Some(limit.map_or(value, |limit| limit.min(value)));
    let wanted = Rlimit { current: capped(before.maximum), maximum: capped(before.maximum) };
    setrlimit(resource, wanted).at(name, || format!("setrlimit({resource:?}, {value})"))?;
    let found = getrlimit(resource);
    if found == wanted {
        return Ok(());
    }
    Err(SetupError::mismatch(
        name,
        format!("{resource:?}"),
        format!("{wanted:?}"),
        format!("{found:?}"),
    ))
}

/// Puts the three streams in place and marks everything else close-on-exec.
///
/// # Errors
/// `ENOSYS` before Linux 5.11.
pub fn connect_streams(setup: &CommandSetup<'_>) -> Result<(), SetupError> {
    let name = "connect-streams";
    let [stdin, stdout, stderr] = setup.streams;
    rustix::stdio::dup2_stdin(stdin).at(name, || "dup2(0)")?;
    rustix::stdio::dup2_stdout(stdout).at(name, || "dup2(1)")?;
    rustix::stdio::dup2_stderr(stderr).at(name, || "dup2(2)")?;
    sys::close_from(3).at(name, || "close_range(3.., CLOEXEC)")
}

/// Becomes uid and gid 1000 with no supplementary group.
///
/// # Errors
/// `EPERM` when init has lost CAP_SETUID or CAP_SETGID.
pub fn become_agent(_: &CommandSetup<'_>) -> Result<(), SetupError> {
    let name = "become-agent";
    sys::become_ids(AGENT_UID, AGENT_UID)
        .at(name, || format!("setgroups([]), setresgid({AGENT_UID}), setresuid({AGENT_UID})"))
}

/// Drops every capability: the securebits keep the change of uid from doing it.
///
/// # Errors
/// When any is left in any set.
pub fn drop_capabilities(_: &CommandSetup<'_>) -> Result<(), SetupError> {
    let name = "drop-command-capabilities";
    set_exactly(name, &CapsHashSet::new())?;
    expect_empty(name, CapSet::Bounding)
}

/// Enters the command's working directory as the session's user, and checks where that is.
///
/// # Errors
/// `ENOENT`, `EACCES`, or `ELOOP` when a component leads through `/proc/<pid>/fd` and the like.
pub fn enter_directory(setup: &CommandSetup<'_>) -> Result<(), SetupError> {
    let name = "enter-directory";
    let shown = String::from_utf8_lossy(&setup.start.directory).into_owned();
    let directory = CString::new(setup.start.directory.clone())
        .map_err(|_| SetupError::call(name, format!("openat2({shown})"), Errno::INVAL))?;
    let fd = openat2(
        CWD,
        directory.as_c_str(),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
        ResolveFlags::NO_MAGICLINKS,
    )
    .at(name, || format!("openat2({shown}, NO_MAGICLINKS)"))?;
    rustix::process::fchdir(fd.as_fd()).at(name, || format!("fchdir({shown})"))?;
    let here = rustix::process::getcwd(Vec::new()).at(name, || "getcwd()")?;
    if here.to_bytes().first() == Some(&b'/') {
        return Ok(());
    }
    Err(SetupError::mismatch(name, "getcwd()", "an absolute path", here.to_string_lossy()))
}
