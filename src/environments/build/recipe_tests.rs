use super::*;
use crate::environments::{manifests, reuse};
use crate::store::Declared;
use std::collections::BTreeMap;

const MOUNT: &str = "/env/x";

fn titles(steps: &[Step]) -> Vec<&str> {
    steps.iter().map(|step| step.title.as_str()).collect()
}

fn made(files: &[(&str, &str)], declared: Declared) -> Recipe {
    made_with(files, declared, Packages::Installed)
}

fn made_with(files: &[(&str, &str)], declared: Declared, source: Packages) -> Recipe {
    made_given(files, declared, source, &BTreeMap::new())
}

fn made_given(
    files: &[(&str, &str)],
    declared: Declared,
    source: Packages,
    variables: &BTreeMap<String, String>,
) -> Recipe {
    let read = |name: &str| {
        files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
    };
    let manifests = manifests::detect(&read, &declared);
    let reuse = reuse::decide(&manifests, "t", &[]).reuse;
    let settings = config::Build::default();
    let of = For {
        mount: MOUNT,
        python: None,
        packages: source,
        variables,
        yarn_berry: "yarn-berry",
        settings: &settings,
    };
    recipe(&manifests, reuse.as_ref(), of)
}

#[test]
fn setup_runs_last_of_the_project_and_is_never_kept() {
    let files = [
        ("requirements.txt", ""),
        ("package.json", "{}"),
        ("package-lock.json", "{}"),
        ("setup.sh", ""),
    ];
    let recipe = made(&files, Declared::default());
    assert_eq!(
        titles(&recipe.kept),
        ["python3 -m venv .venv", "pip install -r requirements.txt", "npm ci"]
    );
    assert_eq!(titles(&recipe.always), ["setup.sh"]);
    assert_eq!(recipe.parts, Parts { venv: true, node_modules: true, ..Parts::default() });
}

#[test]
fn a_project_is_installed_by_every_build_without_its_kept_dependencies() {
    let pyproject =
        "[project]\nname='x'\ndependencies=['numpy']\n[build-system]\nrequires=['hatchling']";
    let recipe = made(&[("pyproject.toml", pyproject)], Declared::default());
    assert_eq!(
        titles(&recipe.kept),
        [
            "python3 -m venv .venv",
            "pip install numpy",
            "pip install --target .hangar-build hatchling"
        ]
    );
    assert!(recipe.beside_copy[0].arguments.contains(&"/env/x/.hangar-build".to_owned()));
    let OnFailure::Instead(other) = &recipe.always[0].on_failure else { panic!("no other way") };
    assert_eq!(other.title, "pip install --no-deps .");
    assert_eq!(recipe.always[1].arguments, ["rm", "-rf", "/env/x/.hangar-build"]);

    let files = [("pyproject.toml", pyproject)];
    let later = made_with(&files, Declared::default(), Packages::Kept);
    assert_eq!(later.always.len(), 1, "the kept build tools lie outside of the tree");
    let build = &later.beside_copy[0].arguments;
    assert_eq!(build[0], "/run/hangar/dependencies/.venv/bin/python", "it is not copied yet");
    assert!(build.contains(&"/run/hangar/dependencies/.hangar-build".to_owned()));
    let put = ["cp", "-a", "--", "/tmp/hangar-project/env/x/.", "/env/x"];
    assert_eq!(later.always[0].arguments, put);
}

#[test]
fn a_backend_of_the_source_is_run_by_pip() {
    let pyproject =
        "[project]\nname='x'\n[build-system]\nrequires=[]\nbuild-backend='b'\nbackend-path=['.']";
    let recipe = made(&[("pyproject.toml", pyproject)], Declared::default());
    assert_eq!(recipe.always[0].title, "pip install --no-deps .");
    assert!(recipe.beside_copy.is_empty());
}

#[test]
fn what_cannot_be_kept_is_installed_by_every_build() {
    let dynamic = "[project]\nname='x'\ndynamic=['dependencies']";
    let recipe = made(&[("pyproject.toml", dynamic)], Declared::default());
    assert!(recipe.kept.is_empty());
    let expected = ["python3 -m venv .venv", "pip install ."];
    assert_eq!(titles(&recipe.always), expected);
}

