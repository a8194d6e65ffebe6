//! What a build runs for Python.

use super::{For, OnFailure, Packages, Recipe, Stage, Step, step};
use crate::environments::LEFT_OUT;
use crate::environments::installers::Installer;
use crate::environments::others::directory;
use crate::environments::python::{Project, Python};
use crate::environments::reuse::BUILD_TOOLS;
use hangar_runtime::plan::DEPENDENCIES_DIR;

const INSTALL_PROJECT: &str = include_str!("../scripts/install_project.py");

/// Everything but the project itself.
pub(super) fn packages(wanted: &Python, of: For<'_>, kept: bool, recipe: &mut Recipe) {
    let steps = if kept { &mut recipe.kept } else { &mut recipe.always };
    match wanted.installer {
        Installer::Uv => by_uv(wanted, of, steps),
        Installer::Poetry => by_poetry(wanted, of, steps),
        _ => by_pip(wanted, of, kept, steps),
    }
}

/// The project itself is installed by every build: its files are what changes.
pub(super) fn project_itself(wanted: &Python, of: For<'_>, kept: bool, recipe: &mut Recipe) {
    let Some(project) = &wanted.project else { return };
    let asks_git = is_told_its_version(of);
    if asks_git {
        recipe.beside_copy.push(repository(of));
    }
    match wanted.installer {
        Installer::Uv => recipe.always.push(uv(of, &["sync", "--frozen", "--inexact"])),
        Installer::Poetry if !project.is_package => {}
        Installer::Poetry => recipe.always.push(poetry(&["install", "--only-root"])),
        _ => project_by_pip(project, of, kept, recipe),
    }
    if asks_git {
        let arguments = ["rm", "-rf", &format!("{}/.git", of.mount)];
        recipe.always.push(step(Stage::PythonPackages, "rm -rf .git", &arguments));
    }
}

/// Whether the build was given what setuptools-scm and its like would ask git for.
fn is_told_its_version(of: For<'_>) -> bool {
    let says = |name: &String| name.contains("SCM_PRETEND_VERSION") || name == "PBR_VERSION";
    of.variables.keys().any(says)
}

/// A repository of what was copied. The same tools take the files of a package from git, and without
/// one they leave them out and say nothing.
fn repository(of: For<'_>) -> Step {
    let script = "set -e; cd \"$0\"; git init -q .; printf '%s\\n' \"$@\" > .git/info/exclude; \
                  git add -A; git -c user.name=build -c user.email=build commit -q -m source";
    let excluded = LEFT_OUT.iter().copied().chain([BUILD_TOOLS, directory(Installer::Apt)]);
    let arguments: Vec<_> = ["bash", "-c", script, of.mount].into_iter().chain(excluded).collect();
    let mut step = step(Stage::PythonPackages, "git init and add", &arguments);
    step.on_failure = OnFailure::Ignore;
    step
}

fn interpreter(of: For<'_>) -> String {
    of.python.map_or("python3".to_owned(), |minor| format!("python{minor}"))
}

fn virtual_environment(of: For<'_>) -> Step {
    let (program, venv) = (interpreter(of), format!("{}/.venv", of.mount));
    let title = format!("{program} -m venv .venv");
    step(Stage::PythonPackages, &title, &[&program, "-I", "-m", "venv", &venv])
}

/// pip as a script, not as `python -m pip`, which would look for its modules in the project.
fn pip(mount: &str, arguments: &[&str]) -> Step {
    let title = format!("pip {}", arguments.join(" "));
    let program = format!("{mount}/.venv/bin/pip");
    step(Stage::PythonPackages, &title, &[&[program.as_str()], arguments].concat())
}

fn by_pip(wanted: &Python, of: For<'_>, kept: bool, steps: &mut Vec<Step>) {
    let mount = of.mount;
    steps.push(virtual_environment(of));
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

fn by_poetry(wanted: &Python, of: For<'_>, steps: &mut Vec<Step>) {
    steps.push(virtual_environment(of));
    steps.push(poetry(&["install", "--no-root"]));
    if wanted.requirements {
        steps.push(pip(of.mount, &["install", "-r", "requirements.txt"]));
    }
    if !wanted.declared.is_empty() {
        let declared: Vec<_> = wanted.declared.iter().map(String::as_str).collect();
        steps.push(pip(of.mount, &[&["install"], &declared[..]].concat()));
    }
}

/// Poetry installs into the virtual environment that its variables name.
fn poetry(arguments: &[&str]) -> Step {
    let title = format!("poetry {}", arguments.join(" "));
    let quiet = ["--no-interaction", "--no-ansi"];
    step(Stage::PythonPackages, &title, &[&["poetry"], arguments, &quiet].concat())
}

/// uv makes the virtual environment itself. What is not in its lock stays: `--inexact`.
fn by_uv(wanted: &Python, of: For<'_>, steps: &mut Vec<Step>) {
    steps.push(uv(of, &["sync", "--frozen", "--inexact", "--no-install-project"]));
    if wanted.requirements {
        steps.push(uv(of, &["pip", "install", "-r", "requirements.txt"]));
    }
    if !wanted.declared.is_empty() {
        let declared: Vec<_> = wanted.declared.iter().map(String::as_str).collect();
        steps.push(uv(of, &[&["pip", "install"], &declared[..]].concat()));
    }
}

fn uv(of: For<'_>, arguments: &[&str]) -> Step {
    let title = format!("uv {}", arguments.join(" "));
    let mut step = step(Stage::PythonPackages, &title, &[&["uv"], arguments].concat());
    step.variables.push(("UV_PROJECT_ENVIRONMENT", format!("{}/.venv", of.mount)));
    if let Some(minor) = of.python {
        step.variables.push(("UV_PYTHON", minor.to_owned()));
    }
    step
}

fn project_by_pip(project: &Project, of: For<'_>, kept: bool, recipe: &mut Recipe) {
    let (mount, source) = (of.mount, of.packages);
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
