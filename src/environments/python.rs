//! Python manifests: what they ask for, and whether what they install can be kept.

use super::installers::Installer;
use super::manifests::{Files, Kept};
use super::requirements::{closure, requirement};
use std::collections::BTreeMap;

/// What a `pyproject.toml` says about the project itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// `[project.dependencies]`, when they are written there and nowhere else.
    pub dependencies: Option<Vec<String>>,
    /// What builds the project: `[build-system.requires]` or pip's default.
    pub build_requires: Vec<String>,
    /// The build backend, unless it is a part of the source.
    pub build_backend: Option<String>,
    /// Poetry can be told that there is nothing to install but dependencies.
    pub is_package: bool,
}

/// What the Python manifests of a source ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
    /// pip, or what wrote the lock file.
    pub installer: Installer,
    /// There is a `requirements.txt`.
    pub requirements: bool,
    /// There is a `pyproject.toml` that describes a project.
    pub project: Option<Project>,
    /// Packages the owner named beside the manifests.
    pub declared: Vec<String>,
    /// Whether the installed dependencies can be kept, and by what.
    pub kept: Kept,
}

/// Reads the Python manifests; `None` when there is nothing to install.
#[must_use]
pub fn detect(files: Files<'_>, declared: &[String]) -> Option<Python> {
    let requirements = files("requirements.txt");
    let pyproject = files("pyproject.toml");
    // A lock also lies beside a file that describes no package: Poetry's of an application, uv's of
    // a workspace.
    let others = ["setup.py", "setup.cfg", "uv.lock", "poetry.lock"];
    let others = others.iter().any(|name| files(name).is_some());
    let project = pyproject.as_ref().and_then(|bytes| project(bytes, others));
    if requirements.is_none() && project.is_none() && declared.is_empty() {
        return None;
    }
    let mut inputs = BTreeMap::new();
    let mut kept = match &requirements {
        Some(bytes) => closure("requirements.txt", bytes, files, &mut inputs, 0),
        None => Ok(()),
    };
    let (installer, lock) = installer(files, project.is_some());
    kept = kept.and(match (&lock, &project) {
        (Some((name, bytes)), _) => {
            inputs.insert((*name).to_owned(), bytes.clone());
            inputs.extend(pyproject.map(|bytes| ("pyproject.toml".to_owned(), bytes)));
            locked(bytes)
        }
        (None, Some(project)) => listed(project, &mut inputs),
        (None, None) => Ok(()),
    });
    kept = declared.iter().fold(kept, |kept, line| kept.and(requirement(line)));
    inputs.insert("declared".to_owned(), declared.join("\n").into_bytes());
    let kept = match kept {
        Ok(()) => Kept::By(inputs),
        Err(why) => Kept::Never(why),
    };
    let (declared, requirements) = (declared.to_vec(), requirements.is_some());
    Some(Python { installer, requirements, project, declared, kept })
}

/// What installs, and its lock. A lock without a project locks nothing.
fn installer(files: Files<'_>, project: bool) -> (Installer, Option<(&'static str, Vec<u8>)>) {
    let locks = [(Installer::Uv, "uv.lock"), (Installer::Poetry, "poetry.lock")];
    let found = locks.into_iter().find_map(|(by, name)| Some((by, (name, files(name)?))));
    match found.filter(|_| project) {
        Some((by, lock)) => (by, Some(lock)),
        None => (Installer::Pip, None),
    }
}

/// Looks for packages of the source in a lock of uv or Poetry. The project itself is no such: it
/// is installed by every build.
fn locked(bytes: &[u8]) -> Result<(), &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "the lock cannot be parsed")?;
    let lock: toml::Table = text.parse().map_err(|_| "the lock cannot be parsed")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    for package in packages.into_iter().flatten() {
        let Some(source) = package.get("source").and_then(toml::Value::as_table) else { continue };
        // uv: `{ editable = "." }`; Poetry: `{ type = "directory", url = "lib" }`.
        let named = ["editable", "virtual", "directory", "path"];
        let of_uv = named.iter().filter_map(|key| source.get(*key)?.as_str());
        let of_poetry =
            matches!(source.get("type").and_then(toml::Value::as_str), Some("directory" | "file"));
        if of_poetry || of_uv.into_iter().any(|path| path != ".") {
            return Err("the lock refers to local files");
        }
    }
    Ok(())
}

/// The dependencies a project lists by itself.
fn listed(project: &Project, inputs: &mut BTreeMap<String, Vec<u8>>) -> Result<(), &'static str> {
    let Some(dependencies) = &project.dependencies else {
        return Err("pyproject.toml does not list its dependencies itself");
    };
    let all: Vec<_> =
        dependencies.iter().chain(&project.build_requires).map(String::as_str).collect();
    inputs.insert("pyproject.toml".to_owned(), all.join("\n").into_bytes());
    all.into_iter().try_for_each(requirement)
}

