//! Packages from registries of one's own, which only the configuration names: each installer gets a
//! package that no other registry has, over HTTP and through the proxy of the build.

use super::{Server, built, installed, lock_at, says};
use hangar_archives::{Tar, Zip, gzip};
use hangar_tests::repositories::Repositories;
use hangar_tests::run::Place;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A server whose builds know no registry but this one.
struct Own {
    server: Server,
    registry: Repositories,
    _place: Place,
}

impl Own {
    fn new() -> Self {
        let place = Place::default();
        let registry = Repositories::start(&place.path("registry"));
        let config = format!(
            "[build]\npip_index_url = '{0}/pip'\nnpm_registry = '{0}/npm/'\ngo_proxy = '{0}/go'\n\
             gem_mirror = '{0}/gems'\ncargo_registry = 'sparse+{0}/cargo/'\n",
            registry.url("files")
        );
        Self { server: Server::with(&config), registry, _place: place }
    }

    /// Builds twice: what comes from a registry is kept. The last record.
    fn build_twice(&self, id: &str, order: &Value) -> Value {
        built(&self.server.daemon.build(id, order));
        let build = self.server.daemon.build(id, order);
        let log = built(&build);
        assert!(log.contains("taking the installed packages of an earlier build"), "{log}");
        build
    }

    fn say(&self, id: &str, script: &str, expected: &str) {
        assert_eq!(says(&self.server.session(id), script), expected);
    }
}

