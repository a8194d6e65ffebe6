//! What is true of every archive and every name, tried with many that nobody wrote by hand.

use crate::hostile::{keep, run};
use crate::listing::{Node, Place, tree};
use hangar_archives::{Method, Sizes, System, Tar, Zip, ZipMember, bzip2, gzip, xz, zstd};
use hangar_rootfs::job::{Limits, RefusalCode};
use hangar_rootfs::names::{NameFault, escape, parts_of, printable, unescape};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Content and whether it is executable, by path. No path is a directory of another.
type Files = BTreeMap<String, (Vec<u8>, bool)>;

fn files() -> impl Strategy<Value = Files> {
    let path = proptest::string::string_regex("(d[ab]/){0,3}f[a-z\u{e9}\u{65e5} %+_-]{0,12}");
    let content = prop_oneof![vec(any::<u8>(), 0..600), (0..5000usize).prop_map(|n| vec![7; n])];
    btree_map(path.expect("an expression"), (content, any::<bool>()), 0..12)
}

/// What lands, as far as an archive says it.
fn landed(place: &Place) -> Files {
    let mut files = Files::new();
    for (path, node) in tree(&place.path()) {
        if let Node::File { content, is_executable, .. } = node {
            files.insert(String::from_utf8(path).unwrap(), (content, is_executable));
        }
    }
    files
}

fn settings() -> ProptestConfig {
    // Each case makes directories and files on the disk.
    ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn whatever_is_in_a_zip_lands(files in files(), ways in vec((0..4usize, 0..4usize), 12), wide: bool) {
        let mut zip = Zip::new();
        for ((path, (content, executable)), (method, sizes)) in files.iter().zip(ways) {
            let mode = if *executable { 0o100_755 } else { 0o100_644 };
            let method = [Method::Stored, Method::Deflated, Method::Bzip2, Method::Zstd][method];
            let sizes = [Sizes::Before, Sizes::Behind, Sizes::BehindWide, Sizes::Wide][sizes];
            let member = ZipMember::new(path, content).method(method).sizes(sizes);
            zip = zip.member(&member.system(System::Unix(mode)));
        }
        let zip = if wide { zip.wide() } else { zip };
        let place = Place::new();
        let outcome = run(&place, &zip.finish(), &keep()).unwrap();
        prop_assert_eq!(landed(&place), files.clone());
        prop_assert_eq!((outcome.written, outcome.skipped), (files.len() as u64, 0));
    }

    #[test]
    fn whatever_is_in_a_tar_lands(files in files(), packed in 0..5usize) {
        let mut tar = Tar::new();
        for (path, (content, executable)) in &files {
            let mode = if *executable { 0o755 } else { 0o644 };
            tar = tar.pax(b'x', &[("path", path.as_bytes())]).file_mode("f", content, mode);
        }
        let plain = |bytes: &[u8]| bytes.to_vec();
        let pack: fn(&[u8]) -> Vec<u8> = [plain, gzip, zstd, xz, bzip2][packed];
        let place = Place::new();
        let outcome = run(&place, &pack(&tar.finish()), &keep()).unwrap();
        prop_assert_eq!(landed(&place), files.clone());
        prop_assert_eq!((outcome.written, outcome.skipped), (files.len() as u64, 0));
    }

    /// Bytes are changed anywhere; whatever comes of it, it stays below the root, and no call of
    /// ours fails for a reason that is not the archive's.
    #[test]
    fn a_damaged_zip_does_no_harm(changes in vec((any::<proptest::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = Zip::new()
            .directory("d/")
            .file("d/../../x", "!")
            .member(&ZipMember::new("d/deflated", vec![1; 500]).sizes(Sizes::Behind))
            .member(&ZipMember::new("stored", "22").method(Method::Stored).sizes(Sizes::Wide))
            .member(&ZipMember::new("zstd", "333").method(Method::Zstd))
            .symlink("link", "d")
            .file("link/y", "!")
            .wide()
            .finish();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let place = Place::in_memory();
        if let Err(refusal) = run(&place, &bytes, &keep()) {
            prop_assert!(refusal.code != RefusalCode::Failed, "{}", refusal);
        }
    }

    #[test]
    fn bytes_that_are_no_archive_are_refused(bytes in vec(any::<u8>(), 0..2000), magic in 0..6usize) {
        let magics: [&[u8]; 6] =
            [b"", b"PK\x03\x04", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh9"];
        let place = Place::in_memory();
        prop_assert!(run(&place, &[magics[magic], &bytes].concat(), &keep()).is_err());
        prop_assert_eq!(place.lines(), Vec::<String>::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A name is dropped, refused, or made of parts that name something below the root.
    #[test]
    fn parts_of_a_name_lead_down(name in vec(prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..600)) {
        let limits = Limits { path_bytes_max: 300, depth_max: 20, ..Limits::default() };
        match parts_of(&name, &limits) {
            Ok(parts) => {
                prop_assert!(name[0] != b'/');
                prop_assert!(parts.len() <= 20 && parts.join(&b'/').len() <= 300);
                for part in parts {
                    prop_assert!(!part.is_empty() && part.len() <= 255);
                    prop_assert!(part != b"." && part != b"..");
                    prop_assert!(!part.contains(&b'/') && !part.contains(&0));
                }
            }
            Err(NameFault::Skip(_)) => {
                let leads_out = name.split(|byte| *byte == b'/').any(|part| part == b"..");
                prop_assert!(name.is_empty() || name[0] == b'/' || name.contains(&0) || leads_out);
            }
            Err(NameFault::Refuse(refusal)) => prop_assert!(refusal.limit.is_some()),
        }
    }

    #[test]
    fn escaped_names_come_back(name in vec(1..=255u8, 0..300)) {
        prop_assert_eq!(unescape(escape(&name).as_bytes()), Some(name.clone()));
        prop_assert!(!printable(&name).chars().any(char::is_control));
    }
}
