//! What the proxy takes from itself before it reads a byte from a session.
//!
//! The warden starts it under a uid of its own and without capabilities. That is checked here, and
//! Landlock takes what a uid still has: the world-readable files of the host, listening, and
//! signals to and abstract sockets of others. What is left is dialling, and the files without
//! which no name resolves.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::io;

/// Why the proxy does not run.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// The process is not what the warden makes of it.
    #[error("{field} is {found}, not {expected}: the proxy is started by the warden only")]
    Started {
        /// A field of `/proc/self/status`.
        field: &'static str,
        /// What it says.
        found: String,
        /// What it should say.
        expected: &'static str,
    },
    /// A file of `/proc` cannot be read, or a limit cannot be set.
    #[error("{0} failed")]
    Call(&'static str, #[source] io::Error),
    /// The kernel does not take the rules.
    #[error("landlock does not hold")]
    Landlock(#[from] RulesetError),
    /// The kernel took a part of the rules.
    #[error("landlock holds in part only")]
    Partial,
}

/// Reads back how this process was started.
///
/// # Errors
/// Names the first field that is not as it should be.
pub fn check_start() -> Result<(), ConfinementError> {
    const NONE: &str = "0000000000000000";
    let status = std::fs::read_to_string("/proc/self/status")
        .map_err(|error| ConfinementError::Call("reading /proc/self/status", error))?;
    let expected = [
        ("CapInh", NONE),
        ("CapPrm", NONE),
        ("CapEff", NONE),
        ("CapBnd", NONE),
        ("CapAmb", NONE),
        ("NoNewPrivs", "1"),
        ("Groups", ""),
    ];
    for (field, expected) in expected {
        let found = field_of(&status, field);
        if found != expected {
            return Err(ConfinementError::Started { field, found: found.to_owned(), expected });
        }
    }
    Ok(())
}

fn field_of<'a>(status: &'a str, name: &str) -> &'a str {
    let mut lines = status.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap_or("missing").trim()
}

/// Files the resolver of the C library reads; those that are not there on this host are left out.
const RESOLVER_FILES: &[&str] = &[
    "/etc",
    "/usr/lib",
    "/usr/lib64",
    "/lib",
    "/lib64",
    "/run/resolvconf",
    "/run/systemd/resolve",
    "/run/NetworkManager",
];

/// Restricts this thread and every thread it starts from now on.
///
/// # Errors
/// When the kernel lacks Landlock ABI 2, without which there are no sessions either. Rights that
/// only newer kernels know are taken where they are known.
pub fn enforce_landlock() -> Result<(), ConfinementError> {
    let known = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V2))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::AbstractUnixSocket | Scope::Signal)?
        .create()?;
    let status = RESOLVER_FILES.iter().try_fold(known, let_read)?.restrict_self()?;
    match (status.ruleset, status.no_new_privs) {
        (RulesetStatus::NotEnforced, _) | (_, false) => Err(ConfinementError::Partial),
        _ => Ok(()),
    }
}

fn let_read(rules: RulesetCreated, path: &&str) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(directory) => {
            let read = AccessFs::ReadFile | AccessFs::ReadDir;
            rules.add_rule(PathBeneath::new(directory, read))
        }
        Err(_) => Ok(rules),
    }
}

/// No core file, which would hold what sessions send.
///
/// # Errors
/// Those of `prctl`.
pub fn forbid_core_files() -> Result<(), ConfinementError> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| ConfinementError::Call("prctl(SET_DUMPABLE, 0)", errno.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, ToSocketAddrs};

    /// In a thread of its own, which takes the restriction with it when it ends.
    #[test]
    fn landlock_leaves_dialling_and_resolving() {
        let readable = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let path = readable.path().to_owned();
        let tried = move || {
            (
                std::fs::read(&path).map_err(|error| error.kind()),
                std::fs::write("/var/tmp/hangar-egress-probe", "x").map_err(|error| error.kind()),
                TcpListener::bind("127.0.0.1:0").is_ok(),
                std::process::Command::new("/bin/true").status().is_ok(),
                std::fs::read("/etc/hosts").is_ok(),
                ("localhost", 80).to_socket_addrs().is_ok(),
                TcpStream::connect(address).is_ok(),
            )
        };
        let outside = std::thread::spawn(tried.clone()).join().unwrap();
        assert_eq!(outside, (Ok(Vec::new()), Ok(()), true, true, true, true, true));
        std::fs::remove_file("/var/tmp/hangar-egress-probe").unwrap();
        let inside = std::thread::spawn(move || {
            enforce_landlock().unwrap();
            tried()
        });
        let denied = io::ErrorKind::PermissionDenied;
        let expected = (Err(denied), Err(denied), false, false, true, true, true);
        assert_eq!(inside.join().unwrap(), expected);
    }

    #[test]
    fn a_process_that_the_warden_did_not_start_is_refused() {
        // The tests run with capabilities.
        let error = check_start().unwrap_err();
        assert!(matches!(error, ConfinementError::Started { .. }), "{error}");
        let status = "Name:\tx\nCapEff:\t00ff\nCapEffX:\t0\nGroups:\t \n";
        assert_eq!((field_of(status, "CapEff"), field_of(status, "Groups")), ("00ff", ""));
        assert_eq!(field_of(status, "CapBnd"), "missing");
    }
}