#[test]
fn declared_packages_come_after_the_manifests() {
    let declared = Declared { pip: vec!["a".into()], npm: vec!["b".into()], apt: vec![] };
    let recipe = made(&[("requirements.txt", ""), ("package.json", "{}")], declared);
    assert_eq!(
        titles(&recipe.kept),
        [
            "python3 -m venv .venv",
            "pip install -r requirements.txt",
            "pip install a",
            "npm install",
            "npm install --no-save b"
        ]
    );
}

#[test]
fn who_is_told_the_version_finds_the_files_in_a_repository() {
    let project =
        "[project]\nname='x'\ndynamic=['version']\n[build-system]\nrequires=['setuptools-scm']";
    let files = [("pyproject.toml", project), ("setup.sh", "")];
    let given = |name: &str| {
        let variables = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
        made_given(&files, Declared::default(), Packages::Kept, &variables)
    };
    let told = given("SETUPTOOLS_SCM_PRETEND_VERSION_FOR_X");
    assert_eq!(told.beside_copy[0].title, "git init and add");
    let always = titles(&told.always);
    assert_eq!(always[always.len() - 2..], ["rm -rf .git", "setup.sh"]);
    for other in [given("OTHER"), made(&files, Declared::default())] {
        assert!(!titles(&other.beside_copy).contains(&"git init and add"));
    }
}

#[test]
fn nothing_declared_runs_nothing() {
    let recipe = made(&[("run.sh", "")], Declared::default());
    assert!(recipe.kept.is_empty() && recipe.always.is_empty());
}

#[test]
fn a_lock_is_followed_by_what_wrote_it_and_the_project_comes_after() {
    let project = ("pyproject.toml", "[project]\nname='x'\n[build-system]\nrequires=['hatchling']");
    let uv = made(&[project, ("uv.lock", ""), ("requirements.txt", "")], Declared::default());
    assert_eq!(
        titles(&uv.kept),
        ["uv sync --frozen --inexact --no-install-project", "uv pip install -r requirements.txt"]
    );
    assert_eq!(titles(&uv.always), ["uv sync --frozen --inexact"]);
    let poetry = made(&[project, ("poetry.lock", "")], Declared::default());
    assert_eq!(titles(&poetry.kept), ["python3 -m venv .venv", "poetry install --no-root"]);
    assert_eq!(titles(&poetry.always), ["poetry install --only-root"]);
    for (lock, text, title) in [
        ("pnpm-lock.yaml", "", "pnpm install --frozen-lockfile"),
        ("yarn.lock", "# yarn lockfile v1", "yarn install --frozen-lockfile"),
    ] {
        let node = made(&[("package.json", "{}"), (lock, text)], Declared::default());
        assert_eq!(titles(&node.kept), [title]);
    }
    let own = [
        ("package.json", "{}"),
        ("yarn.lock", "__metadata:"),
        (".yarnrc.yml", "yarnPath: y.cjs"),
        ("y.cjs", ""),
    ];
    let berry = made(&own, Declared::default());
    assert_eq!(berry.always[0].arguments, ["node", "/env/x/y.cjs", "install", "--immutable"]);
}

#[test]
fn other_installers_come_after_python_and_node_and_before_setup() {
    let declared = Declared { pip: vec![], npm: vec![], apt: vec!["jq".into()] };
    let files = [
        ("package.json", "{}"),
        ("Cargo.toml", ""),
        ("Cargo.lock", ""),
        ("go.mod", "module x"),
        ("Gemfile", ""),
        ("Gemfile.lock", ""),
        ("setup.sh", ""),
    ];
    let recipe = made(&files, declared);
    assert_eq!(
        titles(&recipe.kept),
        [
            "npm install",
            "apt-get download jq",
            "cargo vendor --locked",
            "go mod download",
            "bundle install"
        ]
    );
    assert_eq!(titles(&recipe.always), ["point cargo to the vendored crates", "setup.sh"]);
    assert!(recipe.parts.apt && recipe.parts.go_modules && recipe.parts.gems);
    assert_eq!(recipe.kept[1].input, Input::DebianSources);
}
