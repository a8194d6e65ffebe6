//! Faults and twins of projects in other languages, of scripts, git and homes.

use super::{Server, built, failed, installed, lock, says};
use hangar_tests::processes::wait_for;
use serde_json::json;
use std::fs;

pub fn copies_of_frozen_files_can_be_written() {
    let server = Server::new();
    let (id, _) = server.ready("files", &[("app/file", "template\n"), ("app/deep/run.sh", "")]);
    let script =
        "cp -a /env/files/app .; echo more >> app/file; touch app/new app/deep/new; cat app/file";
    assert_eq!(says(&server.session(&id), script), "template\nmore\n");
}

pub fn frozen_files_cannot() {
    let server = Server::new();
    let (id, _) = server.ready("files", &[("app/file", "template\n")]);
    let session = server.session(&id);
    for script in [
        "echo more >> /env/files/app/file",
        "touch /env/files/app/new",
        "chmod 777 /env/files/app",
        "rm /env/files/app/file",
    ] {
        let ended = session.bash(script);
        assert_ne!(ended.status(), "0", "{script}");
        assert!(ended.err().contains("Read-only file system"), "{script}: {}", ended.err());
    }
}

const REPOSITORY: &str =
    "set -e\ngit init -q .\ngit add data.txt\ngit ls-files\ngit status --porcelain | wc -l\n";

#[test]
fn git_reads_a_repository_in_a_build() {
    let server = Server::new();
    let files = [("data.txt", "data\n"), ("setup.sh", REPOSITORY)];
    let (_, log) = server.ready("repository", &files);
    assert!(log.contains("$ setup.sh\ndata.txt\n2\n"), "{log}");
}

pub fn git_reads_a_repository_in_a_session() {
    let server = Server::new();
    let files = [("data.txt", "data\n"), ("setup.sh", REPOSITORY)];
    let (id, _) = server.ready("repository", &files);
    assert_eq!(says(&server.session(&id), "git -C /env/repository ls-files"), "data.txt\n");
}

fn read_only_directories(end: &str) {
    let server = Server::new();
    let script =
        format!("mkdir -p cache/mod/deep; touch cache/mod/deep/x; chmod -R a-w cache; {end}\n");
    let id = server.declaring("closed", &[("setup.sh", &script)], json!({}));
    let build = server.build(&id);
    let expected = if end == "exit 3" { "failed" } else { "ready" };
    assert_eq!(build["status"], expected, "{build}");
    let sessions = server.place.state().join("sessions");
    let empty = || fs::read_dir(&sessions).unwrap().next().is_none().then_some(());
    wait_for("the build's directories to be removed", empty);
}

pub fn read_only_directories_of_a_failed_build_go_away() {
    read_only_directories("exit 3");
}

pub fn those_of_a_good_build_do_too() {
    read_only_directories("exit 0");
}

const GO: [(&str, &str); 2] = [
    ("go.mod", "module example.org/tool\n\ngo 1.19\n"),
    ("main.go", "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"go runs\") }\n"),
];

pub fn go_builds_beside_half_a_repository() {
    let server = Server::new();
    let half = [
        (".git/HEAD", "ref: refs/heads/main\n"),
        (".git/config", "[core]\n\tbare = false\n"),
        ("setup.sh", "go build -o tool .\n"),
    ];
    let (id, log) = server.ready("tool", &[&GO[..], &half[..]].concat());
    assert!(log.contains("$ go mod download"), "{log}");
    assert_eq!(says(&server.session(&id), "/env/tool/tool"), "go runs\n");
}

pub fn go_runs_in_a_session() {
    let server = Server::new();
    let (id, _) = server.ready("tool", &GO);
    let script = "cd /env/tool; go run .; go build -o $WORKSPACE/tool .; $WORKSPACE/tool; go vet .; go env GOMODCACHE";
    assert_eq!(says(&server.session(&id), script), "go runs\ngo runs\n/env/tool/.go-modules\n");
}

pub fn large_files_and_submodules_are_told() {
    let server = Server::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n";
    let (_, log) = server.ready(
        "large",
        &[
            (".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n"),
            (".gitmodules", "[submodule \"lib\"]\n\tpath = lib\n\turl = ../lib.git\n"),
            ("model.bin", pointer),
        ],
    );
    assert!(log.contains("files of git-lfs (*.bin) can be pointers here"), "{log}");
    assert!(log.contains("the project has git submodules (.gitmodules)"), "{log}");
}

