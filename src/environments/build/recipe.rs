//! What a build runs, in order, from what the manifests declare.

mod node;
mod others;
mod python;

use super::super::installers::Installer;
use super::super::manifests::Manifests;
use super::super::reuse::Reuse;
use crate::config;
use crate::sessions::presets::Purpose;
use crate::store::Parts;
use std::collections::BTreeMap;

/// The stage a build is in, as the protocol names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The source is copied.
    CopyingFiles,
    /// pip installs.
    PythonPackages,
    /// npm installs.
    NodePackages,
    /// Debian packages are unpacked.
    SystemPackages,
    /// Crates are vendored.
    CargoPackages,
    /// Go modules are downloaded.
    GoModules,
    /// Gems are installed.
    RubyGems,
    /// The project's own script runs.
    SetupScript,
    /// The version is frozen.
    Finishing,
}

impl Stage {
    /// As the record of the build has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CopyingFiles => "copying files",
            Self::PythonPackages => "python packages",
            Self::NodePackages => "node packages",
            Self::SystemPackages => "system packages",
            Self::CargoPackages => "cargo packages",
            Self::GoModules => "go modules",
            Self::RubyGems => "ruby gems",
            Self::SetupScript => "setup.sh",
            Self::Finishing => "finishing",
        }
    }
}

/// What becomes of the build when a step fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OnFailure {
    /// The build fails.
    Fail,
    /// The build goes on.
    Ignore,
    /// This step runs instead.
    Instead(Box<Step>),
}

/// What a step finds on its standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Empty,
    /// Where the host gets its Debian packages from, and which it has; see
    /// [`debian`](super::debian).
    DebianSources,
}

/// One command of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The stage it belongs to.
    pub stage: Stage,
    /// What the log and the reason of a failure call it.
    pub title: String,
    /// The program and its arguments.
    pub arguments: Vec<String>,
    /// Variables over the presets.
    pub variables: Vec<(&'static str, String)>,
    /// Which presets.
    pub purpose: Purpose,
    /// What it reads.
    pub input: Input,
    /// What becomes of the build when it fails.
    pub on_failure: OnFailure,
}

/// Where a build gets the packages that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packages {
    /// It installs them, and keeps them for later builds.
    Installed,
    /// An earlier build kept them.
    Kept,
}

/// Everything a build runs after the source is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recipe {
    /// Installs what is kept; left out when it is taken from an earlier build.
    pub kept: Vec<Step>,
    /// Runs in every build, also while the kept packages are copied.
    pub beside_copy: Vec<Step>,
    /// Runs in every build, when the packages are there.
    pub always: Vec<Step>,
    /// What the version has afterwards.
    pub parts: Parts,
}

/// What a recipe is for.
#[derive(Debug, Clone, Copy)]
pub struct For<'a> {
    /// Where the project lies.
    pub mount: &'a str,
    /// The minor version of Python the owner asked for.
    pub python: Option<&'a str>,
    /// Where kept packages come from.
    pub packages: Packages,
    /// The variables that the build was given.
    pub variables: &'a BTreeMap<String, String>,
    /// The toolchain's Yarn 2 or newer.
    pub yarn_berry: &'a str,
    /// Where the installers find packages.
    pub settings: &'a config::Build,
}

/// What a build runs.
#[must_use]
pub fn recipe(manifests: &Manifests, reuse: Option<&Reuse>, of: For<'_>) -> Recipe {
    let mut recipe = Recipe::default();
    let keeps = |installer: Installer| reuse.is_some_and(|reuse| reuse.keeps(installer));
    if let Some(wanted) = &manifests.python {
        recipe.parts.venv = true;
        python::packages(wanted, of, keeps(wanted.installer), &mut recipe);
    }
    if let Some(wanted) = &manifests.node {
        recipe.parts.node_modules = true;
        let kept = keeps(wanted.installer);
        node::packages(wanted, of, if kept { &mut recipe.kept } else { &mut recipe.always });
    }
    for wanted in &manifests.others {
        others::packages(wanted, of, keeps(wanted.installer), &mut recipe);
    }
    if let Some(wanted) = &manifests.python {
        python::project_itself(wanted, of, keeps(wanted.installer), &mut recipe);
    }
    if manifests.setup {
        let mut step = step(Stage::SetupScript, "setup.sh", &["bash", "setup.sh"]);
        step.purpose = Purpose::Setup;
        recipe.always.push(step);
    }
    recipe
}

fn step(stage: Stage, title: &str, arguments: &[&str]) -> Step {
    Step {
        stage,
        title: title.to_owned(),
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        variables: Vec::new(),
        purpose: Purpose::Installer,
        input: Input::Empty,
        on_failure: OnFailure::Fail,
    }
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
