//! Zips: those that land, and those that two readers would read in two ways.

use crate::hostile::{Refusing, assert_refused, keep, refusing, run};
use crate::listing::{Node, Place, tree};
use hangar_archives::{Method, Sizes, System, Zip, ZipMember, unicode_name};
use hangar_rootfs::import::import;
use hangar_rootfs::job::{ImportOptions, Limits, Note, RefusalCode, SkipReason, Wrapper};

fn member(name: &str, data: impl AsRef<[u8]>) -> ZipMember {
    ZipMember::new(name, data)
}

#[test]
fn every_way_to_keep_data_is_read() {
    let content: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    let mut zip = Zip::new().comment(b"PK\x05\x06 is no second end").wide();
    let mut names = Vec::new();
    for method in [Method::Stored, Method::Deflated, Method::Bzip2, Method::Zstd] {
        for sizes in [Sizes::Before, Sizes::Behind, Sizes::Wide, Sizes::BehindWide] {
            let name = format!("{method:?}/{sizes:?}");
            zip = zip.member(&member(&name, &content).method(method).sizes(sizes));
            let empty = format!("{method:?}/{sizes:?}-empty");
            zip = zip.member(&member(&empty, "").method(method).sizes(sizes));
            names.push(name);
        }
    }
    let place = Place::new();
    let outcome = run(&place, &zip.finish(), &keep()).unwrap();
    assert_eq!((outcome.written, outcome.count, outcome.skipped), (32, 32, 0));
    assert_eq!(outcome.bytes, 16 * content.len() as u64);
    for name in names {
        assert!(std::fs::read(place.at(&name)).unwrap() == content, "{name}");
    }
}

#[test]
fn a_zip_without_members_is_an_empty_project() {
    for zip in [Zip::new(), Zip::new().wide(), Zip::new().comment(b"nothing")] {
        let place = Place::new();
        assert_eq!(run(&place, &zip.finish(), &keep()).unwrap().count, 0);
    }
}

#[test]
fn modes_links_and_times_are_kept() {
    let time = b"\x55\x54\x05\0\x01\x40\x42\x0f\0";
    let zip = Zip::new()
        .directory("p/")
        .member(&member("p/bin/run", "#!").system(System::Unix(0o104_755)).extra(time))
        .file("p/plain", "x")
        .symlink("p/current", "releases/7")
        .member(&member("p/packed", "bin/run").system(System::Unix(0o120_777)).sizes(Sizes::Behind))
        .symlink("p/out", "../../etc/passwd")
        .symlink("p/abs", "/etc/passwd")
        .member(&member("p/null", "").system(System::Unix(0o020_666)))
        .member(&member("p/pipe", "").system(System::Unix(0o010_666)));
    let place = Place::new();
    let options = ImportOptions::default();
    let outcome =
        import(&hangar_archives::upload(&zip.finish()), place.fd(), &options, &mut |_| Ok(()))
            .unwrap();
    assert_eq!(
        place.lines(),
        ["d bin", "f bin/run #!", "l current -> releases/7", "l packed -> bin/run", "f plain x"]
    );
    let nodes = tree(&place.path());
    let Node::File { is_executable, mtime, .. } = nodes[&b"bin/run"[..]] else { panic!() };
    assert!(is_executable && mtime == 1_000_000, "{mtime}");
    assert_eq!(outcome.wrapper_stripped.as_deref(), Some("p"));
    use SkipReason::*;
    let reasons: Vec<_> = outcome.skipped_reasons.into_iter().collect();
    assert_eq!(reasons, [(AbsoluteLink, 1), (LinkOutside, 1), (Device, 1), (Fifo, 1)]);
}

#[test]
fn names_are_decoded_by_the_rules_and_told() {
    let dos = |name: &[u8]| ZipMember::new(name, "x").system(System::Dos);
    let zip = Zip::new()
        .member(&ZipMember::new(b"src\\", "").system(System::Dos))
        .member(&dos(b"src\\main.py"))
        .file("lib\\kept", "x")
        .file("r\u{e9}sum\u{e9}.md", "x")
        .member(&member("\u{fc}.md", "x").flags(1 << 11))
        .member(&ZipMember::new(b"caf\x82", "x"))
        .member(&ZipMember::new("plain", "x").extra(&unicode_name(b"plain", "d/\u{e4}")))
        .member(&dos(b"..\\..\\x"))
        .member(&dos(b"\\abs"));
    let place = Place::new();
    let outcome = run(&place, &zip.finish(), &keep()).unwrap();
    let names: Vec<String> =
        tree(&place.path()).into_keys().map(|name| String::from_utf8(name).unwrap()).collect();
    let expected = [
        "caf\u{e9}",
        "d",
        "d/\u{e4}",
        "lib\\kept",
        "r\u{e9}sum\u{e9}.md",
        "src",
        "src/main.py",
        "\u{fc}.md",
    ];
    assert_eq!(names, expected);
    let notes: Vec<_> = outcome.notes.into_iter().collect();
    use Note::*;
    assert_eq!(
        notes,
        [
            (BackslashesConverted, 4),
            (NamesFromUnicodeField, 1),
            (NamesTakenForUtf8, 1),
            (NamesFromCp437, 1),
            (ModesAbsent, 3)
        ]
    );
    assert_eq!(outcome.skipped, 2, "{:?}", outcome.skipped_examples);
}