pub fn plain_projects_are_not() {
    let server = Server::new();
    let (_, log) = server.ready("plain", &[(".gitattributes", "*.txt text\n"), ("a.txt", "")]);
    assert!(!log.contains("[hangar:"), "{log}");
}

const CRATE: [(&str, &str); 2] = [
    (
        "Cargo.toml",
        "[package]\nname = \"tool\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nitoa = \"=1.0.5\"\n",
    ),
    (
        "src/main.rs",
        "fn main() { println!(\"{}\", text()); }\n\
         fn text() -> String { itoa::Buffer::new().format(42u32).to_owned() }\n\
         #[test]\nfn it_is() { assert_eq!(text(), \"42\"); }\n",
    ),
];

pub fn cargo_builds_in_place_and_in_a_copy() {
    let server = Server::new();
    let lock = lock(&CRATE, &["/usr/bin/cargo", "generate-lockfile"], "Cargo.lock");
    let id = server.declaring("tool", &[CRATE[0], CRATE[1], ("Cargo.lock", &lock)], json!({}));
    let build = server.build(&id);
    built(&build);
    assert_eq!(installed(&build, "cargo"), ["itoa"]);
    let session = server.session(&id);
    let script = "cd /env/tool; cargo run -q --offline; cargo test -q --offline | grep -o 'test result: ok. 1 passed'
        cp -a /env/tool $WORKSPACE/copy; cd $WORKSPACE/copy; cargo build -q --offline; cargo run -q --offline
        echo $CARGO_TARGET_DIR";
    let expected = "42\ntest result: ok. 1 passed\n42\n/home/agent/.cache/cargo-target\n";
    assert_eq!(says(&session, script), expected);
    let log = built(&server.build(&id));
    assert!(log.contains("taking the installed packages of an earlier build"), "{log}");
    assert_eq!(says(&server.session(&id), "cd /env/tool; cargo run -q --offline"), "42\n");
}

pub fn cargo_makes_a_missing_lock() {
    let server = Server::new();
    let own = (".cargo/config.toml", "[alias]\nhi = \"run -q --offline\"\n");
    let (id, log) = server.ready("tool", &[CRATE[0], CRATE[1], own]);
    assert!(log.contains("not kept for later builds: there is no Cargo.lock"), "{log}");
    assert!(
        log.contains("added the vendored crates to .cargo/config.toml of the version"),
        "{log}"
    );
    let script = "cd /env/tool; cargo hi; grep -c itoa Cargo.lock";
    assert_eq!(says(&server.session(&id), script), "42\n2\n");
}

#[test]
fn gems_of_a_lock_are_installed() {
    let server = Server::new();
    let spec = "Gem::Specification.new { |s| s.name = 'own'; s.version = '1.0'; s.summary = 'x'\n\
                s.authors = ['x']; s.files = ['lib/own.rb'] }\n";
    let files = [
        ("Gemfile", "gem 'own', path: 'gems/own'\n"),
        ("gems/own/own.gemspec", spec),
        ("gems/own/lib/own.rb", "module Own; WORD = 'a gem'; end\n"),
    ];
    let made = ["/usr/bin/bundle", "lock", "--local"];
    let lock = lock(&files, &made, "Gemfile.lock");
    let all = [&files[..], &[("Gemfile.lock", lock.as_str())]].concat();
    let id = server.declaring("ruby", &all, json!({}));
    let build = server.build(&id);
    let log = built(&build);
    assert!(log.contains("not kept for later builds: the lock refers to local gems"), "{log}");
    assert_eq!(installed(&build, "gem"), ["own"]);
    let script = "cd /env/ruby; bundle exec ruby -e 'require \"own\"; puts Own::WORD'";
    assert_eq!(says(&server.session(&id), script), "a gem\n");
}

