//! Python manifests: what they ask for, and whether what they install can be kept.

use super::manifests::{Files, Kept};
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
}

/// What the Python manifests of a source ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Python {
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
    let setup = ["setup.py", "setup.cfg"].iter().any(|name| files(name).is_some());
    let mut inputs = BTreeMap::new();
    let mut kept = Ok(());
    if let Some(bytes) = &requirements {
        kept = closure("requirements.txt", bytes, files, &mut inputs, 0);
    }
    let project = pyproject.as_ref().and_then(|bytes| project(bytes, setup));
    if let Some(project) = &project {
        match &project.dependencies {
            None => {
                kept = kept.and(Err("pyproject.toml does not list its dependencies itself"));
            }
            Some(dependencies) => {
                let all = dependencies.iter().chain(&project.build_requires);
                kept = all.clone().fold(kept, |kept, line| kept.and(requirement(line)));
                let lines: Vec<_> = all.map(String::as_str).collect();
                inputs.insert("pyproject.toml".to_owned(), lines.join("\n").into_bytes());
            }
        }
    }
    kept = declared.iter().fold(kept, |kept, line| kept.and(requirement(line)));
    inputs.insert("declared".to_owned(), declared.join("\n").into_bytes());
    if requirements.is_none() && project.is_none() && declared.is_empty() {
        return None;
    }
    let kept = match kept {
        Ok(()) => Kept::By(inputs),
        Err(why) => Kept::Never(why),
    };
    let declared = declared.to_vec();
    Some(Python { requirements: requirements.is_some(), project, declared, kept })
}

/// The project a `pyproject.toml` describes. A file that only configures tools describes none.
/// What cannot be parsed is left to pip, which says what is wrong with it.
fn project(bytes: &[u8], setup: bool) -> Option<Project> {
    let unknown = Project { dependencies: None, build_requires: Vec::new(), build_backend: None };
    let Ok(text) = std::str::from_utf8(bytes) else { return Some(unknown) };
    let Ok(table) = text.parse::<toml::Table>() else { return Some(unknown) };
    let project = table.get("project").and_then(toml::Value::as_table);
    let system = table.get("build-system").and_then(toml::Value::as_table);
    if project.is_none() && system.is_none() && !setup {
        return None;
    }
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
    Some(Project { dependencies, build_requires, build_backend })
}

fn strings(value: &toml::Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
}

/// How many files `-r` and `-c` may lead through.
const INCLUDES_MAX: usize = 16;

/// Collects a requirements file and all files it names with `-r` and `-c`.
fn closure(
    path: &str,
    bytes: &[u8],
    files: Files<'_>,
    inputs: &mut BTreeMap<String, Vec<u8>>,
    depth: usize,
) -> Result<(), &'static str> {
    if inputs.insert(path.to_owned(), bytes.to_vec()).is_some() {
        return Ok(());
    }
    if depth > INCLUDES_MAX {
        return Err("requirements name each other too deeply");
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "requirements.txt is not UTF-8")?;
    for line in text.replace("\\\n", " ").lines() {
        let line = line.split(" #").next().unwrap_or_default().trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(named) = included(line) {
            let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
            let named = resolve(directory, named).ok_or("requirements name a file outside")?;
            let bytes = files(&named).ok_or("requirements name a file that is not there")?;
            closure(&named, &bytes, files, inputs, depth + 1)?;
        } else {
            requirement(line)?;
        }
    }
    Ok(())
}

/// The file a line names with `-r` or `-c`.
fn included(line: &str) -> Option<&str> {
    let options = ["--requirement", "--constraint", "-r", "-c"];
    let option = options.into_iter().find(|option| line.starts_with(option))?;
    let rest = line[option.len()..].trim_start_matches(['=', ' ', '\t']);
    (!rest.is_empty()).then_some(rest)
}

/// A relative path without `..` above the root.
fn resolve(directory: &str, path: &str) -> Option<String> {
    let mut names: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    if path.starts_with('/') || path.contains("://") {
        return None;
    }
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop()?;
            }
            name => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// Refuses a requirement that reads files of the source: they can change while the line stays.
fn requirement(line: &str) -> Result<(), &'static str> {
    let line = line.trim();
    let local = "a requirement refers to local files";
    if line.starts_with("-e") || line.starts_with("--editable") {
        return Err(local);
    }
    if line.starts_with("-f") || line.starts_with("--find-links") {
        return if line.contains("://") && !line.contains("file:") { Ok(()) } else { Err(local) };
    }
    if line.starts_with('-') {
        return Ok(());
    }
    // `name @ address` or an address or path by itself; markers come after `;`.
    let target = line.split(';').next().unwrap_or_default().trim();
    let address = target.split_once('@').map_or(target, |(_, address)| address.trim());
    let remote = address.contains("://") && !address.contains("file:");
    if address.contains("file:") {
        return Err(local);
    }
    let begins = |prefix: &str| target.starts_with(prefix) || address.starts_with(prefix);
    if begins("./") || begins("../") || begins("/") || begins("~") || target == "." {
        return Err(local);
    }
    let archive = [".whl", ".zip", ".tar.gz", ".tar.bz2", ".tgz"];
    if !remote && (target.contains('/') || archive.iter().any(|end| target.ends_with(end))) {
        return Err(local);
    }
    Ok(())
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
    fn the_key_covers_every_file_the_requirements_name() {
        let files = [
            ("requirements.txt", "numpy==2.0\n-r more/dev.txt\n-c limits.txt # why\n"),
            ("more/dev.txt", "pytest\n--requirement=../base.txt\n"),
            ("base.txt", "click"),
            ("limits.txt", "click<9"),
            ("other.txt", "unused"),
        ];
        let names: Vec<_> = inputs(&files).unwrap().into_keys().collect();
        let expected = ["base.txt", "declared", "limits.txt", "more/dev.txt", "requirements.txt"];
        assert_eq!(names, expected);
    }

    #[test]
    fn local_references_are_never_kept() {
        for line in [
            "-e .",
            "--editable ./lib",
            "./lib",
            "../lib",
            "/opt/lib",
            "lib @ file:///opt/lib",
            "file:lib",
            "wheels/a.whl",
            "a-1.0.tar.gz",
            "-f ./wheels",
            "--find-links=wheels",
            "-r missing.txt",
            "-r ../outside.txt",
            ".",
            "name @ ./lib",
            "numpy\\\n@ file:x",
        ] {
            assert!(inputs(&[("requirements.txt", line)]).is_none(), "{line}");
        }
    }

    #[test]
    fn what_comes_from_an_index_or_an_address_is_kept() {
        for line in [
            "",
            "# nothing",
            "numpy",
            "numpy==2.0 ; python_version > '3'",
            "uvicorn[standard]>=0.3",
            "--index-url https://example.org/simple",
            "x @ git+https://example.org/x.git@v1",
            "https://example.org/x-1.0.whl",
            "--no-binary :all:",
            "-f https://example.org/links",
        ] {
            assert!(inputs(&[("requirements.txt", line)]).is_some(), "{line}");
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
        let old = [("pyproject.toml", "[tool.ruff]"), ("setup.py", "")];
        assert!(detected(&old).unwrap().project.is_some());
        assert!(detected(&[]).is_none());
    }
}
