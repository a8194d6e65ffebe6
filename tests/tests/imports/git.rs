//! Repositories, fetched over HTTP from a real server in a session.

use crate::ground::{Ground, assert_lines};
use hangar_tests::repositories::Repositories;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

struct Git {
    // Before the ground, which holds the directory of the repositories.
    repositories: Repositories,
    ground: Ground,
}

impl Git {
    fn new() -> Self {
        Self::on(Ground::new())
    }

    fn on(ground: Ground) -> Self {
        let repositories = Repositories::start(&ground.path("repositories"));
        Self { repositories, ground }
    }

    fn ask(&self, url: &str, reference: Option<&str>) -> (u16, Value) {
        let body = json!({ "git": { "url": url, "ref": reference }, "replace": true });
        let path = format!("/v1/environments/{}/import", self.ground.id);
        let answer = self.ground.daemon.ask("POST", &path, &body);
        (answer.status, answer.json())
    }

    fn takes(&self, name: &str, reference: Option<&str>) -> Value {
        let (status, answer) = self.ask(&self.repositories.url(name), reference);
        assert_eq!(status, 200, "{answer}\n{}", self.ground.daemon.log());
        answer
    }

    /// The error of an import that has to be refused and to change nothing.
    fn refuses(&self, url: &str, reference: Option<&str>, says: &str) -> Value {
        let before = self.ground.lines();
        let (status, answer) = self.ask(url, reference);
        let error = &answer["error"];
        assert_eq!((status, &error["code"]), (422, &json!("environment_invalid")), "{answer}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(says), "{message} lacks {says}");
        assert!(!message.contains("198."), "{message} names a host");
        assert_eq!(self.ground.lines(), before);
        answer["error"].clone()
    }
}

#[test]
fn a_project_that_reads_its_version_from_git_is_told_what_to_do() {
    let git = Git::new();
    let repository = git.repositories.create("project");
    let project = b"[project]\nname = 'x'\ndynamic = ['version']\n\
        [build-system]\nrequires = ['setuptools', 'setuptools-scm']\n";
    let _commit = repository.commit(&[("pyproject.toml", project)]);
    let answer = git.takes("project.git", None);
    let hints = answer["hints"].as_array().unwrap();
    let said = hints[0].as_str().unwrap();
    assert!(said.contains("setuptools-scm reads the version from git"), "{said}");
    assert!(said.contains("SETUPTOOLS_SCM_PRETEND_VERSION"), "{said}");
    let plain = git.repositories.create("plain");
    let _commit = plain.commit(&[("pyproject.toml", b"[project]\nname = 'x'\nversion = '1'\n")]);
    assert_eq!(git.takes("plain.git", None)["hints"], json!([]));
}

#[test]
fn a_branch_a_tag_or_a_commit_becomes_the_source() {
    let git = Git::new();
    let repository = git.repositories.create("project");
    let first = repository.commit(&[("run.py", b"one"), ("src/old.py", b"old")]);
    let _tagged = repository.git(&["tag", "-a", "v1", "-m", "annotated"]);
    let _light = repository.git(&["tag", "light"]);
    let _branched = repository.git(&["checkout", "-q", "-b", "feature/x"]);
    let second = repository.commit(&[("run.py", b"two")]);
    let _back = repository.git(&["checkout", "-q", "main"]);
    let third = repository.commit(&[("run.py", b"three")]);
    fs::remove_file(repository.at("src/old.py")).unwrap();
    let last = repository.commit(&[("bin/run", b"#!/bin/sh\n")]);
    for (reference, commit, content) in [
        (None, &last, "three"),
        (Some("main"), &last, "three"),
        (Some("feature/x"), &second, "two"),
        (Some("refs/heads/feature/x"), &second, "two"),
        (Some("v1"), &first, "one"),
        (Some("light"), &first, "one"),
        (Some(third.as_str()), &third, "three"),
        (Some(&third[..10]), &third, "three"),
    ] {
        let answer = git.takes("project.git", reference);
        assert_eq!(answer["git"]["commit"], json!(commit), "{reference:?}");
        assert_eq!(git.ground.content("run.py"), content.as_bytes(), "{reference:?}");
        // The environment remembers it.
        let path = format!("/v1/environments/{}", git.ground.id);
        let imported = git.ground.daemon.get(&path)["imported"].clone();
        assert_eq!(imported["commit"], json!(commit));
        assert_eq!(
            (&imported["ref"], &imported["url"]),
            (&json!(reference), &answer["git"]["url"])
        );
    }
    let url = git.repositories.url("project.git");
    git.refuses(&url, Some("nowhere"), "no branch, tag or commit of that name");
    git.refuses(&url, Some(&"0".repeat(40)), "");
    git.refuses(&git.repositories.url("absent.git"), None, "could not be fetched");
    // An archive in its place has no commit.
    git.ground.takes(hangar_archives::Tar::new().file("x", ""));
    let path = format!("/v1/environments/{}", git.ground.id);
    assert_eq!(git.ground.daemon.get(&path)["imported"], json!(null));
    // No session is left of all this.
    let sessions = git.ground.daemon.get("/v1/sessions");
    assert_eq!(sessions["sessions"], json!([]));
    hangar_tests::processes::wait_for("the sessions' removal", || {
        let left = fs::read_dir(git.ground.path("state/sessions")).unwrap().count();
        (left == 0).then_some(())
    });
}

#[test]
fn a_hostile_repository_gets_nothing_but_its_own_bytes_imported() {
    let git = Git::new();
    let repository = git.repositories.create("hostile");
    let attributes = b"* filter=evil export-subst ident\nhidden export-ignore\n*.txt eol=crlf\n";
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:\
        0000000000000000000000000000000000000000000000000000000000000000\nsize 1\n";
    repository.commit(&[
        ("a.txt", b"$Id$ $Format:%H$\nline\n"),
        ("hidden", b"hidden"),
        ("model.bin", pointer),
    ]);
    symlink("/proc/self/environ", repository.at("environ")).unwrap();
    symlink("../../../../etc/passwd", repository.at("passwd")).unwrap();
    symlink("a.txt", repository.at("fine")).unwrap();
    fs::write(repository.at(".gitattributes"), attributes).unwrap();
    let modules =
        "[submodule \"x\"]\n\tpath = sub\n\turl = http://127.0.0.1/x\n\tupdate = !touch x\n";
    fs::write(repository.at(".gitmodules"), modules).unwrap();
    let head = repository.git(&["rev-parse", "HEAD"]);
    let _staged = repository.git(&["-c", "filter.evil.clean=cat", "add", "-A"]);
    let _module =
        repository.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},sub")]);
    let tree = repository.git(&["write-tree"]);
    let commit = repository.git(&["commit-tree", "-m", "hostile", &tree]);
    let _moved = repository.git(&["update-ref", "refs/heads/main", &commit]);
    // A name that no git would check out.
    let blob = repository.git(&["rev-parse", "HEAD:hidden"]);
    fs::write(repository.at(".git/list"), format!("100644 blob {blob}\t..\n")).unwrap();
    let tree = repository.git(&["-c", "alias.m=!git mktree < .git/list", "m"]);
    let dots = repository.git(&["commit-tree", "-m", "dots", &tree]);
    let _branched = repository.git(&["update-ref", "refs/heads/dots", &dots]);