#[test]
fn debian_packages_are_unpacked_beside_the_project() {
    let server = Server::new();
    let declared = json!({ "packages": { "apt": ["hello"] } });
    let id = server.declaring("herd", &[("setup.sh", "hello\n")], declared);
    let build = server.build(&id);
    let log = built(&build);
    assert!(log.contains("no maintainer script was run"), "{log}");
    assert!(log.contains("$ setup.sh\nHello, world!\n"), "{log}");
    assert!(installed(&build, "apt").contains(&"hello".to_owned()), "{build}");
    let session = server.session(&id);
    let script = "hello; command -v hello; echo $LD_LIBRARY_PATH | tr : '\\n' | head -1";
    let triplet = format!("{}-linux-gnu", std::env::consts::ARCH);
    let expected =
        format!("Hello, world!\n/env/herd/apt/usr/bin/hello\n/env/herd/apt/usr/lib/{triplet}\n");
    assert_eq!(says(&session, script), expected);
    let log = built(&server.build(&id));
    assert!(log.contains("taking the installed packages of an earlier build"), "{log}");

    let materials = server.daemon.get(&format!("/v1/hangar/environments/{id}/versions/1/sbom"));
    assert_eq!(
        (&materials["bomFormat"], &materials["specVersion"]),
        (&json!("CycloneDX"), &json!("1.5"))
    );
    let components = materials["components"].as_array().unwrap();
    let hello = components.iter().find(|component| component["name"] == "hello").unwrap();
    assert!(hello["purl"].as_str().unwrap().starts_with("pkg:deb/debian/hello@"), "{hello}");
    let printed = server.place.json(&["env", "sbom", "herd", "1"]);
    assert_eq!(printed, materials);

    let none =
        server.declaring("none", &[], json!({ "packages": { "apt": ["no-such-package-7"] } }));
    let (reason, log) = failed(&server.build(&none));
    assert!(reason.starts_with("`apt-get download no-such-package-7`"), "{reason}");
    assert!(log.contains("Unable to locate package"), "{log}");
}

pub fn every_session_has_a_home() {
    let server = Server::new();
    let session = server.daemon.session(&json!({}));
    let script = "npm config get cache; uv cache dir
        for name in HOME XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME TMPDIR MPLCONFIGDIR HF_HOME CARGO_HOME GOPATH; do
            mkdir -p ${!name}; touch ${!name}/x; done
        python3 -c 'import pathlib; print(pathlib.Path.home())'";
    let expected = "/home/agent/.npm\n/home/agent/.cache/uv\n/home/agent\n";
    assert_eq!(says(&session, script), expected);
}

pub fn homes_are_not_shared() {
    let server = Server::new();
    let one = server.daemon.session(&json!({}));
    let two = server.daemon.session(&json!({}));
    says(&one, "touch $HOME/mine $TMPDIR/mine");
    assert_eq!(says(&two, "ls -A $HOME $TMPDIR | grep -c mine || true"), "0\n");
}

fn marked(marker: &str) -> [(String, String); 3] {
    [
        (
            ".git/config".to_owned(),
            format!("[core]\n\tfsmonitor = touch {marker}\n\tsshCommand = touch {marker}\n"),
        ),
        (".git/HEAD".to_owned(), "ref: refs/heads/main\n".to_owned()),
        ("a.txt".to_owned(), "x\n".to_owned()),
    ]
}

pub fn the_host_runs_no_git_of_a_project() {
    let server = Server::new();
    let marker = std::env::temp_dir().join(format!("hangar-owned-{}", std::process::id()));
    let files = marked(marker.to_str().unwrap());
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let (id, _) = server.ready("trap", &files);
    built(&server.build(&id));
    let listed = server.daemon.get(&format!("/v1/environments/{id}/files"));
    assert!(listed["count"].as_u64().unwrap() > 0, "{listed}");
    assert!(!marker.exists(), "git ran on the host");
    assert_eq!(says(&server.session(&id), "test -e /env/trap/.git || echo none"), "none\n");
}

pub fn git_settings_of_a_session_are_its_own() {
    let server = Server::new();
    let session = server.daemon.session(&json!({}));
    let script = "git init -q r; cd r; git config core.fsmonitor 'touch /tmp/ran #'; git status --porcelain; ls /tmp/ran";
    assert_eq!(says(&session, script), "/tmp/ran\n");
}

pub fn a_setup_with_crlf_is_told() {
    let server = Server::new();
    let script = "#!/bin/bash\r\nexit 7\r\n";
    let (reason, log) = server.refused("crlf", &[("setup.sh", script)]);
    assert!(reason.starts_with("`setup.sh` ended with status"), "{reason}");
    assert!(log.contains("CRLF line endings in setup.sh line 1"), "{log}");
}

pub fn a_setup_without_mode_or_shebang_runs() {
    let server = Server::new();
    let (_, log) = server.ready("plain", &[("setup.sh", "echo made by $BASH\n")]);
    assert!(log.contains("made by /usr/bin/bash") || log.contains("made by /bin/bash"), "{log}");
    assert!(!log.contains("CRLF"), "{log}");
}
