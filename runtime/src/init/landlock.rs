//! The Landlock domain of a session: entered once by init, inherited by every command.
//!
//! It is the second layer for content: where a mount would let a write through, Landlock refuses.
//! It does not guard metadata or mounts (isolation fact 1); ownership and locked mounts do.

use super::Confinement;
use crate::error::SetupError;
use crate::plan::{HOME_DIR, WORKSPACE_DIR};
use crate::proof::LandlockFacts;
use crate::wire::init::{Access as MountAccess, Mount};
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};

/// The oldest Landlock a session starts with: the first that lets files be renamed between
/// directories, without which ordinary tools break.
pub const ABI_MIN: u32 = 2;

/// The newest level whose rights this file gives a rule for.
const ABI_MAX: u32 = 6;

/// What older levels lack, and what holds it there.
const ABSENT: [(u32, &str); 3] = [
    (3, "truncate: read-only mounts and ownership refuse it"),
    (
        5,
        "ioctl on devices: only six harmless devices exist, and the filter refuses TIOCSTI and TIOCLINUX",
    ),
    (6, "scopes of signals and abstract sockets: the pid and network namespaces separate sessions"),
];

/// Enters the domain.
///
/// Every right of the kernel's level is a hard requirement; the status is checked.
///
/// # Errors
/// When the kernel's ABI is not the one the warden saw, or anything is not enforced.
pub fn enforce(confinement: &mut Confinement<'_>) -> Result<(), SetupError> {
    let name = "enforce-landlock";
    let abi = hangar_runtime_sys::landlock_abi();
    let setup = confinement.setup(name)?;
    if abi != setup.landlock_abi {
        return Err(SetupError::mismatch(name, "the ABI", setup.landlock_abi, abi));
    }
    let facts = facts(abi, &setup.mounts);
    let level = level(abi);
    let failed =
        |call: &str, error: &dyn std::fmt::Display| SetupError::other(name, call.to_owned(), error);
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(level))
        .map_err(|e| failed("landlock_create_ruleset(access)", &e))?;
    if abi >= 6 {
        ruleset = ruleset
            .scope(Scope::from_all(level))
            .map_err(|e| failed("landlock_create_ruleset(scope)", &e))?;
    }
    let mut created = ruleset.create().map_err(|e| failed("landlock_create_ruleset", &e))?;
    for (path, access) in rules(&setup.mounts) {
        let fd = PathFd::new(&path).map_err(|e| failed(&format!("open({path})"), &e))?;
        created = created
            .add_rule(PathBeneath::new(fd, access.rights(level)))
            .map_err(|e| failed(&format!("landlock_add_rule({path})"), &e))?;
    }
    let status = created.restrict_self().map_err(|e| failed("landlock_restrict_self", &e))?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        return Err(SetupError::mismatch(
            name,
            "the status",
            "fully enforced",
            format!("{:?}", status.ruleset),
        ));
    }
    confinement.landlock = facts;
    Ok(())
}

/// The kinds of rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Read, list, execute.
    Read,
    /// Everything but making device nodes.
    Write,
    /// Read and write what is there; no new entries.
    Use,
}

impl Rule {
    fn rights(self, level: ABI) -> BitFlags<AccessFs> {
        let read = AccessFs::Execute | AccessFs::ReadFile | AccessFs::ReadDir;
        let all = AccessFs::from_all(level);
        match self {
            Self::Read => read,
            Self::Write => all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev),
            Self::Use => {
                all & (AccessFs::ReadFile
                    | AccessFs::ReadDir
                    | AccessFs::WriteFile
                    | AccessFs::Truncate
                    | AccessFs::IoctlDev)
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Use => "use",
        }
    }
}

fn rules(mounts: &[Mount]) -> Vec<(String, Rule)> {
    let mut rules = vec![
        ("/".to_owned(), Rule::Read),
        ("/dev".to_owned(), Rule::Use),
        ("/proc".to_owned(), Rule::Use),
    ];
    for path in ["/tmp", "/run", "/dev/shm"] {
        rules.push((path.to_owned(), Rule::Write));
    }
    for mount in mounts.iter().filter(|mount| mount.access == MountAccess::ReadWrite) {
        rules.push((mount.target.clone(), Rule::Write));
    }
    debug_assert!(rules.iter().any(|(path, _)| path == WORKSPACE_DIR || path == HOME_DIR));
    rules
}

/// What a session with these mounts has to report on a kernel with this ABI.
#[must_use]
pub fn facts(abi: u32, mounts: &[Mount]) -> LandlockFacts {
    let level = level(abi);
    LandlockFacts {
        abi,
        handled: AccessFs::from_all(level).iter().map(|right| format!("{right:?}")).collect(),
        scopes: if abi >= 6 {
            Scope::from_all(level).iter().map(|scope| format!("{scope:?}")).collect()
        } else {
            Vec::new()
        },
        absent: ABSENT
            .iter()
            .filter(|(since, _)| abi < *since)
            .map(|(_, what)| (*what).to_owned())
            .collect(),
        rules: rules(mounts).into_iter().map(|(p, r)| (p, r.name().to_owned())).collect(),
        fully_enforced: true,
    }
}

fn level(abi: u32) -> ABI {
    match abi.min(ABI_MAX) {
        0 | 1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    }
}

impl LandlockFacts {
    /// What is true before [`enforce`] has run.
    #[must_use]
    pub fn none(abi: u32) -> Self {
        Self {
            abi,
            handled: Vec::new(),
            scopes: Vec::new(),
            absent: Vec::new(),
            rules: Vec::new(),
            fully_enforced: false,
        }
    }
}