/// The project a `pyproject.toml` describes. A file that only configures tools describes none, unless
/// other files of a project lie beside it. What cannot be parsed is left to pip, which says what is wrong with it.
fn project(bytes: &[u8], others: bool) -> Option<Project> {
    let unknown = Project {
        dependencies: None,
        build_requires: Vec::new(),
        build_backend: None,
        is_package: true,
    };
    let Ok(text) = std::str::from_utf8(bytes) else { return Some(unknown) };
    let Ok(table) = text.parse::<toml::Table>() else { return Some(unknown) };
    let project = table.get("project").and_then(toml::Value::as_table);
    let system = table.get("build-system").and_then(toml::Value::as_table);
    if project.is_none() && system.is_none() && !others {
        return None;
    }
    let poetry = table.get("tool").and_then(|tool| tool.get("poetry"));
    let mode = poetry.and_then(|poetry| poetry.get("package-mode"));
    let is_package = mode.and_then(toml::Value::as_bool) != Some(false);
    let build_requires = system
        .and_then(|system| strings(system.get("requires")?))
        .unwrap_or_else(|| vec!["setuptools>=40.8.0".to_owned(), "wheel".to_owned()]);
    let dynamic = project.and_then(|p| strings(p.get("dynamic")?)).unwrap_or_default();
    let dependencies = match project {
        Some(_) if dynamic.iter().any(|field| field == "dependencies") => None,
        Some(project) => match project.get("dependencies") {
            None => Some(Vec::new()),
            Some(value) => strings(value),
        },
        None => None,
    };
    let in_tree = system.is_some_and(|system| system.contains_key("backend-path"));
    let build_backend = system
        .and_then(|system| system.get("build-backend")?.as_str())
        .unwrap_or("setuptools.build_meta:__legacy__");
    let build_backend = (!in_tree).then(|| build_backend.to_owned());
    Some(Project { dependencies, build_requires, build_backend, is_package })
}

fn strings(value: &toml::Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(files: &[(&str, &str)]) -> Option<Python> {
        let read = |name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
        };
        detect(&read, &[])
    }

    fn inputs(files: &[(&str, &str)]) -> Option<BTreeMap<String, Vec<u8>>> {
        match detected(files).unwrap().kept {
            Kept::By(inputs) => Some(inputs),
            Kept::Never(_) => None,
        }
    }

    #[test]
    fn of_a_pyproject_only_the_dependencies_count() {
        let text = |body: &str| {
            format!("[project]\nname = 'x'\n{body}\n[build-system]\nrequires = ['hatchling']\n")
        };
        let one = text("version = '1'\ndependencies = ['numpy', 'pandas>=2']");
        let two = text("version = '2'\ndependencies = ['numpy', 'pandas>=2']");
        let three = text("version = '2'\ndependencies = ['numpy']");
        let inputs = |text: &str| inputs(&[("pyproject.toml", text)]).unwrap();
        assert_eq!(inputs(&one), inputs(&two));
        assert_ne!(inputs(&one), inputs(&three));
        let project = detected(&[("pyproject.toml", &one)]).unwrap().project.unwrap();
        assert_eq!(project.dependencies.unwrap(), ["numpy", "pandas>=2"]);
        assert_eq!(project.build_requires, ["hatchling"]);
    }

    #[test]
    fn dependencies_that_are_computed_are_never_kept() {
        for text in [
            "[project]\nname='x'\ndynamic=['dependencies']",
            "[tool.poetry]\nname='x'\n[build-system]\nrequires=['poetry-core']",
            "[project]\ndependencies=['x @ file:./y']",
            "not toml [",
        ] {
            let python = detected(&[("pyproject.toml", text)]).unwrap();
            assert!(matches!(python.kept, Kept::Never(_)), "{text}");
        }
    }

    #[test]
    fn a_pyproject_that_only_configures_tools_installs_nothing() {
        assert!(detected(&[("pyproject.toml", "[tool.ruff]\nline-length = 100")]).is_none());
        for other in ["setup.py", "uv.lock", "poetry.lock"] {
            let files = [("pyproject.toml", "[tool.x]"), (other, "")];
            assert!(detected(&files).unwrap().project.is_some(), "{other}");
        }
        let application =
            [("pyproject.toml", "[tool.poetry]\npackage-mode=false"), ("poetry.lock", "")];
        assert!(!detected(&application).unwrap().project.unwrap().is_package);
        assert!(detected(&[]).is_none());
    }

    #[test]
    fn a_lock_decides_what_installs_and_belongs_to_the_key() {
        let project = ("pyproject.toml", "[project]\nname='x'\ndynamic=['dependencies']");
        let lock = "[[package]]\nname='x'\nsource={editable='.'}\n\
                    [[package]]\nname='six'\nsource={registry='https://example.org/simple'}";
        let files = [project, ("uv.lock", lock)];
        assert_eq!(detected(&files).unwrap().installer, Installer::Uv);
        let names: Vec<_> = inputs(&files).unwrap().into_keys().collect();
        assert_eq!(names, ["declared", "pyproject.toml", "uv.lock"]);
        assert_eq!(detected(&[project, ("poetry.lock", "")]).unwrap().installer, Installer::Poetry);
        let alone = [("requirements.txt", ""), ("uv.lock", lock)];
        assert_eq!(detected(&alone).unwrap().installer, Installer::Pip);
        for source in ["{editable='lib'}", "{type='directory', url='lib'}", "{path='a.whl'}"] {
            let lock = format!("[[package]]\nname='a'\nsource={source}");
            assert!(inputs(&[project, ("uv.lock", &lock)]).is_none(), "{source}");
        }
    }
}
