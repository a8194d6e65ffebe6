//! Links in archives.

use crate::ground::{Ground, assert_lines};
use hangar_archives::{Tar, Zip};
use serde_json::json;
use std::fs;

pub fn hard_links_to_elsewhere() {
    let ground = Ground::new();
    // The server's own working directory has such a file.
    assert!(fs::exists("Cargo.toml").unwrap());
    let secret = ground.path("secret");
    fs::write(&secret, "secret").unwrap();
    let tar = Tar::new()
        .file("bin/tool", "T")
        .hard_link("bin/alias", "bin/tool")
        .hard_link("lic", "Cargo.toml")
        .hard_link("esc", "../secret")
        .hard_link("abs", secret.to_str().unwrap());
    let answer = ground.takes(tar);
    assert_lines(&ground, &["d bin", "f bin/alias T", "f bin/tool T"]);
    assert_eq!(answer["skipped_reasons"], json!({"link_outside": 2, "link_without_file": 1}));
}

pub fn hard_links_within() {
    let ground = Ground::new();
    // Relative to the root of the archive, not to the link; the wrapper is a part of the names.
    let tar = Tar::new().file("p/bin/tool", "T").hard_link("p/lib/alias", "p/bin/tool");
    let answer = ground.takes(tar);
    assert_lines(&ground, &["d bin", "d lib", "f bin/tool T", "f lib/alias T"]);
    assert_eq!((&answer["written"], &answer["skipped"]), (&json!(2), &json!(0)));
}

pub fn a_chain_that_leads_out() {
    let ground = Ground::new();
    let chains = [
        Tar::new().file("a", "").symlink("d", ".").symlink("d/up", "..").file("d/up/out.txt", "!"),
        Tar::new().file("a", "").symlink("h1", "h2").symlink("h2", "../../x").file("h1/y", "!"),
        Tar::new()
            .file("a", "")
            .directory("d")
            .symlink("d/up", "..")
            .symlink("out", "d/up/../../x")
            .file("out/y", "!"),
    ];
    for tar in chains {
        let answer = ground.takes(tar);
        assert!(answer["skipped"].as_u64().unwrap() >= 2, "{answer}");
        assert!(ground.lines().iter().all(|line| !line.contains('!')), "{answer}");
        assert_eq!(ground.link("out"), None);
        assert_eq!(ground.link("h2"), None);
        let sources = fs::read_dir(ground.source().parent().unwrap()).unwrap();
        assert_eq!(sources.count(), 1, "something landed beside the source");
    }
    let zip = Zip::new().file("a", "").symlink("d", ".").file("d/up/out.txt", "!");
    assert_eq!(ground.takes(zip)["skipped_reasons"], json!({"through_symlink": 1}));
}

pub fn a_chain_within() {
    let ground = Ground::new();
    let tar = Tar::new().file("releases/7/app", "7").symlink("current", "releases/latest");
    let answer = ground.takes(tar.symlink("releases/latest", "7").file("x", ""));
    assert_eq!(answer["skipped"], 0);
    ground.build();
    let said = ground.in_session("cd $PROJECT_ROOT && cat current/app && readlink current");
    assert_eq!(said, "7releases/latest\n");
}

pub fn absolute_and_dangling_links() {
    let ground = Ground::new();
    let tar = Tar::new()
        .symlink("bin/sh", "/bin/busybox")
        .symlink("var/run", "/run")
        .symlink("later", "not/yet/there")
        .file("bin/x", "x");
    // A project is not refused for them. What leads nowhere within the root stays; what is absolute
    // leads out of it, and the protocol says of such links that they are dropped and counted.
    let answer = ground.takes(tar);
    assert_lines(&ground, &["d bin", "f bin/x x"]);
    assert_eq!(answer["skipped_reasons"], json!({"absolute_link": 2}));
    assert_eq!(answer["skipped_examples"][0], json!({"name": "bin/sh", "reason": "absolute_link"}));
    assert_eq!(ground.link("later").as_deref(), Some("not/yet/there"));
}

pub fn links_are_not_followed() {
    let ground = Ground::new();
    let answer = ground.takes(Tar::new().file("d/x", "x").symlink("l", "d").symlink("f", "d/x"));
    assert_eq!(
        (&answer["written"], &answer["count"], &answer["bytes"]),
        (&json!(3), &json!(1), &json!(1))
    );
    assert_lines(&ground, &["d d", "f d/x x"]);
    for path in ["l/x", "f"] {
        let path = format!("/v1/environments/{}/files/{path}", ground.id);
        assert_eq!(ground.daemon.ask("GET", &path, &json!({})).status, 422);
    }
    ground.daemon.delete(&format!("/v1/environments/{}/files/l", ground.id));
    assert_lines(&ground, &["d d", "f d/x x"]);
}

pub fn a_file_with_the_name_of_a_link() {
    let ground = Ground::new();
    let tar = Tar::new().file("keep.txt", "A").symlink("note", "keep.txt").file("note", "B");
    ground.takes(tar);
    assert_lines(&ground, &["f keep.txt A", "f note B"]);
    assert_eq!(ground.link("note"), None);
}

pub fn a_link_with_the_name_of_a_file() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("keep.txt", "A").file("note", "B").symlink("note", "keep.txt"));
    assert_lines(&ground, &["f keep.txt A"]);
    assert_eq!(ground.link("note").as_deref(), Some("keep.txt"));
}
