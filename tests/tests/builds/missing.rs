//! A toolchain without the tool that a manifest needs: the build ends before anything runs, and
//! says which tool is missing and what asks for it.

use super::{Server, built, failed};
use hangar_tests::daemon::Daemon;
use hangar_tests::run::Place;
use serde_json::{Value, json};
use std::fs;

/// What a project has, what of it asks, and the program that is missing.
struct Row {
    files: super::Files<'static>,
    packages: (&'static str, &'static [&'static str]),
    asks: &'static str,
    program: &'static str,
}

const fn row(files: super::Files<'static>, asks: &'static str, program: &'static str) -> Row {
    Row { files, packages: ("pip", &[]), asks, program }
}

const PACKAGE: (&str, &str) = ("package.json", "{}");

const ROWS: &[Row] = &[
    row(&[("requirements.txt", "")], "a Python manifest", "python3"),
    row(&[("pyproject.toml", "[project]\nname = 'x'\n")], "a Python manifest", "python3"),
    row(&[("pyproject.toml", "[project]\nname = 'x'\n"), ("uv.lock", "")], "uv.lock", "uv"),
    row(
        &[("pyproject.toml", "[tool.poetry]\nname = 'x'\n"), ("poetry.lock", "")],
        "poetry.lock",
        "poetry",
    ),
    row(&[PACKAGE], "package.json", "npm"),
    row(&[PACKAGE, ("package-lock.json", "{}")], "package.json", "npm"),
    row(&[PACKAGE, ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n")], "pnpm-lock.yaml", "pnpm"),
    row(&[PACKAGE, ("yarn.lock", "# yarn lockfile v1\n")], "yarn.lock", "yarn"),
    row(&[PACKAGE, ("yarn.lock", "__metadata:\n  version: 8\n")], "yarn.lock", "yarn"),
    row(&[("Cargo.toml", "[workspace]\n")], "Cargo.toml", "cargo"),
    row(&[("go.mod", "module example.org/x\n")], "go.mod", "go"),
    row(&[("Gemfile", ""), ("Gemfile.lock", "GEM\n")], "Gemfile.lock", "bundle"),
    Row {
        files: &[],
        packages: ("apt", &["hello"]),
        asks: "the declared apt packages",
        program: "apt-get",
    },
    Row { files: &[], packages: ("npm", &["ms"]), asks: "package.json", program: "npm" },
    Row { files: &[], packages: ("pip", &["six"]), asks: "a Python manifest", program: "python3" },
];

/// Everything that an installer is called, on a host that has them all.
const HIDDEN: &[&str] = &[
    "python3",
    "uv",
    "poetry",
    "npm",
    "pnpm",
    "yarn",
    "yarn-berry",
    "cargo",
    "go",
    "bundle",
    "apt-get",
];

fn server_without(programs: &[&str]) -> Server {
    let place = Place::default();
    fs::create_dir_all(place.state()).unwrap();
    Server { daemon: Daemon::start_without(programs, &place.state()), place }
}

/// The record of a build of a row's project.
fn build(server: &Server, name: &str, row: &Row) -> Value {
    let (manager, names) = row.packages;
    let declared = json!({ "packages": { manager: names } });
    let id = server.declaring(name, row.files, declared);
    server.daemon.build(&id, &json!({ "network": "none" }))
}

#[test]
fn a_missing_tool_is_named_with_what_asks_for_it() {
    let server = server_without(HIDDEN);
    for (number, row) in ROWS.iter().enumerate() {
        let (reason, log) = failed(&build(&server, &format!("row-{number}"), row));
        let Row { asks, program, .. } = row;
        let says =
            format!("{asks} needs {program}, which the toolchain of this server does not have");
        assert_eq!(reason, says, "{:?}", row.files);
        assert!(!log.contains("$ "), "something ran: {log}");
    }
    // What needs none of them is built there.
    let id = server.declaring("plain", &[("setup.sh", "echo made\n")], json!({}));
    assert!(built(&server.build(&id)).contains("made\n"));
    let told = server.daemon.get("/v1/environments/runtimes");
    assert_eq!((&told["node"], &told["apt"]), (&json!([]), &json!(false)), "{told}");
}

#[test]
fn a_tool_that_is_there_is_not_missed() {
    // The others being away changes nothing for whom does not need them.
    let server = server_without(&["uv", "poetry", "pnpm", "yarn", "cargo", "go", "bundle"]);
    let project = [("requirements.txt", ""), PACKAGE];
    let id = server.declaring("both", &project, json!({}));
    built(&server.daemon.build(&id, &json!({ "network": "none" })));
    // Of two Yarns the one that wrote the lock is needed.
    let first = [PACKAGE, ("yarn.lock", "# yarn lockfile v1\n")];
    let (reason, _) = server.refused("first", &first);
    assert!(reason.starts_with("yarn.lock needs yarn, which"), "{reason}");
    let without_berry = server_without(&["yarn-berry"]);
    let berry = [PACKAGE, ("yarn.lock", "__metadata:\n  version: 8\n")];
    let (reason, _) = without_berry.refused("berry", &berry);
    assert!(
        reason.starts_with(
            "yarn.lock was written by Yarn 2 or newer, the toolchain of this server has Yarn 1"
        ),
        "{reason}"
    );
}
