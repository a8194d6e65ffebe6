//! What a build runs, in order, from what the manifests declare.

use super::super::manifests::Manifests;
use super::super::node::Node;
use super::super::python::{Project, Python};
use super::super::reuse::{BUILD_TOOLS, Reuse};
use crate::sessions::presets::Purpose;
use crate::store::Parts;
use hangar_runtime::plan::DEPENDENCIES_DIR;

/// The stage a build is in, as the protocol names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The source is copied.
    CopyingFiles,
    /// pip installs.
    PythonPackages,
    /// npm installs.
    NodePackages,
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

const INSTALL_PROJECT: &str = include_str!("scripts/install_project.py");

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

/// What a build runs for a project at `mount`.
#[must_use]
pub fn recipe(
    manifests: &Manifests,
    reuse: Option<&Reuse>,
    python: Option<&str>,
    mount: &str,
    source: Packages,
) -> Recipe {
    let mut recipe = Recipe::default();
    if let Some(wanted) = &manifests.python {
        recipe.parts.venv = true;
        let kept = reuse.is_some_and(|reuse| reuse.python);
        let steps = if kept { &mut recipe.kept } else { &mut recipe.always };
        python_packages(wanted, python, mount, kept, steps);
    }
    if let Some(wanted) = &manifests.node {
        recipe.parts.node_modules = true;
        let kept = reuse.is_some_and(|reuse| reuse.node);
        node_packages(wanted, if kept { &mut recipe.kept } else { &mut recipe.always });
    }
    if let Some(project) = manifests.python.as_ref().and_then(|python| python.project.as_ref()) {
        let kept = reuse.is_some_and(|reuse| reuse.python);
        project_itself(project, mount, kept, source, &mut recipe);
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
        on_failure: OnFailure::Fail,
    }
}

/// pip as a script, not as `python -m pip`, which would look for its modules in the project.
fn pip(mount: &str, arguments: &[&str]) -> Step {
    let title = format!("pip {}", arguments.join(" "));
    let program = format!("{mount}/.venv/bin/pip");
    step(Stage::PythonPackages, &title, &[&[program.as_str()], arguments].concat())
}

fn python_packages(
    wanted: &Python,
    version: Option<&str>,
    mount: &str,
    kept: bool,
    steps: &mut Vec<Step>,
) {
    let program = version.map_or("python3".to_owned(), |minor| format!("python{minor}"));
    let venv = format!("{mount}/.venv");
    let title = format!("{program} -m venv .venv");
    steps.push(step(Stage::PythonPackages, &title, &[&program, "-I", "-m", "venv", &venv]));
    if wanted.requirements {
        steps.push(pip(mount, &["install", "-r", "requirements.txt"]));
    }
    if let (true, Some(project)) = (kept, &wanted.project) {
        let dependencies: Vec<_> =
            project.dependencies.iter().flatten().map(String::as_str).collect();
        if !dependencies.is_empty() {
            steps.push(pip(mount, &[&["install"], &dependencies[..]].concat()));
        }
        let requires: Vec<_> = project.build_requires.iter().map(String::as_str).collect();
        let mut tools =
            pip(mount, &[&["install", "--target", BUILD_TOOLS], &requires[..]].concat());
        tools.on_failure = OnFailure::Ignore;
        steps.push(tools);
    }
    if !wanted.declared.is_empty() {
        let declared: Vec<_> = wanted.declared.iter().map(String::as_str).collect();
        steps.push(pip(mount, &[&["install"], &declared[..]].concat()));
    }
}

/// The project itself is installed by every build: its files are what changes.
fn project_itself(
    project: &Project,
    mount: &str,
    kept: bool,
    source: Packages,
    recipe: &mut Recipe,
) {
    if !kept || project.dependencies.is_none() {
        recipe.always.push(pip(mount, &["install", "."]));
        return;
    }
    let whole = pip(mount, &["install", "--no-deps", "."]);
    // What was just installed lies in the tree, what is kept beside it.
    let below = match source {
        Packages::Installed => mount,
        Packages::Kept => DEPENDENCIES_DIR,
    };
    let tools = format!("{below}/{BUILD_TOOLS}");
    match &project.build_backend {
        None => recipe.always.push(whole),
        Some(backend) => {
            recipe.beside_copy.push(install_aside(below, mount, backend));
            let made = format!("{ASIDE}{mount}/.");
            let title = "put the project over its packages";
            let mut install = step(Stage::PythonPackages, title, &["cp", "-a", "--", &made, mount]);
            install.on_failure = OnFailure::Instead(Box::new(whole));
            recipe.always.push(install);
        }
    }
    if source == Packages::Installed {
        let remove = step(Stage::PythonPackages, "rm build tools", &["rm", "-rf", &tools]);
        recipe.always.push(remove);
    }
}

/// The root below which the project is installed while its packages are copied.
const ASIDE: &str = "/tmp/hangar-project";

/// Installs the project below a root of its own. It needs nothing of the tree but the source, so
/// it can run while the packages are still copied. Where it fails pip says what is wrong.
fn install_aside(below: &str, mount: &str, backend: &str) -> Step {
    let (python, tools) = (format!("{below}/.venv/bin/python"), format!("{below}/{BUILD_TOOLS}"));
    let arguments = [&python, "-I", "-c", INSTALL_PROJECT, &tools, backend, mount, ASIDE];
    let title = "install the project with the kept build tools";
    let mut install = step(Stage::PythonPackages, title, &arguments);
    // For programs the backend starts.
    install.variables = vec![
        ("PYTHONPATH", tools.clone()),
        ("PATH", format!("{tools}/bin:{mount}/.venv/bin:/usr/local/bin:/usr/bin:/bin")),
    ];
    install.on_failure = OnFailure::Ignore;
    install
}

fn node_packages(wanted: &Node, steps: &mut Vec<Step>) {
    if wanted.manifest {
        let verb = if wanted.locked { "ci" } else { "install" };
        steps.push(step(Stage::NodePackages, &format!("npm {verb}"), &["npm", verb]));
    }
    if !wanted.declared.is_empty() {
        let declared: Vec<_> = wanted.declared.iter().map(String::as_str).collect();
        let arguments = [&["npm", "install", "--no-save"], &declared[..]].concat();
        steps.push(step(Stage::NodePackages, &arguments.join(" "), &arguments));
    }
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;