fn ambiguous(what: &'static str, zip: Zip, says: &'static [&'static str]) -> Refusing {
    refusing(what, zip.finish(), RefusalCode::AmbiguousArchive, says)
}

#[test]
fn what_two_readers_read_differently_is_refused() {
    let two_ends = Zip::new().file("b", "2").finish();
    let mut outer = Zip::new().file("a", "1").comment(&two_ends).finish();
    // The end of the inner zip has no comment, so both go to the last byte.
    let table = vec![
        ambiguous(
            "one name twice (A05)",
            Zip::new().file("setup.sh", "1").file("x", "").file("./setup.sh", "2"),
            &["members 1 and 3", "setup.sh"],
        ),
        ambiguous(
            "another name before the data (A05)",
            Zip::new().member(&member("a.py", "1").local_name("b.py")),
            &["\"a.py\"", "\"b.py\""],
        ),
        ambiguous(
            "one member with two names",
            Zip::new().file("a", "1").member(&member("b", "1").header_of(0)),
            &["\"b\"", "\"a\""],
        ),
        ambiguous(
            "a directory with data",
            Zip::new().member(&member("d/", "data")),
            &["\"d/\"", "directory and has data"],
        ),
        refusing(
            "a zip in the comment of another",
            std::mem::take(&mut outer),
            RefusalCode::AmbiguousArchive,
            &["two ends"],
        ),
    ];
    assert_refused(table, &keep());
    // One member that is listed twice is one member (A05).
    let twice = Zip::new().file("a", "1").member(&member("a", "1").header_of(0));
    let place = Place::new();
    assert_eq!(run(&place, &twice.finish(), &keep()).unwrap().written, 1);
    // The directory decides over directories, which have no bytes to differ in.
    let twice = Zip::new().directory("d/").directory("d/").file("d/x", "1");
    assert_eq!(run(&Place::new(), &twice.finish(), &keep()).unwrap().written, 1);
}

#[test]
fn what_cannot_be_read_is_named_before_anything_is_written() {
    let mut zip = Zip::new();
    for number in 0..40 {
        zip = zip.file(format!("plain/{number}"), "x");
    }
    let zip = zip
        .member(&member("new.bin", "x").method(Method::Numbered(9)))
        .member(&member("secret", "x").flags(1));
    let place = Place::new();
    let refusal = run(&place, &zip.finish(), &keep()).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::UnsupportedFormat);
    assert_eq!(
        refusal.message,
        "the zip cannot be read: \"new.bin\" is compressed by method 9 (Deflate64), which is not \
         read; \"secret\" is encrypted"
    );
    assert_eq!(place.lines(), [""; 0]);
}

