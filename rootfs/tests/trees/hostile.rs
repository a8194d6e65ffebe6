//! Archives that attack, each with what must come of it. The tree is listed after the import and
//! a witness outside of it is looked at; a refusal must name the member and the true cause.

use crate::listing::Place;
use hangar_archives::{Header, Tar, upload};
use hangar_rootfs::import::import;
use hangar_rootfs::job::{ImportOptions, ImportOutcome, Refusal, RefusalCode, SkipReason, Wrapper};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

pub fn keep() -> ImportOptions {
    ImportOptions { wrapper: Wrapper::Keep, ..ImportOptions::default() }
}

pub fn run(place: &Place, bytes: &[u8], options: &ImportOptions) -> Result<ImportOutcome, Refusal> {
    let outcome = import(&upload(bytes), place.fd(), options, &mut |_| Ok(()));
    place.assert_nothing_outside();
    outcome
}

/// An archive, what lands of it, and what is dropped.
struct Dropping {
    what: &'static str,
    tar: Tar,
    lands: &'static [&'static str],
    dropped: &'static [(SkipReason, u64)],
}

#[test]
fn members_that_must_not_land_are_dropped_and_counted() {
    for Dropping { what, tar, lands, dropped } in names().into_iter().chain(links()) {
        let place = Place::new();
        let outcome = run(&place, &tar.finish(), &keep()).unwrap_or_else(|r| panic!("{what}: {r}"));
        assert_eq!(place.lines(), lands, "{what}");
        let reasons: Vec<_> = outcome.skipped_reasons.into_iter().collect();
        assert_eq!(reasons, dropped, "{what}");
        assert_eq!(outcome.skipped, dropped.iter().map(|(_, count)| count).sum::<u64>(), "{what}");
        let files = lands.iter().filter(|line| line.starts_with('f')).count() as u64;
        assert_eq!(outcome.count, files, "{what}");
    }
}

fn good() -> Tar {
    Tar::new().file("good", "g")
}

fn names() -> Vec<Dropping> {
    use SkipReason::*;
    vec![
        Dropping {
            what: "names that lead out",
            tar: good()
                .file("../x", "!")
                .file("a/../../x", "!")
                .file("a/..", "!")
                .file("/etc/x", "!")
                .file("//x", "!")
                .directory("../d")
                .symlink("../l", "good")
                .hard_link("../h", "good"),
            lands: &["f good g"],
            dropped: &[(AbsolutePath, 2), (ParentInPath, 6)],
        },
        Dropping {
            what: "names that are none",
            tar: good().file("", "!").file(".", "!").pax(b'x', &[("path", b"a\0b")]).file("z", "!"),
            lands: &["f good g"],
            dropped: &[(BadName, 3)],
        },
        Dropping {
            what: "backslashes and dots are ordinary bytes",
            tar: Tar::new().file("..\\x", "1").file("...", "2").file("a/..b", "3"),
            lands: &["f ... 2", "f ..\\\\x 1", "d a", "f a/..b 3"],
            dropped: &[],
        },
        Dropping {
            what: "devices, pipes and types that are none",
            tar: good()
                .special("c", b'3')
                .special("b", b'4')
                .special("p", b'6')
                .special("v", b'V')
                .special("u", b'Z'),
            lands: &["f good g"],
            dropped: &[(Device, 2), (Fifo, 1), (UnknownType, 2)],
        },
        Dropping {
            what: "the same name several times: the last one counts",
            tar: Tar::new().file("a", "1").file("./a", "2").symlink("a", "b").file("a//", ""),
            lands: &["d a"],
            dropped: &[],
        },
        Dropping {
            what: "names of the kernel are only names",
            tar: Tar::new().file("proc/self/exe", "1").symlink("dev/console", "../proc"),
            lands: &[
                "d dev",
                "l dev/console -> ../proc",
                "d proc",
                "d proc/self",
                "f proc/self/exe 1",
            ],
            dropped: &[],
        },
    ]
}

