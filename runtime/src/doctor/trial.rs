//! The trial: a session with every barrier, launched and taken down again.

use super::Finding;
use crate::cgroup::Cgroups;
use crate::error::{AtStep, SetupError};
use crate::ids::{Range, SessionId};
use crate::launch::{Launcher, Preparation, Request, SharedTrees, Trees, toolchain};
use crate::plan::{Environment, Limits, Network, Plan, Profile};
use crate::proof::ProofRecord;
use crate::steps::LAUNCH;
use rustix::fs::{Mode, OFlags, open};
use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The programs a trial needs.
#[derive(Debug, Clone, Copy)]
pub struct Images<'a> {
    /// The program of init, sealed.
    pub init: BorrowedFd<'a>,
}

/// The block of the trial's session: the last one, which the warden hands out last.
const TRIAL_BLOCK: NonZeroU16 = NonZeroU16::new(4000).expect("not 0");

pub(super) fn findings(state_dir: &Path, images: Images<'_>) -> Vec<Finding> {
    if !rustix::process::geteuid().is_root() {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let cgroups = match Cgroups::detect(&format!("doctor-{}", std::process::id())) {
        Ok(cgroups) => {
            let (v1, v2) = cgroups.controllers();
            findings.push(Finding::good(
                "limits",
                format!("pids, memory and cpu tried; on v2: {v2:?}, on v1: {v1:?}"),
            ));
            cgroups
        }
        Err(error) => {
            findings.push(Finding::lacking(
                "limits",
                error.to_string(),
                "hangar needs the pids, memory and cpu controllers; under systemd give the unit \
                 Delegate=yes",
            ));
            return findings;
        }
    };
    let directory = state_dir.join(format!("doctor-{}", std::process::id()));
    let tried = session(&directory, &cgroups, images);
    // What could not be removed is told with the finding.
    let removed = std::fs::remove_dir_all(&directory);
    cgroups.remove_parents();
    findings.push(match (tried, removed) {
        (Ok(proof), Ok(())) => Finding::good(
            "a session",
            format!(
                "launched with all {} steps and proven: {} mounts, {} filters",
                LAUNCH.len(),
                proof.mounts.len(),
                proof.seccomp_filters
            ),
        ),
        (Ok(_), Err(error)) => {
            Finding::weaker("a session", format!("launched; {}: {error}", directory.display()), "")
        }
        (Err(error), _) => Finding::lacking("a session", error.to_string(), remedy(&error)),
    });
    findings
}

fn remedy(error: &SetupError) -> &'static str {
    match error.step {
        "map-owners" => {
            "put the state directory on ext4, xfs or btrfs: its filesystem takes no id maps"
        }
        "mount-proc" => "run outside of a container: /proc is partly hidden here",
        "clone-stage-one" => {
            "allow namespaces: see /proc/sys/user and kernel.unprivileged_userns_*"
        }
        _ => "the step above failed; SECURITY.md says what it protects",
    }
}

fn session(
    directory: &Path,
    cgroups: &Cgroups,
    images: Images<'_>,
) -> Result<ProofRecord, SetupError> {
    let launcher = Launcher::new()?;
    let range = Range::default();
    let block = range.block(TRIAL_BLOCK);
    let plan = Plan {
        session: SessionId::parse(&format!("hsess{:032x}", std::process::id()))
            .map_err(|error| SetupError::other("trial", "the session id", error))?,
        profile: Profile::Strict,
        environment: Environment::None,
        network: Network::Loopback,
        limits: Limits { memory_bytes_max: 256 << 20, pids_max: 64, ..Limits::default() },
    };
    let own = |name: &str| -> Result<OwnedFd, SetupError> {
        let path = directory.join(name);
        std::fs::create_dir_all(&path).at("trial", || format!("mkdir({})", path.display()))?;
        std::os::unix::fs::chown(&path, Some(block.agent()), Some(block.agent()))
            .at("trial", || format!("chown({})", path.display()))?;
        open_directory(&path)
    };
    let etc = directory.join("etc");
    std::fs::create_dir_all(&etc).at("trial", || format!("mkdir({})", etc.display()))?;
    let etc = open_directory(&etc)?;
    toolchain::write_etc(etc.as_fd())?;
    let trees = Trees {
        workspace: own("workdir")?,
        home: own("home")?,
        environment: None,
        source: None,
        dependencies: None,
    };
    let packs = own("packs")?;
    let cgroup = cgroups.create_session(&plan.session, &plan.limits, block.base)?;
    let placement = cgroup.placement();
    let preparation = Preparation {
        range,
        block,
        placement,
        trees: SharedTrees { toolchain_etc: etc.as_fd(), packs: packs.as_fd() },
        init_image: images.init,
        init_arguments: &[],
        steps: LAUNCH,
    };
    let launched = launcher.prepare(preparation).and_then(|prepared| {
        launcher.launch(Request { plan: &plan, trees, prepared, steps: LAUNCH })
    });
    let proof = launched.map(|launched| {
        let proof = launched.proof.clone();
        launched.end();
        proof
    });
    let deadline = Instant::now() + Duration::from_secs(5);
    while !cgroup.kill_all().and_then(|()| cgroup.try_remove())? {
        if Instant::now() > deadline {
            return Err(SetupError::other("trial", "removing the cgroup", "it stays busy"));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    proof
}

fn open_directory(path: &Path) -> Result<OwnedFd, SetupError> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .at("trial", || format!("open({})", path.display()))
}