#[test]
fn damage_and_lies_are_refused() {
    use RefusalCode::*;
    let good = || Zip::new().file("good", "g");
    let limits = Limits {
        bytes_max: 1 << 20,
        file_bytes_max: 1 << 19,
        entries_max: 50,
        ..Limits::default()
    };
    let mut many = Zip::new();
    for number in 0..51 {
        many = many.file(number.to_string(), "");
    }
    let table = vec![
        refusing(
            "a wrong checksum",
            good().member(&member("bad", "x").checksum(7)).finish(),
            CorruptArchive,
            &["\"bad\"", "checksum"],
        ),
        refusing(
            "more data than its size",
            good().member(&member("bad", "xyz").size(2)).finish(),
            CorruptArchive,
            &["\"bad\"", "more bytes"],
        ),
        refusing(
            "less data than its size",
            good().member(&member("bad", "xyz").size(4)).finish(),
            TruncatedArchive,
            &["\"bad\"", "3 of its 4 bytes"],
        ),
        refusing(
            "an end that counts more",
            good().entries(2).finish(),
            CorruptArchive,
            &["1 entries", "says 2"],
        ),
        refusing(
            "an end that counts less",
            good().file("b", "").entries(1).finish(),
            CorruptArchive,
            &["2 entries"],
        ),
        refusing(
            "a file that is too large",
            good().file("big", vec![0; (1 << 19) + 1]).finish(),
            FileTooLarge,
            &["\"big\"", "524288"],
        ),
        refusing(
            "all together",
            good().file("a", vec![1; 1 << 19]).file("b", vec![1; 1 << 19]).finish(),
            TreeTooLarge,
            &["1048576"],
        ),
        refusing("too many", many.finish(), TooManyEntries, &["more than 50"]),
        refusing(
            "conf and conf/x (A24)",
            Zip::new().file("conf", "1").file("conf/x", "2").finish(),
            NameConflict,
            &["\"conf\"", "\"conf/x\""],
        ),
        refusing(
            "conf/x and conf (A24)",
            Zip::new().file("conf/x", "1").file("conf", "2").finish(),
            NameConflict,
            &["\"conf\"", "\"conf/x\""],
        ),
    ];
    assert_refused(table, &ImportOptions { limits, ..keep() });
    // Through a link nothing is written, whichever reader made it (A13).
    let place = Place::new();
    let zip = Zip::new().directory("d/").symlink("d/up", "..").file("d/up/out", "!").finish();
    let outcome = run(&place, &zip, &keep()).unwrap();
    assert_eq!(outcome.skipped_reasons[&SkipReason::ThroughSymlink], 1);
}

/// A zip whose members share their data unpacks to the square of its size.
#[test]
fn overlapping_data_is_refused() {
    let inner = Zip::new().file("inner", vec![7; 300]).finish();
    // The inner zip lies stored inside a member of the outer one; an entry names its member.
    let mut bytes = Zip::new().member(&member("outer", &inner).method(Method::Stored)).finish();
    let directory_at = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    let mut entry = inner[inner.windows(4).position(|w| w == b"PK\x01\x02").unwrap()..].to_vec();
    entry.truncate(46 + "inner".len());
    entry[42..46].copy_from_slice(&(30 + "outer".len() as u32).to_le_bytes());
    let end_at = bytes.windows(4).rposition(|w| w == b"PK\x05\x06").unwrap();
    bytes.splice(end_at..end_at, entry.iter().copied());
    let end_at = end_at + entry.len();
    bytes[end_at + 8] = 2;
    bytes[end_at + 10] = 2;
    let length = (end_at - directory_at) as u32;
    bytes[end_at + 12..end_at + 16].copy_from_slice(&length.to_le_bytes());
    let says = &["\"outer\"", "goes on where something else begins"];
    assert_refused(
        vec![refusing("one in another", bytes, RefusalCode::CorruptArchive, says)],
        &keep(),
    );
}

#[test]
fn zips_are_refused_wherever_they_are_cut() {
    let whole = Zip::new().file("p/first", vec![1; 700]).file("p/second", "2").wide().finish();
    for cut in 4..whole.len() {
        let place = Place::new();
        let refusal = run(&place, &whole[..cut], &keep()).expect_err(&format!("cut at {cut}"));
        assert_eq!(refusal.code, RefusalCode::TruncatedArchive, "cut at {cut}: {refusal}");
    }
    run(&Place::new(), &whole, &keep()).unwrap();
}

#[test]
fn a_small_zip_that_unpacks_to_very_much_is_refused() {
    let zip = Zip::new().file("zeros", vec![0; 100 << 20]).finish();
    let place = Place::new();
    let refusal = run(&place, &zip, &keep()).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::RatioTooHigh);
    assert_eq!(place.lines(), [""; 0], "it is known before anything is written");
}

/// The wrapper is found as in a tar.
#[test]
fn a_single_directory_around_everything_is_stripped() {
    let side = b"\x00\x05\x16\x07side";
    let zip = Zip::new()
        .file("web/package.json", "{}")
        .file("web/web/x", "its own name")
        .file("__MACOSX/._web", side)
        .file("__MACOSX/web/._index.js", side)
        .file("._web", side)
        .file(".DS_Store", "x");
    let place = Place::new();
    let options = ImportOptions { wrapper: Wrapper::Strip, ..ImportOptions::default() };
    let outcome = run(&place, &zip.finish(), &options).unwrap();
    assert_eq!(place.lines(), ["f package.json {}", "d web", "f web/x its own name"]);
    assert_eq!(outcome.skipped_reasons[&SkipReason::ArchiverMetadata], 4);
    assert_eq!((outcome.written, outcome.count), (2, 2));
}