fn links() -> Vec<Dropping> {
    use SkipReason::*;
    vec![
        Dropping {
            what: "links that lead out as they are written",
            tar: good()
                .symlink("a", "/etc/passwd")
                .symlink("b", "../x")
                .symlink("d/c", "../../x")
                .symlink("e", "")
                .hard_link("f", "../../etc/passwd")
                .hard_link("g", "/etc/passwd"),
            lands: &["f good g"],
            dropped: &[(BadName, 1), (AbsoluteLink, 1), (LinkOutside, 4)],
        },
        Dropping {
            what: "a chain of links of which each looks inside (A13)",
            tar: good()
                .directory("d")
                .symlink("d/up", "..")
                .symlink("out", "d/up/../witness")
                .file("out/x", "!")
                .symlink("fine", "d/up/good"),
            lands: &["d d", "l d/up -> ..", "l fine -> d/up/good", "f good g"],
            dropped: &[(ThroughSymlink, 1), (LinkOutside, 1)],
        },
        Dropping {
            what: "a link to the directory itself, then through it (A13)",
            tar: good().symlink("d", ".").symlink("d/up", "..").file("d/up/out.txt", "!"),
            lands: &["l d -> .", "f good g"],
            dropped: &[(ThroughSymlink, 2)],
        },
        Dropping {
            what: "a file and a directory through a link (CVE-2026-33056 and others)",
            tar: good().directory("real").symlink("l", "real").file("l/x", "!").directory("l/y"),
            lands: &["f good g", "l l -> real", "d real"],
            dropped: &[(ThroughSymlink, 2)],
        },
        Dropping {
            what: "a link that becomes a directory, which then is a parent",
            tar: good().symlink("l", "good").directory("l").file("l/x", "in"),
            lands: &["f good g", "d l", "f l/x in"],
            dropped: &[],
        },
        Dropping {
            what: "a file with the name of an earlier link (A15)",
            tar: Tar::new().file("keep.txt", "A").symlink("note", "keep.txt").file("note", "B"),
            lands: &["f keep.txt A", "f note B"],
            dropped: &[],
        },
        Dropping {
            what: "hard links: to what came before; else dropped (A11)",
            tar: Tar::new()
                .file("bin/tool", "T")
                .hard_link("bin/alias", "bin/tool")
                .hard_link("lic", "Cargo.toml")
                .hard_link("self", "self")
                .symlink("s", "bin/tool")
                .hard_link("to-link", "s")
                .hard_link("to-directory", "bin")
                .symlink("b", "bin")
                .hard_link("through-link", "b/tool"),
            lands: &["l b -> bin", "d bin", "f bin/alias T", "f bin/tool T", "l s -> bin/tool"],
            dropped: &[(LinkWithoutFile, 5)],
        },
        Dropping {
            what: "a hard link to itself keeps the file",
            tar: Tar::new().file("a", "1").hard_link("./a", "a"),
            lands: &["f a 1"],
            dropped: &[],
        },
        Dropping {
            what: "links in a circle and links to nothing",
            tar: good().symlink("a", "b").symlink("b", "a").symlink("c", "missing"),
            lands: &["l a -> b", "l b -> a", "l c -> missing", "f good g"],
            dropped: &[],
        },
    ]
}

/// An archive that is refused as a whole.
pub struct Refusing {
    what: &'static str,
    bytes: Vec<u8>,
    code: RefusalCode,
    /// Parts of the message.
    says: &'static [&'static str],
}

pub fn refusing(
    what: &'static str,
    bytes: Vec<u8>,
    code: RefusalCode,
    says: &'static [&'static str],
) -> Refusing {
    Refusing { what, bytes, code, says }
}

pub fn assert_refused(table: Vec<Refusing>, options: &ImportOptions) {
    for Refusing { what, bytes, code, says } in table {
        let place = Place::new();
        let refusal = match run(&place, &bytes, options) {
            Err(refusal) => refusal,
            Ok(outcome) => panic!("{what}: imported as {outcome:?}"),
        };
        assert_eq!(refusal.code, code, "{what}: {refusal}");
        for part in says {
            assert!(refusal.message.contains(part), "{what}: {} lacks {part}", refusal.message);
        }
        assert!(!refusal.message.contains("/var/tmp"), "{what}: {}", refusal.message);
    }
}

