//! Ordinary archives land whole: the twins of what `hostile` refuses.

use crate::listing::{Node, Place, tree};
use hangar_archives::{Header, MTIME, Tar, gzip, upload, zstd};
use hangar_rootfs::import::import;
use hangar_rootfs::job::{ImportOptions, ImportOutcome, Refusal, RefusalCode, SkipReason, Wrapper};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

fn strip(place: &Place, bytes: &[u8]) -> ImportOutcome {
    import(&upload(bytes), place.fd(), &ImportOptions::default(), &mut |_| Ok(())).unwrap()
}

fn keep(place: &Place, bytes: &[u8]) -> ImportOutcome {
    let options = ImportOptions { wrapper: Wrapper::Keep, ..ImportOptions::default() };
    import(&upload(bytes), place.fd(), &options, &mut |_| Ok(())).unwrap()
}

/// An archive, what lands of it, the directory that was stripped, and how many were dropped.
type Wrapping = (&'static str, Tar, &'static [&'static str], Option<&'static str>, u64);

fn assert_wrappers(table: Vec<Wrapping>) {
    for (what, tar, lands, wrapper, skipped) in table {
        let place = Place::new();
        let outcome = strip(&place, &tar.finish());
        assert_eq!(place.lines(), lands, "{what}");
        assert_eq!(outcome.wrapper_stripped.as_deref(), wrapper, "{what}");
        assert_eq!(outcome.skipped, skipped, "{what}: {:?}", outcome.skipped_examples);
        place.assert_nothing_outside();
    }
}

#[test]
fn a_single_directory_around_everything_is_stripped() {
    let side = b"\x00\x05\x16\x07side";
    assert_wrappers(vec![
        (
            "an archive of a repository, with its comment (A10)",
            Tar::new()
                .pax(b'g', &[("comment", b"0123456789abcdef")])
                .directory("proj-1.0/")
                .file("proj-1.0/run.py", "1")
                .symlink("proj-1.0/latest", "run.py"),
            &["l latest -> run.py", "f run.py 1"],
            Some("proj-1.0"),
            0,
        ),
        (
            "the comment unpacked as a file and packed again (A10)",
            Tar::new().file("pax_global_header", "comment").file("p/a", "1"),
            &["f a 1"],
            Some("p"),
            1,
        ),
        (
            "a macOS archive (A17)",
            Tar::new()
                .file("._web", side)
                .file("web/package.json", "{}")
                .file("web/._package.json", side)
                .file("__MACOSX/._web", side)
                .file("__MACOSX/web/._index.js", side)
                .file(".DS_Store", "x"),
            &["f package.json {}"],
            Some("web"),
            5,
        ),
        (
            "names that begin with ./",
            Tar::new().directory("./").directory("./p").file("./p/a", "1").file("p/b/c", "2"),
            &["f a 1", "d b", "f b/c 2"],
            Some("p"),
            0,
        ),
        (
            "a device and ways out beside it do not count",
            Tar::new().file("p/a", "1").special("null", b'3').file("../x", "!").file("/y", "!"),
            &["f a 1"],
            Some("p"),
            3,
        ),
        (
            "hard links and links within",
            Tar::new().file("p/a", "1").hard_link("p/b", "p/a").symlink("p/d/c", "../a"),
            &["f a 1", "f b 1", "d d", "l d/c -> ../a"],
            Some("p"),
            0,
        ),
        (
            "a link out of the wrapper, though not of the archive's root",
            Tar::new().file("p/a", "1").symlink("p/b", "../p/a"),
            &["f a 1"],
            Some("p"),
            1,
        ),
        (
            "one directory inside another is stripped once",
            Tar::new().file("a/b/c", "1"),
            &["d b", "f b/c 1"],
            Some("a"),
            0,
        ),
    ]);
}

#[test]
fn what_is_not_a_single_directory_stays_as_it_is() {
    let two = Tar::new().file("a/x", "1").file("b/y", "2");
    let beside = Tar::new().file("p/a", "1").file("README", "2");
    assert_wrappers(vec![
        ("two directories", two, &["d a", "f a/x 1", "d b", "f b/y 2"], None, 0),
        ("a file beside it", beside, &["f README 2", "d p", "f p/a 1"], None, 0),
        ("one file", Tar::new().file("only", "1"), &["f only 1"], None, 0),
        ("one link", Tar::new().symlink("only", "x"), &["l only -> x"], None, 0),
        ("an empty archive", Tar::new(), &[], None, 0),
    ]);
}

#[test]
fn side_files_of_macos_are_told_from_files_called_so() {
    let place = Place::new();
    let tar = Tar::new()
        .file("tests/test_a.py", "a")
        .file("tests/._test_a.py", b"\x00\x05\x16\x07...")
        .file("tests/._notes", b"\x00\x05\x16\x07 but alone")
        .file("tests/notes.py", "n")
        .file("tests/._notes.py", "a file of mine");
    let outcome = keep(&place, &tar.finish());
    assert_eq!(outcome.skipped_reasons[&SkipReason::ArchiverMetadata], 1);
    assert!(!place.at("tests/._test_a.py").exists());
    assert!(place.at("tests/._notes").exists());
    assert!(place.at("tests/._notes.py").exists());
    assert_eq!((outcome.written, outcome.count), (4, 4));
}

#[test]
fn modes_are_made_plain() {
    let place = Place::new();
    fs::set_permissions(place.path(), PermissionsExt::from_mode(0o750)).unwrap();
    let tar = Tar::new()
        .member(&Header::new(b"./", b'5').mode(0o700), b"")
        .member(&Header::new(b"ro", b'5').mode(0o555), b"")
        .file_mode("ro/secret", "", 0o400)
        .file_mode("ro/setuid", "", 0o6755)
        .file_mode("ro/owner-only", "", 0o100)
        .file_mode("open", "", 0o666)
        .file_mode("implied/parent/x", "", 0o640);
    keep(&place, &tar.finish());
    for (path, expected) in [
        ("ro", 0o755),
        ("ro/secret", 0o644),
        ("ro/setuid", 0o755),
        ("ro/owner-only", 0o755),
        ("open", 0o644),
        ("implied", 0o755),
        ("implied/parent", 0o755),
        ("implied/parent/x", 0o644),
    ] {
        let mode = fs::symlink_metadata(place.at(path)).unwrap().mode();
        assert_eq!(mode & 0o7777, expected, "{path}");
    }
    let root = fs::metadata(place.path()).unwrap().mode();
    assert_eq!(root & 0o7777, 0o750, "the root keeps its mode (A23)");
}

#[test]
fn names_survive_byte_for_byte() {
    let place = Place::new();
    let long = "n".repeat(240);
    let tar = Tar::new()
        .file(b"d/x\xe9", "1")
        .file(b"d/x\xff", "2")
        .file("net/xt_mark.h", "3")
        .file("net/xt_MARK.h", "4")
        .pax(b'x', &[("path", b"new\nline=1 ")])
        .file("short", "5")
        .long(b'L', long.as_bytes())
        .file("short", "6")
        .long(b'K', long.as_bytes())
        .symlink("link", "short");
    let outcome = keep(&place, &tar.finish());
    assert_eq!(
        place.lines(),
        [
            "d d".to_owned(),
            "f d/x\\xe9 1".to_owned(),
            "f d/x\\xff 2".to_owned(),
            format!("l link -> {long}"),
            "d net".to_owned(),
            "f net/xt_MARK.h 4".to_owned(),
            "f net/xt_mark.h 3".to_owned(),
            "f new\\nline=1  5".to_owned(),
            format!("f {long} 6"),
        ]
    );
    assert_eq!((outcome.written, outcome.skipped), (7, 0));
}

#[test]
fn times_are_kept_and_odd_ones_become_the_nearest() {
    let place = Place::new();
    let tar = Tar::new()
        .member(&Header::new(b"d", b'5').mtime(1000), b"")
        .file("d/now", "")
        .symlink("d/link", "now")
        .pax(b'x', &[("mtime", b"-86400.5")])
        .file("before", "")
        .pax(b'x', &[("mtime", b"99999999999")])
        .file("after", "")
        .pax(b'x', &[("mtime", b"soon")])
        .file("garbled", "")
        .pax(b'x', &[("mtime", b"1500000000.123456789")])
        .file("exact", "");
    keep(&place, &tar.finish());
    let time = |path: &str| {
        let metadata = fs::symlink_metadata(place.at(path)).unwrap();
        (metadata.mtime(), metadata.mtime_nsec())
    };
    assert_eq!(time("d"), (1000, 0));
    assert_eq!(time("d/now"), (MTIME as i64, 0));
    assert_eq!(time("d/link"), (MTIME as i64, 0));
    assert_eq!(time("before"), (-86401, 500_000_000));
    assert_eq!(time("after"), (15_032_385_535, 0));
    assert_eq!(time("garbled"), (MTIME as i64, 0));
    assert_eq!(time("exact"), (1_500_000_000, 123_456_789));
}

/// A12: every member of a gzip and every frame of a zstd is part of the archive.
#[test]
fn compression_in_several_pieces_is_read_to_its_end() {
    let tar = Tar::new().file("a", "1").file("b", vec![b'x'; 3000]).finish();
    let pieces = |pack: fn(&[u8]) -> Vec<u8>| [pack(&tar[..700]), pack(&tar[700..])].concat();
    let skippable = [&b"\x50\x2a\x4d\x18\x04\0\0\0skip"[..], &zstd(&tar)].concat();
    for bytes in [pieces(gzip), pieces(zstd), skippable] {
        let place = Place::new();
        assert_eq!(keep(&place, &bytes).written, 2);
        assert_eq!(fs::read(place.at("b")).unwrap(), vec![b'x'; 3000]);
    }
}

#[test]
fn old_archives_without_magic_are_read() {
    let place = Place::new();
    let old = |name: &[u8], kind| Header::new(name, kind).raw(257, &[0; 8]);
    let tar = Tar::new().member(&old(b"d/", 0), b"").member(&old(b"d/f", 0).size(2), b"ok");
    keep(&place, &tar.finish());
    assert_eq!(place.lines(), ["d d", "f d/f ok"]);
}

/// What GNU tar packs of a real tree lands as that tree.
#[test]
fn gnu_tar_and_the_import_agree_on_a_real_tree() {
    let source = Place::new();
    source.write("p/run.sh", "#!/bin/sh\n");
    fs::set_permissions(source.at("p/run.sh"), PermissionsExt::from_mode(0o775)).unwrap();
    source.write(b"p/odd \xe9\n\\name", "odd");
    source.write("p/empty/.keep", "");
    source.write(format!("p/{}/{}/file", "l".repeat(150), "m".repeat(150)), vec![7; 100_000]);
    fs::hard_link(source.at("p/run.sh"), source.at("p/zz-linked")).unwrap();
    symlink("../run.sh", source.at("p/empty/link")).unwrap();
    symlink("x".repeat(150), source.at("p/dangling")).unwrap();
    let packed = Place::new();
    for format in ["gnu", "pax"] {
        for compress in ["--no-auto-compress", "--gzip", "--zstd"] {
            let output = Command::new("tar")
                .args([compress, &format!("--format={format}"), "-cf"])
                .args([&packed.at("archive"), Path::new("-C"), &source.path(), Path::new("p")])
                .output()
                .unwrap();
            assert!(output.status.success(), "{format} {compress}: {output:?}");
            let place = Place::new();
            let outcome = keep(&place, &fs::read(packed.at("archive")).unwrap());
            assert_eq!(outcome.skipped, 0, "{format} {compress}");
            let ours = tree(&place.path());
            assert_eq!(ours, tree(&source.path()), "{format} {compress}");
            assert!(matches!(ours[&b"p/run.sh"[..]], Node::File { is_executable: true, .. }));
        }
    }
}

#[test]
fn the_outcome_counts_the_whole_tree() {
    let place = Place::new();
    place.write("before", "12345");
    place.write("replaced", "long content");
    let tar = Tar::new().file("replaced", "1").file("new", "22").symlink("s", "new");
    let outcome = keep(&place, &tar.finish());
    assert_eq!((outcome.written, outcome.count, outcome.bytes), (3, 3, 8));
}

#[test]
fn progress_can_end_an_import() {
    let place = Place::new();
    let tar = (0..100).fold(Tar::new(), |tar, n| tar.file(format!("f{n}"), "x"));
    let mut last = 0;
    let mut progress = |progress: hangar_rootfs::job::Progress| {
        assert!(progress.entries > last && progress.bytes == progress.entries);
        last = progress.entries;
        match last {
            10 => Err(Refusal::new(RefusalCode::Failed, "enough")),
            _ => Ok(()),
        }
    };
    let upload = upload(&tar.finish());
    let options = ImportOptions::default();
    let refusal = import(&upload, place.fd(), &options, &mut progress).unwrap_err();
    assert_eq!((refusal.message.as_str(), place.lines().len()), ("enough", 10));
}
