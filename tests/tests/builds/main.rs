//! Builds: every manifest, every limit, and the faults that real projects brought along.

mod exhaustion;
mod faults;
mod frameworks;
mod limits;
mod missing;
mod node;
mod others;
mod projects;
mod python;
mod registries;
mod tools;

use hangar_tests::daemon::Daemon;
use hangar_tests::http::ask;
use hangar_tests::run::Place;
use hangar_tests::session::Session;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// A server with a configuration of its own.
struct Server {
    daemon: Daemon,
    place: Place,
}

/// Files of a project.
type Files<'a> = &'a [(&'a str, &'a str)];

impl Server {
    fn new() -> Self {
        Self::with("")
    }

    fn with(config: &str) -> Self {
        let place = Place::default();
        fs::create_dir_all(place.state()).unwrap();
        fs::write(place.state().join("config.toml"), config).unwrap();
        Self { daemon: Daemon::start(&place.state()), place }
    }

    /// An environment that declares something, not built.
    fn declaring(&self, name: &str, files: Files<'_>, mut more: Value) -> String {
        more["name"] = json!(name);
        let made = self.daemon.post("/v1/environments", &more);
        let id = made["id"].as_str().unwrap().to_owned();
        for (path, text) in files {
            self.put(&id, path, text.as_bytes());
        }
        id
    }

    fn put(&self, id: &str, path: &str, bytes: &[u8]) {
        let path = format!("/v1/environments/{id}/files/{path}");
        let answer = ask(&self.daemon.socket(), "PUT", &path, bytes);
        assert!(answer.status < 300, "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    fn build(&self, id: &str) -> Value {
        self.daemon.build(id, &json!({}))
    }

    /// The id and the log of an environment that is built.
    fn ready(&self, name: &str, files: Files<'_>) -> (String, String) {
        let id = self.declaring(name, files, json!({}));
        let log = built(&self.build(&id));
        (id, log)
    }

    /// The reason and the log of a build that fails.
    fn refused(&self, name: &str, files: Files<'_>) -> (String, String) {
        let id = self.declaring(name, files, json!({}));
        failed(&self.build(&id))
    }

    fn session(&self, id: &str) -> Session<'_> {
        self.daemon.session(&json!({ "environment": id, "network": "loopback" }))
    }
}

/// The log of a build that succeeded.
fn built(build: &Value) -> String {
    let log = build["log"].as_str().unwrap().to_owned();
    assert_eq!(build["status"], "ready", "{}\n{log}", build["error"]);
    log
}

/// The reason and the log of a build that failed. The reason is one sentence without host paths.
fn failed(build: &Value) -> (String, String) {
    let log = build["log"].as_str().unwrap().to_owned();
    assert_eq!(build["status"], "failed", "{log}");
    let reason = build["error"].as_str().unwrap().to_owned();
    assert!(!reason.is_empty() && !reason.contains('\n'), "{reason}");
    assert!(!reason.contains("/mnt/") && !reason.contains("/var/"), "{reason}");
    (reason, log)
}

/// What a script prints that ends with status 0.
fn says(session: &Session<'_>, script: &str) -> String {
    let text = format!("set -e\n{script}");
    let request = json!({ "command": ["bash", "-c", text], "timeout_ms": 120_000 });
    let ended = session.run(&request);
    let status = ended.status();
    assert_eq!(status, "0", "{script}\n{} {}\n{}", ended.cause(), ended.out(), ended.err());
    ended.out()
}

/// A lock file, made on this host by the program that will follow it.
fn lock(files: Files<'_>, program: &[&str], name: &str) -> String {
    let made = lock_at(files, program);
    fs::read_to_string(made.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A directory with these files and what a program of this host makes of them.
fn lock_at(files: Files<'_>, program: &[&str]) -> TempDir {
    let place = tempfile::tempdir().unwrap();
    write(place.path(), files);
    let home = TempDir::new().unwrap();
    let output = Command::new(program[0])
        .args(&program[1..])
        .current_dir(place.path())
        .env("HOME", home.path())
        .env("CI", "1")
        .output()
        .unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {}\n{said}", output.status);
    place
}

fn write(place: &Path, files: Files<'_>) {
    for (path, text) in files {
        let path = place.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Names of what is installed by a manager.
fn installed(build: &Value, manager: &str) -> Vec<String> {
    let packages = build["packages"].as_array().unwrap().iter();
    let of = packages.filter(|package| package["manager"] == manager);
    of.map(|package| package["name"].as_str().unwrap().to_owned()).collect()
}

/// A Python project whose package lies below `src`; it builds without any network.
const DEMO: Files<'_> = &[
    (
        "pyproject.toml",
        "[project]\nname = 'demo'\nversion = '1.0'\nrequires-python = '>=3.9'\n\
         dependencies = ['six==1.17.0']\n\
         [build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n\
         [tool.setuptools]\npackages = ['demo']\n[tool.setuptools.package-dir]\n'' = 'src'\n",
    ),
    ("src/demo/__init__.py", "import six\nVALUE = 42\n"),
];

/// `DEMO` with its lock of uv.
fn demo_of_uv() -> Vec<(&'static str, String)> {
    let lock = lock(
        DEMO,
        &["/usr/local/bin/uv", "lock", "--quiet", "--python", "/usr/bin/python3"],
        "uv.lock",
    );
    let mut files: Vec<_> = DEMO.iter().map(|(path, text)| (*path, (*text).to_owned())).collect();
    files.push(("uv.lock", lock));
    files
}

/// The same files, borrowed.
fn borrowed<'a>(files: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    files.iter().map(|(path, text)| (*path, text.as_str())).collect()
}
