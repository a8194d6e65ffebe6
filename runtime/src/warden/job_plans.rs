//! What each job of the worker sees, and under which ids it runs.

use super::session_dir::{DoomedSession, SessionDir};
use super::state::{StateDir, open_below};
use super::version_dir::{self, EnvironmentDir, TreeName};
use super::worker::{Identity, Plan, View};
use crate::error::SetupError;
use crate::ids::{EnvironmentId, SessionId, VersionNumber};
use crate::wire::warden::{Job, Refusal, RefusalCode};
use std::os::fd::{AsFd, OwnedFd};

/// What is done when the worker is done, or failed.
#[derive(Debug)]
pub(super) enum Work {
    Import,
    Freeze {
        environment: EnvironmentId,
        tree: TreeName,
        session: SessionId,
    },
    /// Reading versions: verifying, comparing, measuring.
    Read {
        environment: EnvironmentId,
    },
    RemoveSession(DoomedSession),
    /// A directory in `versions` (no environment) or in an environment's directory.
    RemoveTree {
        environment: Option<EnvironmentId>,
        name: String,
    },
}

/// Opens what the job names, and takes names away from what is to be removed.
pub(super) fn prepare(
    state: &StateDir,
    job: Job,
    options: Vec<u8>,
    upload: Option<OwnedFd>,
) -> Result<(Work, Plan), Refusal> {
    match job {
        Job::Import { environment } => {
            let out = state.import_target(&environment).map_err(Refusal::not_found)?;
            let plan = Plan {
                arguments: vec!["import".into()],
                identity: Identity::Owner(state.range().api()),
                views: vec![View::writable("out", out.as_fd())?],
                upload,
                options,
            };
            Ok((Work::Import, plan))
        }
        Job::Freeze { environment, version, session } => {
            prepare_freeze(state, environment, TreeName::Version(version), session, options)
        }
        Job::FreezeDependencies { environment, key, session } => {
            prepare_freeze(state, environment, TreeName::Dependencies(key), session, options)
        }
        Job::Verify { environment, version } => {
            let tree = version_tree(&environment_dir(state, &environment)?, version)?;
            let views = vec![View::read_only("in", tree.as_fd())?];
            Ok(prepare_read(state, "verify", environment, views, None, options))
        }
        Job::Compare { environment, from, to } => {
            let dir = environment_dir(state, &environment)?;
            let (from, to) = (version_tree(&dir, from)?, version_tree(&dir, to)?);
            let views = vec![
                View::read_only("in/from", from.as_fd())?,
                View::read_only("in/to", to.as_fd())?,
            ];
            Ok(prepare_read(state, "compare", environment, views, upload, options))
        }
        Job::Measure { environment } => {
            let dir = environment_dir(state, &environment)?;
            let views = vec![View::read_only("in", dir.as_fd())?];
            Ok(prepare_read(state, "measure", environment, views, None, options))
        }
        Job::RemoveSession { session } => {
            if !SessionDir::exists(state, &session)? {
                return Err(Refusal::new(RefusalCode::NotFound, "no such session"));
            }
            let doomed = DoomedSession::new(state, &session)?;
            let plan = plan_session_removal(&doomed, options)?.ok_or_else(|| {
                Refusal::new(RefusalCode::Failed, "the session's files belong to no block")
            })?;
            Ok((Work::RemoveSession(doomed), plan))
        }
        Job::RemoveVersion { environment, version } => {
            prepare_removal(state, environment, &TreeName::Version(version), options)
        }
        Job::RemoveDependencies { environment, key } => {
            prepare_removal(state, environment, &TreeName::Dependencies(key), options)
        }
        Job::RemoveEnvironment { environment } => {
            if EnvironmentDir::open(state, &environment)?.is_none() {
                return Err(Refusal::new(RefusalCode::NotFound, "it has no versions"));
            }
            let name = version_dir::doom_environment(state, &environment)?;
            let plan = plan_tree_removal(state, None, &name, options)?;
            Ok((Work::RemoveTree { environment: None, name }, plan))
        }
    }
}

