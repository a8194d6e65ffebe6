//! The corpus of the fuzz targets, replayed without a fuzzer.
//!
//! `HANGAR_WRITE_CORPUS=1` writes the seeds that are missing; what a fuzzer found is added by hand.

#[path = "../../fuzz/src/targets.rs"]
mod targets;

use hangar_archives::{
    Header, Method, Sizes, System, Tar, Zip, ZipMember, bzip2, gzip, unicode_name, xz, zstd,
};
use std::fs;
use std::path::{Path, PathBuf};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target)
}

/// Replays every file of a corpus, and each with its bytes cut and changed here and there.
fn replay(target: &str, run: fn(&[u8])) {
    let files = fs::read_dir(corpus(target)).unwrap();
    let mut count = 0;
    for file in files {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        run(&bytes);
        for round in 0..24usize {
            let at = round * bytes.len() / 24;
            run(&bytes[..at]);
            let mut changed = bytes.clone();
            if let Some(byte) = changed.get_mut(at) {
                *byte ^= 1 << (round % 8);
            }
            run(&changed);
        }
        count += 1;
    }
    assert!(count >= 8, "{count} files in the corpus of {target}");
}

#[test]
fn the_corpus_of_imports_does_no_harm() {
    replay("import", targets::import);
}

#[test]
fn the_corpus_of_names_does_no_harm() {
    replay("name", targets::name);
}

fn tars() -> Tar {
    Tar::new()
        .pax(b'g', &[("comment", b"0123")])
        .directory("p")
        .file("p/f", "x")
        .symlink("p/l", "f")
        .hard_link("p/h", "p/f")
        .long(b'L', &[b'n'; 120])
        .file("p/x", "long")
        .pax(b'x', &[("path", b"p/pax"), ("mtime", b"-1.5")])
        .file("p/y", "abc")
        .special("p/dev", b'3')
        .member(&Header::new(b"p/._f", b'0').size(4), b"\x00\x05\x16\x07")
}

/// A sparse member in each of its forms.
fn sparse() -> Tar {
    let number = |number: u64| format!("{number:011o}\0");
    let old = Header::new(b"old", b'S').size(3).raw(257, b"ustar  \0").raw(482, b"\x01");
    let old =
        old.raw(386, (number(1024) + &number(1)).as_bytes()).raw(483, number(4096).as_bytes());
    let mut further = vec![0; 512];
    further[..24].copy_from_slice((number(2048) + &number(2)).as_bytes());
    let map = [&b"1\n5\n3\n"[..], &[0; 506], b"end"].concat();
    let size = ("GNU.sparse.size", &b"9"[..]);
    Tar::new()
        .member(&old, &[&further[..], b"end"].concat())
        .pax(b'x', &[size, ("GNU.sparse.offset", b"2"), ("GNU.sparse.numbytes", b"3")])
        .file("first", "end")
        .pax(b'x', &[size, ("GNU.sparse.name", b"second"), ("GNU.sparse.map", b"0,1,5,2")])
        .file("GNUSparseFile.1/second", "end")
        .pax(
            b'x',
            &[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.name", b"third"),
                ("GNU.sparse.realsize", b"9"),
            ],
        )
        .file("GNUSparseFile.2/third", map)
}

#[test]
fn the_forms_of_sparse_members_are_those_of_the_corpus() {
    let place = crate::listing::Place::new();
    let tar = sparse().finish();
    let outcome = crate::hostile::run(&place, &tar, &crate::hostile::keep()).unwrap();
    assert_eq!((outcome.written, outcome.bytes), (4, 4096 + 9 * 3));
    let read = |name: &str| fs::read(place.path().join(name)).unwrap();
    assert_eq!(read("first"), b"\0\0end\0\0\0\0");
    assert_eq!(read("second"), b"e\0\0\0\0nd\0\0");
    assert_eq!(read("third"), b"\0\0\0\0\0end\0");
    let old = read("old");
    assert_eq!((old.len(), old[1024], &old[2048..2050]), (4096, b'e', &b"nd"[..]));
    assert_eq!(old.iter().filter(|byte| **byte != 0).count(), 3);
}

fn zips() -> Zip {
    Zip::new()
        .directory("d/")
        .file("d/deflated", "deflated")
        .member(&ZipMember::new("stored", "1").method(Method::Stored).sizes(Sizes::Behind))
        .member(&ZipMember::new("wide", "2").method(Method::Zstd).sizes(Sizes::Wide))
        .member(&ZipMember::new("bz", "3").method(Method::Bzip2).sizes(Sizes::BehindWide))
        .member(&ZipMember::new("a\\b", "4").system(System::Dos))
        .member(&ZipMember::new("u", "5").extra(&unicode_name(b"u", "\u{fc}")))
        .symlink("link", "d")
}

#[test]
fn every_seed_is_in_the_corpus() {
    let tar = tars().finish();
    let seeds: Vec<(&str, Vec<u8>)> = vec![
        ("import/tar", tar.clone()),
        ("import/tar-without-end", tars().unfinished()),
        ("import/tar-sparse", sparse().finish()),
        ("import/tar.gz", gzip(&tar)),
        ("import/tar.zst", zstd(&tar)),
        ("import/tar.xz", xz(&tar)),
        ("import/tar.bz2", bzip2(&tar)),
        ("import/zip", zips().finish()),
        ("import/zip64", zips().wide().comment(b"comment").finish()),
        ("import/zip-of-macos", Zip::new().file("w/x", "").file("__MACOSX/._w", "").finish()),
        ("import/zip-encrypted", Zip::new().member(&ZipMember::new("s", "x").flags(1)).finish()),
        ("name/plain", b"a/b/c".to_vec()),
        ("name/dots", b"./a/../b/..".to_vec()),
        ("name/absolute", b"//etc/passwd".to_vec()),
        ("name/nul", b"a\0b".to_vec()),
        ("name/bytes", (1..=255).collect()),
        ("name/long", vec![b'n'; 300]),
        ("name/deep", b"d/".repeat(300)),
        ("name/percent", b"100%25%FF".to_vec()),
    ];
    for (name, bytes) in seeds {
        let (target, file) = name.split_once('/').unwrap();
        let path = corpus(target).join(file);
        if !path.exists() && std::env::var_os("HANGAR_WRITE_CORPUS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
        }
        assert!(path.exists(), "{name} is missing: HANGAR_WRITE_CORPUS=1 writes it");
    }
}