#[test]
fn a_name_that_is_a_file_and_a_directory_is_refused() {
    let conflict =
        |what, tar: Tar, says| refusing(what, tar.finish(), RefusalCode::NameConflict, says);
    assert_refused(
        vec![
            conflict(
                "a file, then below it (A24)",
                Tar::new().file("conf", "1").file("conf/x", "2"),
                &["\"conf\"", "\"conf/x\""],
            ),
            conflict(
                "the same in the other order (A24)",
                Tar::new().file("conf/x", "2").file("conf", "1"),
                &["\"conf\" is a file and a directory"],
            ),
            conflict(
                "a file two levels up",
                Tar::new().file("a/b", "1").file("a/b/c/d", "2"),
                &["\"a/b\"", "\"a/b/c/d\""],
            ),
            conflict(
                "a directory in the place of a file",
                Tar::new().file("a", "1").directory("a"),
                &["\"a\""],
            ),
            conflict(
                "a link in the place of a directory",
                Tar::new().file("a/x", "1").symlink("a", "b"),
                &["\"a\""],
            ),
        ],
        &keep(),
    );
}

#[test]
fn what_can_be_read_in_two_ways_is_refused() {
    use RefusalCode::*;
    let pax = |records: &[(&str, &[u8])]| Tar::new().file("a", "1").pax(b'x', records);
    let table = vec![
        refusing(
            "a pax size that is not the header's",
            pax(&[("size", b"1536")]).file("b", "12345678").file("c", "x").finish(),
            AmbiguousArchive,
            &["\"b\"", "two different sizes", "after the member \"a\""],
        ),
        refusing(
            "a pax size before a long name (A09)",
            pax(&[("size", b"1536")]).long(b'L', b"long").file("b", "12345678").finish(),
            AmbiguousArchive,
            &["\"long\" has two different sizes"],
        ),
        refusing(
            "a long name and another pax name",
            pax(&[("path", b"one")]).long(b'L', b"two").file("b", "").finish(),
            AmbiguousArchive,
            &["\"one\" and \"two\""],
        ),
        refusing(
            "a global name",
            Tar::new().pax(b'g', &[("path", b"x")]).file("b", "").finish(),
            CorruptArchive,
            &["global header sets \"path\""],
        ),
        refusing(
            "a link with data",
            Tar::new().member(&Header::new(b"l", b'2').link(b"x").size(3), b"abc").finish(),
            AmbiguousArchive,
            &["\"l\" has data"],
        ),
        refusing(
            "a pax record whose length is wrong",
            Tar::new()
                .file("a", "1")
                .member(&Header::new(b"x", b'x').size(9), b"99 path=x")
                .finish(),
            CorruptArchive,
            &["pax record is malformed", "after the member \"a\""],
        ),
        refusing(
            "a part of another volume",
            Tar::new().special("half", b'M').finish(),
            UnsupportedFormat,
            &["\"half\"", "volume"],
        ),
        refusing(
            "two archives in a row, of which readers see one",
            [Tar::new().file("a", "1").finish(), Tar::new().file("b", "2").finish()].concat(),
            CorruptArchive,
            &["more bytes follow the end", "after the member \"a\""],
        ),
    ];
    assert_refused(table, &keep());
}

