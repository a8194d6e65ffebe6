//! What a warden that died left: found at start, before anything new is made.
//!
//! Processes, mounts and namespaces died with it. Cgroups, half-made directories and trees that
//! were being frozen or removed are on disk and are found by their names.

use super::session_dir::{self, DoomedSession, SessionDir};
use super::state::{StateDir, names};
use super::version_dir::{EnvironmentDir, REMOVING, TEMPORARY};
use crate::cgroup::Cgroups;
use crate::error::SetupError;
use crate::ids::{EnvironmentId, SessionId, VersionNumber};
use std::os::fd::AsFd;

/// What workers have to remove.
#[derive(Debug, Default)]
pub(super) struct LeftOvers {
    pub(super) sessions: Vec<DoomedSession>,
    /// With the environment the tree lies in, or nothing for a whole environment.
    pub(super) trees: Vec<(Option<EnvironmentId>, String)>,
}

/// Kills what runs in groups that were left, and removes them.
pub(super) fn groups(cgroups: &Cgroups) -> Result<(), SetupError> {
    for name in cgroups.tidy()? {
        log!("the cgroup of {name} was left and is removed");
    }
    Ok(())
}

/// Removes directories of sessions that were never finished.
pub(super) fn unfinished_sessions(state: &StateDir) -> Result<(), SetupError> {
    for name in state.session_names()? {
        if name.ends_with(session_dir::TEMPORARY) {
            session_dir::remove_unfinished(state, &name)?;
        }
    }
    Ok(())
}

/// Finds what is to be removed by workers, and completes records that init could not.
pub(super) fn left_overs(state: &StateDir) -> Result<LeftOvers, SetupError> {
    let mut left = LeftOvers::default();
    for name in state.session_names()? {
        if name.ends_with(session_dir::REMOVING) {
            left.sessions.push(DoomedSession::open(state, name)?);
        } else if let Ok(id) = SessionId::parse(&name) {
            SessionDir::open(state, &id)?.complete_records()?;
        } else {
            log!("sessions/{name} is not hangar's and stays");
        }
    }
    for name in names(state.versions.as_fd())? {
        match EnvironmentId::parse(&name) {
            Ok(id) => unfinished_trees(state, &id, &mut left)?,
            Err(_) if name.ends_with(REMOVING) => left.trees.push((None, name)),
            Err(_) if name.ends_with(TEMPORARY) => {
                super::state::remove_dir(&state.versions, &name)?;
            }
            Err(_) => log!("versions/{name} is not hangar's and stays"),
        }
    }
    Ok(left)
}

/// Trees that were being frozen or removed, and versions that never got their record.
fn unfinished_trees(
    state: &StateDir,
    id: &EnvironmentId,
    left: &mut LeftOvers,
) -> Result<(), SetupError> {
    let Some(dir) = EnvironmentDir::open(state, id)? else { return Ok(()) };
    for name in dir.names()? {
        let version = name.parse().ok().and_then(VersionNumber::new);
        let doomed = if name.ends_with(REMOVING) {
            Some(name)
        } else if name.ends_with(TEMPORARY) {
            Some(dir.doom(&name)?)
        } else {
            match version {
                Some(version) if !dir.is_finished(version)? => {
                    log!("version {version} of {id} has no record");
                    Some(dir.doom(&name)?)
                }
                _ => None,
            }
        };
        left.trees.extend(doomed.map(|name| (Some(id.clone()), name)));
    }
    Ok(())
}