fn environment_dir(
    state: &StateDir,
    environment: &EnvironmentId,
) -> Result<EnvironmentDir, Refusal> {
    EnvironmentDir::open(state, environment)?
        .ok_or_else(|| Refusal::new(RefusalCode::NotFound, "no such environment"))
}

fn version_tree(dir: &EnvironmentDir, version: VersionNumber) -> Result<OwnedFd, Refusal> {
    dir.tree(&TreeName::Version(version)).map_err(Refusal::not_found)
}

/// A job that reads what the store owns and changes nothing.
fn prepare_read(
    state: &StateDir,
    verb: &str,
    environment: EnvironmentId,
    views: Vec<View>,
    upload: Option<OwnedFd>,
    options: Vec<u8>,
) -> (Work, Plan) {
    let identity = Identity::Owner(state.range().store());
    let plan = Plan { arguments: vec![verb.into()], identity, views, upload, options };
    (Work::Read { environment }, plan)
}

/// Removes one tree of an environment.
fn prepare_removal(
    state: &StateDir,
    environment: EnvironmentId,
    tree: &TreeName,
    options: Vec<u8>,
) -> Result<(Work, Plan), Refusal> {
    let dir = environment_dir(state, &environment)?;
    if !dir.has(tree)? {
        return Err(Refusal::new(RefusalCode::NotFound, "no such tree"));
    }
    let name = dir.doom(&tree.to_string())?;
    let plan = plan_tree_removal(state, Some(&environment), &name, options)?;
    Ok((Work::RemoveTree { environment: Some(environment), name }, plan))
}

fn prepare_freeze(
    state: &StateDir,
    environment: EnvironmentId,
    tree: TreeName,
    session: SessionId,
    options: Vec<u8>,
) -> Result<(Work, Plan), Refusal> {
    if !SessionDir::exists(state, &session)? {
        return Err(Refusal::new(RefusalCode::NotFound, "no such session"));
    }
    let build = SessionDir::open(state, &session)?;
    let source = build.tree().map_err(Refusal::not_found)?;
    let dir = EnvironmentDir::ensure(state, &environment)?;
    if dir.has(&tree)? {
        return Err(Refusal::new(RefusalCode::Exists, format!("tree {tree} exists")));
    }
    let plan = Plan {
        arguments: vec!["freeze".into(), EnvironmentDir::temporary_name(&tree)],
        identity: Identity::Freezer { store: state.range().store(), build: build.block() },
        views: vec![View::read_only("in", source.as_fd())?, View::writable("store", dir.as_fd())?],
        upload: None,
        options,
    };
    dir.begin(state, &tree)?;
    Ok((Work::Freeze { environment, tree, session }, plan))
}

pub(super) fn plan_session_removal(
    doomed: &DoomedSession,
    options: Vec<u8>,
) -> Result<Option<Plan>, SetupError> {
    let (Some(dir), Some(block)) = (doomed.doom()?, doomed.block) else { return Ok(None) };
    Ok(Some(Plan {
        arguments: vec!["remove".into(), "doomed".into()],
        identity: Identity::BlockRemover(block),
        views: vec![View::writable("out/doomed", dir.as_fd())?],
        upload: None,
        options,
    }))
}

pub(super) fn plan_tree_removal(
    state: &StateDir,
    environment: Option<&EnvironmentId>,
    name: &str,
    options: Vec<u8>,
) -> Result<Plan, SetupError> {
    let dir = match environment {
        None => open_below(&state.versions, name)?,
        Some(environment) => open_below(&state.versions, &format!("{environment}/{name}"))?,
    };
    version_dir::give_to_store(state, dir.as_fd())?;
    Ok(Plan {
        arguments: vec!["remove".into(), "doomed".into()],
        identity: Identity::OwnerRemover(state.range().store()),
        views: vec![View::writable("out/doomed", dir.as_fd())?],
        upload: None,
        options,
    })
}