    let error = git.refuses(&git.repositories.url("hostile.git"), Some("dots"), "not be fetched");
    assert!(error["detail"]["git"].as_str().unwrap().contains("invalid path '..'"), "{error}");
    let answer = git.takes("hostile.git", None);
    assert_eq!(answer["git"]["commit"], json!(commit));
    assert_eq!(
        (&answer["git"]["submodules"], &answer["git"]["lfs_pointers"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(answer["git"]["submodule_paths"], json!(["sub"]));
    let reasons = json!({"absolute_link": 1, "link_outside": 1});
    assert_eq!(answer["skipped_reasons"], reasons, "{answer}");
    // Byte for byte what was committed, with nothing run, substituted or left out.
    assert_eq!(git.ground.content("a.txt"), b"$Id$ $Format:%H$\nline\n");
    assert_eq!(git.ground.content("hidden"), b"hidden");
    assert_eq!(git.ground.content("model.bin"), pointer);
    assert_eq!(git.ground.link("fine").as_deref(), Some("a.txt"));
    assert_eq!([git.ground.link("environ"), git.ground.link("passwd")], [None, None]);
    assert!(git.ground.lines().contains(&"d sub".to_owned()), "its place is an empty directory");
}

#[test]
fn a_single_directory_of_a_repository_stays() {
    let git = Git::new();
    let repository = git.repositories.create("one");
    repository.commit(&[("src/main.py", b"main")]);
    fs::set_permissions(repository.at("src/main.py"), fs::Permissions::from_mode(0o755)).unwrap();
    repository.commit(&[]);
    git.takes("one.git", None);
    assert_lines(&git.ground, &["d src", "f src/main.py main"]);
    assert_eq!(git.ground.mode("src/main.py"), 0o755);
}

#[test]
fn addresses_that_no_session_may_reach_are_refused_with_the_reason() {
    let git = Git::new();
    git.ground.takes(hangar_archives::Tar::new().file("kept", "as it was"));
    for (url, says) in [
        ("http://127.0.0.1:7070/x.git".to_owned(), "127.0.0.1 is a loopback address"),
        ("http://169.254.169.254/latest".to_owned(), "is a cloud's metadata service"),
        ("http://10.0.0.1/x.git".to_owned(), "10.0.0.1 is a private address"),
        // Where a server of an allowed address sends git is judged as well.
        (git.repositories.url("to/127.0.0.1:7070/x.git"), "127.0.0.1 is a loopback address"),
        (git.repositories.url("to/10.0.0.1/x.git"), "10.0.0.1 is a private address"),
    ] {
        let before = git.ground.lines();
        let (status, answer) = git.ask(&url, None);
        assert_eq!(status, 422, "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("its address is refused") && message.contains(says), "{message}");
        assert_eq!(git.ground.lines(), before);
    }
    for url in
        ["file:///etc", "ssh://git@example.org/x", "ext::sh -c id", "git@example.org:x", "/etc"]
    {
        git.refuses(url, None, "begins neither with https:// nor with http://");
    }
    git.refuses("https://user:secret@example.org/x", None, "holds a credential");
    git.refuses("https://example.org/x", Some("--upload-pack=id"), "is none");
    // A redirect to where git may go is followed.
    let repository = git.repositories.create("moved");
    repository.commit(&[("a", b"a")]);
    let target = git.repositories.url("moved.git").replacen("http://", "", 1);
    let (status, answer) = git.ask(&git.repositories.url(&format!("to/{target}")), None);
    assert_eq!(status, 200, "{answer}");
    assert_lines(&git.ground, &["f a a"]);
}

#[test]
fn a_repository_that_is_too_slow_or_too_large_is_refused() {
    let config = "[uploads]\ngit_timeout_s = 3\nunpacked_bytes_max = 1000000\n";
    let git = Git::on(Ground::configured(config));
    git.refuses(&git.repositories.url("silent/x.git"), None, "took longer than 3 s");
    let repository = git.repositories.create("large");
    repository.commit(&[("zeros", &vec![0; 2_000_000])]);
    let (status, answer) = git.ask(&git.repositories.url("large.git"), None);
    assert_eq!((status, &answer["error"]["code"]), (413, &json!("file_too_large")), "{answer}");
    assert_eq!(answer["error"]["detail"]["max_bytes"], 1_000_000);
    assert_eq!(git.ground.lines(), [""; 0]);
}
