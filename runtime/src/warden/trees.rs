//! The directories that a plan names, opened for its launch.

use super::session_dir::SessionDir;
use super::state::{StateDir, open_below};
use super::version_dir::{EnvironmentDir, TreeName};
use crate::ids::EnvironmentId;
use crate::launch::Trees;
use crate::plan::{Environment, Plan};
use crate::wire::warden::{Refusal, RefusalCode};
use std::os::fd::OwnedFd;

/// Opens them all. A version without a record is not there.
pub(super) fn open(state: &StateDir, plan: &Plan, dir: &SessionDir) -> Result<Trees, Refusal> {
    let mut trees = Trees {
        workspace: dir.workdir()?,
        home: dir.home()?,
        environment: None,
        source: None,
        dependencies: None,
    };
    match &plan.environment {
        Environment::None => {}
        Environment::Version { id, version, .. } => {
            let environment = environment(state, id)?;
            if !environment.is_finished(*version)? {
                return Err(Refusal::new(RefusalCode::NotFound, "the version is not finished"));
            }
            trees.environment = Some(frozen(&environment, &TreeName::Version(*version))?);
        }
        Environment::Staging { id, dependencies, .. } => {
            trees.environment = Some(dir.ensure_tree()?);
            trees.source = Some(state.source(id).map_err(Refusal::not_found)?);
            if let Some(key) = dependencies {
                let name = TreeName::Dependencies(key.clone());
                trees.dependencies = Some(frozen(&environment(state, id)?, &name)?);
            }
        }
    }
    Ok(trees)
}

fn environment(state: &StateDir, id: &EnvironmentId) -> Result<EnvironmentDir, Refusal> {
    EnvironmentDir::open(state, id)?
        .ok_or_else(|| Refusal::new(RefusalCode::NotFound, "the environment has no versions"))
}

fn frozen(environment: &EnvironmentDir, name: &TreeName) -> Result<OwnedFd, Refusal> {
    let dir = environment.tree(name).map_err(Refusal::not_found)?;
    open_below(&dir, "tree").map_err(Refusal::not_found)
}
