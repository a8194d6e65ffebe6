//! Modes, numbers, times and bytes of members.

use crate::ground::{Before, Ground, assert_lines};
use hangar_archives::{Header, Method, Sizes, System, Tar, Zip, ZipMember};
use serde_json::json;
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

pub fn modes_and_links_of_a_zip() {
    let ground = Ground::new();
    for (method, sizes) in [(Method::Stored, Sizes::Before), (Method::Deflated, Sizes::Behind)] {
        let link = ZipMember::new("current", "releases/7").system(System::Unix(0o120_777));
        let run = ZipMember::new("bin/run", "#!/bin/sh\necho ran\n");
        let zip = Zip::new()
            .member(&run.system(System::Unix(0o106_755)).method(method).sizes(sizes))
            .file("releases/7/x", "seven")
            .member(&link.method(method).sizes(sizes));
        let answer = ground.takes(zip);
        assert_eq!((&answer["skipped"], &answer["notes"]), (&json!(0), &json!({})));
        assert_eq!(ground.mode("bin/run"), 0o755, "setuid and setgid are not kept");
        assert_eq!(ground.link("current").as_deref(), Some("releases/7"));
    }
    ground.build();
    let said = ground.in_session("cd $PROJECT_ROOT && bin/run && cat current/x");
    assert_eq!(said, "ran\nseven");
}

pub fn a_zip_without_modes() {
    let ground = Ground::new();
    let dos = |name: &str, data: &str| ZipMember::new(name, data).system(System::Dos);
    let answer = ground.takes(Zip::new().member(&dos("bin/run", "#!")).member(&dos("x", "")));
    assert_eq!([ground.mode("bin/run"), ground.mode("bin")], [0o644, 0o755]);
    assert_eq!(answer["notes"], json!({"modes_absent": 2}));
}