fn run(program: &[&str], directory: &Path) -> String {
    let output = Command::new(program[0]).args(&program[1..]).current_dir(directory).output();
    let output = output.unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn pip_installs_from_it() {
    let own = Own::new();
    let name = "hangar_word-1.0-py3-none-any.whl";
    let info = "hangar_word-1.0.dist-info";
    let wheel = Zip::new()
        .file("hangar_word.py", "IT = 'a wheel'\n")
        .file(
            format!("{info}/METADATA"),
            "Metadata-Version: 2.1\nName: hangar-word\nVersion: 1.0\n",
        )
        .file(
            format!("{info}/WHEEL"),
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        .file(format!("{info}/RECORD"), "")
        .finish();
    own.registry.put(&format!("pip/{name}"), wheel);
    own.registry.put(
        "pip/hangar-word/index.html",
        format!("<!DOCTYPE html><html><body><a href=\"../{name}\">{name}</a></body></html>"),
    );
    let files = [("requirements.txt", "hangar-word==1.0\n")];
    let id = own.server.declaring("word", &files, json!({}));
    // pip takes plain HTTP only from hosts it is told to trust.
    let host = own.registry.url("");
    let host = host.trim_start_matches("http://").trim_end_matches('/');
    let build = own.build_twice(&id, &json!({ "variables": { "PIP_TRUSTED_HOST": host } }));
    assert!(installed(&build, "pip").contains(&"hangar-word".to_owned()), "{build}");
    own.say(&id, "python -c 'import hangar_word; print(hangar_word.IT)'", "a wheel\n");
}

#[test]
fn npm_installs_from_it() {
    let own = Own::new();
    let package = json!({ "name": "hangar-word", "version": "1.0.0", "main": "index.js" });
    let tar = Tar::new()
        .file("package/package.json", package.to_string())
        .file("package/index.js", "module.exports = 'a package';\n");
    own.registry.put("npm/word.tgz", gzip(&tar.finish()));
    let mut version = package;
    version["dist"] = json!({ "tarball": own.registry.url("files/npm/word.tgz") });
    let metadata = json!({
        "name": "hangar-word", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version },
    });
    own.registry.put("npm/hangar-word", metadata.to_string());
    let project = r#"{"name": "x", "version": "1.0.0", "dependencies": {"hangar-word": "^1.0.0"}}"#;
    let id = own.server.declaring("word", &[("package.json", project)], json!({}));
    let build = own.build_twice(&id, &json!({}));
    assert_eq!(installed(&build, "npm"), ["hangar-word"]);
    own.say(&id, "node -p 'require(\"hangar-word\")'", "a package\n");
}

const MODULE: &str = "module example.org/word\n\ngo 1.19\n";
const TOOL: [(&str, &str); 2] = [
    ("go.mod", "module example.org/tool\n\ngo 1.19\n\nrequire example.org/word v1.2.0\n"),
    (
        "main.go",
        "package main\n\nimport (\n\t\"fmt\"\n\n\t\"example.org/word\"\n)\n\n\
         func main() { fmt.Println(word.It()) }\n",
    ),
];

/// Puts a module on the registry; where it lies on this host.
fn module(own: &Own) -> String {
    let source = "package word\n\n// It is one.\nfunc It() string { return \"a module\" }\n";
    let root = "example.org/word@v1.2.0";
    let zip = Zip::new()
        .file(format!("{root}/go.mod"), MODULE)
        .file(format!("{root}/word.go"), source)
        .finish();
    let base = "go/example.org/word/@v";
    own.registry.put(&format!("{base}/v1.2.0.zip"), zip);
    own.registry.put(&format!("{base}/v1.2.0.mod"), MODULE);
    own.registry.put(&format!("{base}/v1.2.0.info"), r#"{"Version": "v1.2.0"}"#);
    let list = own.registry.put(&format!("{base}/list"), "v1.2.0\n");
    list.ancestors().nth(4).unwrap().to_str().unwrap().to_owned()
}

/// go on this host, with that module and no other.
fn go(proxy: &str, arguments: &str) -> String {
    format!(
        "export GOPROXY=file://{proxy} GOSUMDB=off GOFLAGS=-modcacherw; go mod tidy; {arguments}"
    )
}

#[test]
fn go_downloads_from_it() {
    let own = Own::new();
    let script = go(&module(&own), "true");
    let made = lock_at(&TOOL, &["bash", "-c", &script]);
    let sums = std::fs::read_to_string(made.path().join("go.sum")).unwrap();
    let files = [TOOL[0], TOOL[1], ("go.sum", sums.as_str())];
    let id = own.server.declaring("tool", &files, json!({}));
    let build = own.build_twice(&id, &json!({}));
    assert_eq!(installed(&build, "go"), ["example.org/word"]);
    own.say(&id, "cd /env/tool; go run .; go vet .", "a module\n");
    // A sum that is not the module's ends the build.
    let wrong = sums.replace("h1:", "h1:AAAA");
    let (reason, log) = own.server.refused("wrong", &[TOOL[0], TOOL[1], ("go.sum", &wrong)]);
    assert_eq!(reason, "`go mod download` ended with status 1", "{log}");
}

#[test]
fn go_uses_what_a_project_vendors() {
    let own = Own::new();
    let script = go(&module(&own), "go mod vendor");
    let made = lock_at(&TOOL, &["bash", "-c", &script]);
    let read = |path: &str| std::fs::read_to_string(made.path().join(path)).unwrap();
    let paths = ["go.sum", "vendor/modules.txt", "vendor/example.org/word/word.go"];
    let vendored = paths.map(|path| (path, read(path)));
    let vendored: Vec<_> = vendored.iter().map(|(path, text)| (*path, text.as_str())).collect();
    let files = [&TOOL[..], &vendored].concat();
    let id = own.server.declaring("tool", &files, json!({}));
    let build = own.server.daemon.build(&id, &json!({ "network": "none" }));
    let log = built(&build);
    assert!(log.contains("not kept for later builds: the modules lie in vendor"), "{log}");
    assert_eq!(installed(&build, "go"), ["example.org/word"]);
    own.say(&id, "cd /env/tool; go run .", "a module\n");
}

/// A gem `word` and the directory it lies in.
fn gem(place: &Place) -> std::path::PathBuf {
    let directory = place.path("gem");
    let spec = "Gem::Specification.new { |s| s.name = 'word'; s.version = '1.0'; s.summary = 'x'\n\
                s.authors = ['x']; s.files = ['lib/word.rb'] }\n";
    place.write("gem/word.gemspec", spec);
    place.write("gem/lib/word.rb", "module Word; IT = 'a gem'; end\n");
    let _said = run(&["/usr/bin/gem", "build", "--quiet", "word.gemspec"], &directory);
    directory.join("word-1.0.gem")
}

/// Of a registry that is nowhere, unless it has a mirror.
const GEMFILE: &str = "source 'http://gems.invalid.example'\ngem 'word'\n";
const GEMFILE_LOCK: &str = "GEM\n  remote: http://gems.invalid.example/\n  specs:\n    word (1.0)\n\n\
    PLATFORMS\n  ruby\n  x86_64-linux\n\nDEPENDENCIES\n  word\n";

#[test]
fn bundler_installs_from_it() {
    let own = Own::new();
    let gem = std::fs::read(gem(&own.server.place)).unwrap();
    let path = own.registry.put("gems/gems/word-1.0.gem", gem);
    let root = path.ancestors().nth(2).unwrap();
    let _said = run(&["/usr/bin/gem", "generate_index", "--quiet", "--directory", "."], root);
    let files = [("Gemfile", GEMFILE), ("Gemfile.lock", GEMFILE_LOCK)];
    let id = own.server.declaring("ruby", &files, json!({}));
    let build = own.build_twice(&id, &json!({}));
    assert_eq!(installed(&build, "gem"), ["word"]);
    own.say(&id, "cd /env/ruby; bundle exec ruby -e 'require \"word\"; puts Word::IT'", "a gem\n");
}

#[test]
fn bundler_uses_gems_that_lie_in_the_project() {
    let server = Server::new();
    let files = [("Gemfile", GEMFILE), ("Gemfile.lock", GEMFILE_LOCK)];
    let id = server.declaring("ruby", &files, json!({}));
    let gem = std::fs::read(gem(&server.place)).unwrap();
    server.put(&id, "vendor/cache/word-1.0.gem", &gem);
    let build = server.daemon.build(&id, &json!({ "network": "none" }));
    let log = built(&build);
    assert!(log.contains("not kept for later builds: gems lie in vendor/cache"), "{log}");
    assert_eq!(installed(&build, "gem"), ["word"]);
    let script = "cd /env/ruby; bundle exec ruby -e 'require \"word\"; puts Word::IT'";
    assert_eq!(says(&server.session(&id), script), "a gem\n");
}

#[test]
fn cargo_vendors_from_it() {
    let own = Own::new();
    let manifest = "[package]\nname = \"hangar-word\"\nversion = \"1.0.0\"\nedition = \"2021\"\n";
    let tar = Tar::new()
        .file("hangar-word-1.0.0/Cargo.toml", manifest)
        .file("hangar-word-1.0.0/src/lib.rs", "pub const IT: &str = \"a crate\";\n");
    let path = own.registry.put("cargo/dl/hangar-word/1.0.0/download", gzip(&tar.finish()));
    let sum = run(&["sha256sum", path.to_str().unwrap()], Path::new("/"));
    let line = json!({
        "name": "hangar-word", "vers": "1.0.0", "deps": [], "features": {}, "yanked": false,
        "cksum": sum.split(' ').next(),
    });
    own.registry.put("cargo/ha/ng/hangar-word", format!("{line}\n"));
    let config = json!({ "dl": own.registry.url("files/cargo/dl") });
    own.registry.put("cargo/config.json", config.to_string());
    let files = [
        (
            "Cargo.toml",
            "[package]\nname = \"tool\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
             [dependencies]\nhangar-word = \"1\"\n",
        ),
        ("src/main.rs", "fn main() { println!(\"{}\", hangar_word::IT); }\n"),
    ];
    let id = own.server.declaring("tool", &files, json!({}));
    let build = own.server.build(&id);
    built(&build);
    assert_eq!(installed(&build, "cargo"), ["hangar-word"]);
    own.say(&id, "cd /env/tool; cargo run -q --offline", "a crate\n");
}