#[test]
fn maps_of_sparse_files_that_are_none_are_refused() {
    use RefusalCode::*;
    let mapped = |map: &[u8], size: &[u8]| {
        Tar::new()
            .pax(b'x', &[("GNU.sparse.map", map), ("GNU.sparse.size", size)])
            .file("holes", "12345")
            .finish()
    };
    let fore = |records: &[(&str, &[u8])], data: &[u8]| {
        let common = [("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", b"0")];
        Tar::new().pax(b'x', &[&common, records].concat()).file("holes", data).finish()
    };
    let real = [("GNU.sparse.realsize", &b"9000"[..])];
    let block = |text: &[u8]| [text, &vec![0; 512 - text.len()]].concat();
    const CAUSE: [&str; 2] = ["\"holes\"", "the map of a sparse file"];
    let table = vec![
        refusing("not in order", mapped(b"7,3,0,2", b"10"), CorruptArchive, &CAUSE),
        refusing("twice in one place", mapped(b"0,3,2,2", b"10"), CorruptArchive, &CAUSE),
        refusing("beyond the size", mapped(b"0,2,8,3", b"10"), CorruptArchive, &CAUSE),
        refusing(
            "beyond what a number holds",
            mapped(b"18446744073709551615,5", b"10"),
            CorruptArchive,
            &CAUSE,
        ),
        refusing("half a pair", mapped(b"0,2,8", b"10"), CorruptArchive, &["map"]),
        refusing(
            "less than the data",
            mapped(b"0,3", b"10"),
            AmbiguousArchive,
            &["a sparse file has 5 bytes and a map of 3"],
        ),
        refusing(
            "more than the data",
            mapped(b"0,9", b"10"),
            AmbiguousArchive,
            &["a sparse file has 5 bytes and a map of 9"],
        ),
        refusing(
            "no size",
            Tar::new().pax(b'x', &[("GNU.sparse.map", b"0,5")]).file("holes", "12345").finish(),
            CorruptArchive,
            &["has no size"],
        ),
        refusing("a map without numbers", fore(&real, &block(b"1\nx\n")), CorruptArchive, &CAUSE),
        refusing("a map without an end", fore(&real, &block(b"3\n0\n5\n")), CorruptArchive, &CAUSE),
        refusing("a map longer than the data", fore(&real, b"1\n0\n"), CorruptArchive, &CAUSE),
        refusing(
            "another version",
            Tar::new()
                .pax(b'x', &[("GNU.sparse.major", b"2"), ("GNU.sparse.realsize", b"5")])
                .file("holes", "12345")
                .finish(),
            UnsupportedFormat,
            &["version 2.0"],
        ),
        refusing(
            "a record that nobody knows",
            Tar::new().pax(b'x', &[("GNU.sparse.new", b"2")]).file("holes", "").finish(),
            CorruptArchive,
            &["GNU.sparse.new"],
        ),
        refusing(
            "a sparse file of star",
            Tar::new().pax(b'x', &[("SCHILY.realsize", b"5")]).file("holes", "").finish(),
            CorruptArchive,
            &["not GNU tar's"],
        ),
        refusing(
            "the old form without GNU's header",
            Tar::new().special("holes", b'S').finish(),
            UnsupportedFormat,
            &["not GNU tar's"],
        ),
        refusing(
            "a sparse directory",
            Tar::new().pax(b'x', &[("GNU.sparse.size", b"5")]).directory("holes").finish(),
            AmbiguousArchive,
            &["it is sparse"],
        ),
        refusing(
            "a file that is nothing but a hole of many bytes",
            Tar::new()
                .pax(b'x', &[("GNU.sparse.map", b""), ("GNU.sparse.size", b"900000000000")])
                .file("holes", "")
                .finish(),
            FileTooLarge,
            &["\"holes\" has 900000000000 bytes"],
        ),
        refusing(
            "a bomb of holes",
            Tar::new()
                .pax(b'x', &[("GNU.sparse.map", b""), ("GNU.sparse.size", b"1000000000")])
                .file("holes", "")
                .finish(),
            RatioTooHigh,
            &["it is taken for a bomb"],
        ),
    ];
    assert_refused(table, &keep());
}

/// The import lands over a tree that somebody else could have prepared.
#[test]
fn links_that_were_there_before_are_not_followed() {
    let place = Place::new();
    symlink("..", place.at("up")).unwrap();
    symlink("../witness", place.at("w")).unwrap();
    let tar = Tar::new().file("up/witness", "!").file("w", "mine").hard_link("h", "up/witness");
    let outcome = run(&place, &tar.finish(), &keep()).unwrap();
    assert_eq!(place.lines(), ["l up -> ..", "f w mine"]);
    assert_eq!(outcome.skipped_reasons[&SkipReason::ThroughSymlink], 1);
    assert_eq!(outcome.skipped_reasons[&SkipReason::LinkWithoutFile], 1);
}

/// A26: what shares an inode with a file that is replaced stays as it is.
#[test]
fn files_are_replaced_and_not_written_into() {
    let place = Place::new();
    place.write("old", "old");
    fs::hard_link(place.at("old"), place.at("new")).unwrap();
    fs::set_permissions(place.at("old"), PermissionsExt::from_mode(0o444)).unwrap();
    run(&place, &Tar::new().file("new", "new").finish(), &keep()).unwrap();
    assert_eq!(place.lines(), ["f new new", "f old old"]);
}