/// Packs `f`, with 3 MiB of hole and three bytes, by GNU tar.
fn tar_of_holes(ground: &Ground, arguments: &[&str]) -> Vec<u8> {
    let mut file = fs::File::create(ground.path("f")).unwrap();
    file.seek(SeekFrom::Start(3 << 20)).unwrap();
    file.write_all(b"end").unwrap();
    file.sync_all().unwrap();
    let mut tar = Command::new("tar");
    let output =
        tar.current_dir(ground.path("")).args(["-c"]).args(arguments).arg("f").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub fn sparse_files() {
    let ground = Ground::new();
    for arguments in [
        &["--sparse", "--format=gnu"][..],
        &["--sparse", "--format=posix", "--sparse-version=0.0"],
        &["--sparse", "--format=posix", "--sparse-version=0.1"],
        &["--sparse", "--format=posix", "--sparse-version=1.0"],
    ] {
        let tar = tar_of_holes(&ground, arguments);
        assert!(tar.len() < 1 << 20, "it is stored with its holes");
        assert_has_holes(&ground, tar);
        let disk = fs::metadata(ground.source().join("f")).unwrap().blocks() * 512;
        assert!(disk < 1 << 20, "{disk} bytes of disk");
    }
    // What counts is the size with the holes.
    let size = (9u64 << 30).to_string();
    let records = [("GNU.sparse.map", &b""[..]), ("GNU.sparse.size", size.as_bytes())];
    let tar = Tar::new().pax(b'x', &records).file("huge", "");
    let says = ["\"huge\" has 9663676416 bytes"];
    let error = ground.refuses(tar, 413, "file_too_large", &says);
    assert_eq!(error["detail"]["max_bytes"], 8u64 << 30);
}

fn assert_has_holes(ground: &Ground, tar: Vec<u8>) {
    let answer = ground.takes(tar);
    assert_eq!((&answer["bytes"], &answer["count"]), (&json!(3_145_731), &json!(1)));
    let content = ground.content("f");
    assert!(content.len() == 3_145_731 && content.ends_with(b"end"));
    assert!(content[..3 << 20].iter().all(|byte| *byte == 0));
}

pub fn holes_that_are_stored() {
    let ground = Ground::new();
    for arguments in [&["--format=gnu"][..], &["--format=posix"]] {
        assert_has_holes(&ground, tar_of_holes(&ground, arguments));
    }
}

pub fn numbers_in_base_256() {
    let ground = Ground::new();
    let mut uid = [0; 8];
    uid[0] = 0x80;
    uid[4..].copy_from_slice(&4_000_000_000u32.to_be_bytes());
    let header = Header::new(b"owned", b'0').raw(108, &uid).raw(116, &uid);
    ground.takes(Tar::new().member(&header, b"").file("x", ""));
    assert_lines(&ground, &["f owned ", "f x "]);
    let mut size = [0; 12];
    size[0] = 0x80;
    size[4..].copy_from_slice(&(9u64 << 30).to_be_bytes());
    let header = Header::new(b"huge", b'0').raw(124, &size);
    let says = ["\"huge\" has 9663676416 bytes"];
    let error = ground.refuses(Tar::new().member(&header, b""), 413, "file_too_large", &says);
    assert_eq!(error["detail"]["max_bytes"], 8u64 << 30);
    // The same number as pax writes it.
    let pax = Tar::new().pax(b'x', &[("size", b"9663676416")]).file("huge", "");
    ground.refuses(pax, 413, "file_too_large", &says);
}

pub fn numbers_in_octal() {
    let ground = Ground::new();
    let header = Header::new(b"owned", b'0').raw(108, b"7777777\0").size(3);
    let pax = Tar::new().pax(b'x', &[("size", b"3"), ("uid", b"4000000000")]);
    ground.takes(pax.member(&header, b"abc").file("x", ""));
    assert_lines(&ground, &["f owned abc", "f x "]);
    let owner = fs::metadata(ground.source().join("owned")).unwrap().uid();
    assert_eq!(owner, fs::metadata(ground.source()).unwrap().uid(), "the owner is the store's");
}

/// The time of last modification, as the listing tells it.
fn mtime(ground: &Ground, path: &str) -> i64 {
    let listed = ground.daemon.get(&format!("/v1/environments/{}/files", ground.id));
    let entries = listed["entries"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["path"] == path).unwrap();
    entry["mtime"].as_i64().unwrap()
}

pub fn times_that_cannot_be_stored() {
    let ground = Ground::new();
    let mut tar = Tar::new();
    for time in ["-86400.5", "1", "99999999999", "-99999999999999999999", "1e9", "0.9999999999999"]
    {
        tar = tar.pax(b'x', &[("mtime", time.as_bytes())]).file(time, "x");
    }
    let answer = ground.takes(tar);
    assert_eq!((&answer["written"], &answer["skipped"]), (&json!(6), &json!(0)));
    assert_eq!([mtime(&ground, "-86400.5"), mtime(&ground, "1")], [-86401, 1]);
    let last_of_ext4 = (1i64 << 34) - (1 << 31) - 1;
    assert_eq!(mtime(&ground, "99999999999"), last_of_ext4);
    ground.takes(Zip::new().member(&ZipMember::new("zero", "x").time(0, 0)).file("x", ""));
    assert_eq!(mtime(&ground, "zero"), 315_532_800, "the first day of DOS");
    let late = ZipMember::new("late", "x").time(u16::MAX, u16::MAX);
    ground.takes(Zip::new().member(&late).file("x", ""));
    assert!(mtime(&ground, "late") > 4_000_000_000);
}

pub fn ordinary_times() {
    let ground = Ground::new();
    let pax = Tar::new().pax(b'x', &[("mtime", b"1700000000.25")]).file("pax", "x");
    ground.takes(pax.file("header", "x"));
    assert_eq!([mtime(&ground, "pax"), mtime(&ground, "header")], [1_700_000_000, 1_600_000_000]);
    let unix = ZipMember::new("unix", "x").extra(b"\x55\x54\x05\0\x01\x80\xfa\x53\x65");
    ground.takes(Zip::new().member(&unix).file("dos", "x"));
    assert_eq!(
        [mtime(&ground, "unix"), mtime(&ground, "dos")],
        [1_700_002_432, 1_600_000_000 - 1600]
    );
}

pub fn an_import_over_a_frozen_file() {
    let ground = Ground::new();
    ground.takes(Tar::new().file_mode("a", "frozen", 0o444).file("b", "beside"));
    ground.build();
    let session = ground.daemon.session(&json!({ "environment": ground.id }));
    // The source's file and the version's are one inode, as a store that shares files would have it.
    fs::set_permissions(ground.source().join("a"), fs::Permissions::from_mode(0o444)).unwrap();
    let other_name = ground.path("state/api/other-name");
    fs::hard_link(ground.source().join("a"), &other_name).unwrap();
    for before in [Before::Kept, Before::Replaced] {
        let answer = ground.send(Zip::new().file("a", "new").file("c", "c"), before);
        assert_eq!(answer.status, 200);
        assert_eq!(ground.content("a"), b"new");
        assert_eq!(fs::read(&other_name).unwrap(), b"frozen", "{before:?}");
    }
    assert_lines(&ground, &["f a new", "f c c"]);
    assert_eq!(session.bash("cat $PROJECT_ROOT/a").out(), "frozen");
    let verified = ground.daemon.get(&format!("/v1/environments/{}/versions", ground.id));
    assert_eq!(verified["active"], 1);
}

pub fn an_import_over_other_files() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "1").file("both", "1").file("d/kept", "1"));
    let answer = ground.send(Zip::new().file("both", "2").file("d/new", "2"), Before::Kept);
    assert_lines(&ground, &["d d", "f both 2", "f d/kept 1", "f d/new 2", "f kept 1"]);
    // The whole source is counted, and what this import wrote.
    assert_eq!(answer.json()["count"], 4);
    assert_eq!(answer.json()["written"], 2);
}
