//! Archives that are damaged, cut short, too large or of another kind.

use crate::hostile::{assert_refused, keep, refusing, run};
use crate::listing::Place;
use hangar_archives::{Header, Tar, bzip2, gzip, xz, zstd};
use hangar_rootfs::job::{ImportOptions, Limits, RefusalCode};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn paths_beyond_the_limits_are_refused() {
    use RefusalCode::*;
    let limits = Limits { path_bytes_max: 200, depth_max: 20, ..Limits::default() };
    let deep = ["d"; 30].join("/");
    let long = |length| Tar::new().long(b'L', &vec![b'a'; length]).file("x", "").finish();
    assert_refused(
        vec![
            refusing("too deep", Tar::new().file(&deep, "").finish(), PathTooDeep, &["30", "20"]),
            refusing("too long (A22)", long(250), PathTooLong, &["250", "200"]),
            refusing("a name too long for the kernel", long(256), PathTooLong, &["256", "255"]),
        ],
        &ImportOptions { limits, ..keep() },
    );
}

#[test]
fn sizes_beyond_the_limits_are_refused_before_they_are_written() {
    use RefusalCode::*;
    let limits = Limits {
        bytes_max: 1 << 20,
        file_bytes_max: 100_000,
        entries_max: 50,
        ..Limits::default()
    };
    let many = (0..60).fold(Tar::new(), |tar, n| tar.file(format!("f{n}"), ""));
    let wide = (0..6).fold(Tar::new(), |tar, n| tar.file(format!("{n}{}/f", "/d".repeat(9)), ""));
    let attributes = (0..17).fold(Tar::new(), |tar, _| tar.pax(b'x', &[("uid", b"0")]));
    let fat = (0..12).fold(Tar::new(), |tar, n| tar.file(format!("f{n}"), vec![n; 100_000]));
    let huge = Header::new(b"huge", b'0').raw(124, &[0x80, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
    let negative = Header::new(b"negative", b'0').raw(124, &[0xff; 12]);
    let long_name = Header::new(b"././@LongLink", b'L').size(3 << 20);
    let table = vec![
        refusing(
            "one file too large",
            Tar::new().file("big", vec![0; 100_001]).finish(),
            FileTooLarge,
            &["\"big\" has 100001 bytes; 100000 are allowed"],
        ),
        refusing(
            "1 TiB declared in base 256 (A20)",
            Tar::new().member(&huge, b"").finish(),
            FileTooLarge,
            &["\"huge\" has 1099511627776 bytes"],
        ),
        refusing(
            "a negative size",
            Tar::new().file("a", "1").member(&negative, b"").finish(),
            CorruptArchive,
            &["the size of a member is none", "after the member \"a\""],
        ),
        refusing("all files together", fat.finish(), TreeTooLarge, &["1048576 bytes"]),
        refusing("too many members", many.finish(), TooManyEntries, &["more than 50"]),
        refusing("too many parents", wide.finish(), TooManyEntries, &["more than 50"]),
        refusing(
            "too many headers for one member",
            attributes.file("a", "").finish(),
            CorruptArchive,
            &["more than 16 extension headers"],
        ),
        refusing(
            "a long name of 3 MiB",
            Tar::new().member(&long_name, &vec![b'a'; 3 << 20]).file("x", "").finish(),
            CorruptArchive,
            &["extension header is larger than 1 MiB"],
        ),
    ];
    assert_refused(table, &ImportOptions { limits, ..keep() });
}

#[test]
fn a_small_upload_that_unpacks_to_very_much_is_refused() {
    let tar = Tar::new().file("zeros", vec![0; 100 << 20]).finish();
    for bytes in [gzip(&tar), zstd(&tar), xz(&tar), bzip2(&tar)] {
        let place = Place::new();
        let refusal = run(&place, &bytes, &keep()).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::RatioTooHigh, "{refusal}");
        let written = fs::metadata(place.at("zeros")).map_or(0, |metadata| metadata.size());
        assert!(written <= 65 << 20, "{written} bytes were written");
    }
    // Its twin: as many zeros that are not compressed.
    let place = Place::new();
    assert_eq!(run(&place, &tar, &keep()).unwrap().bytes, 100 << 20);
}

#[test]
fn endless_padding_is_refused() {
    let mut tar = Tar::new().file("a", "1").finish();
    tar.resize(40 << 20, 0);
    let says = &["padding", "after the member \"a\""];
    assert_refused(
        vec![refusing("40 MiB of zeros", gzip(&tar), RefusalCode::CorruptArchive, says)],
        &keep(),
    );
}

#[test]
fn formats_that_are_not_read_are_named() {
    use RefusalCode::*;
    let begins = |magic: &[u8]| [magic, &[7; 600]].concat();
    assert_refused(
        vec![
            refusing("lzip", begins(b"LZIP"), UnsupportedFormat, &["lzip", "zip, and tar"]),
            refusing("xz that is none", begins(b"\xfd7zXZ\0"), CorruptArchive, &["damaged"]),
            refusing("bzip2 that is none", begins(b"BZh9"), CorruptArchive, &["damaged"]),
            refusing("7z", begins(b"7z\xbc\xaf\x27\x1c"), UnsupportedFormat, &["7z"]),
            refusing("nothing", vec![], CorruptArchive, &["the upload is empty"]),
            refusing("text", begins(b"hello world"), CorruptArchive, &["no archive"]),
            refusing("a short text", b"hello".to_vec(), CorruptArchive, &["no archive"]),
            refusing("text in gzip", gzip(&begins(b"hello")), CorruptArchive, &["no tar inside"]),
            refusing("nothing in gzip", gzip(b""), CorruptArchive, &["no tar inside"]),
            refusing(
                "gzip in gzip",
                gzip(&gzip(&Tar::new().finish())),
                CorruptArchive,
                &["no tar"],
            ),
        ],
        &keep(),
    );
}

/// Every cut of an archive is refused: nobody may believe that the first half is the project.
#[test]
fn archives_are_refused_wherever_they_are_cut() {
    let tar = Tar::new()
        .directory("p")
        .file("p/first", vec![1; 700])
        .long(b'L', &[b'n'; 120])
        .file("p/x", "second")
        .pax(b'x', &[("path", b"p/third")])
        .file("p/y", vec![3; 2000]);
    let end = tar.clone().unfinished().len();
    let whole = tar.finish();
    for cut in (0..end).step_by(64).chain([end - 1, end]) {
        let place = Place::new();
        let refusal = run(&place, &whole[..cut], &keep()).expect_err(&format!("cut at {cut}"));
        // Less than a header cannot be told from what is no archive.
        let expected = match cut {
            0..512 => RefusalCode::CorruptArchive,
            _ => RefusalCode::TruncatedArchive,
        };
        assert_eq!(refusal.code, expected, "cut at {cut}: {refusal}");
    }
    let place = Place::new();
    let refusal = run(&place, &whole[..1124], &keep()).unwrap_err();
    assert_eq!(
        refusal.message,
        "the archive is cut short inside the member \"p/first\" (100 of its 700 bytes are there)"
    );
    let refusal = run(&place, &whole[..end], &keep()).unwrap_err();
    assert_eq!(refusal.message, "the archive is cut short after the member \"p/third\"");
}

#[test]
fn compressed_archives_that_are_cut_or_damaged_are_refused() {
    let content: Vec<u8> = (0..40_000u32).flat_map(|n| n.wrapping_mul(n).to_le_bytes()).collect();
    let tar = Tar::new().file("p/first", &content).file("p/second", &content).finish();
    for (name, whole) in
        [("gzip", gzip(&tar)), ("zstd", zstd(&tar)), ("xz", xz(&tar)), ("bzip2", bzip2(&tar))]
    {
        for cut in (1..whole.len()).step_by(whole.len() / 40).chain([whole.len() - 1]) {
            let place = Place::new();
            let refusal =
                run(&place, &whole[..cut], &keep()).expect_err(&format!("{name} cut at {cut}"));
            let codes = [RefusalCode::TruncatedArchive, RefusalCode::CorruptArchive];
            assert!(codes.contains(&refusal.code), "{name} cut at {cut}: {refusal}");
        }
        let place = Place::new();
        let refusal = run(&place, &whole[..whole.len() - 20], &keep()).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::TruncatedArchive, "{name}: {refusal}");
        assert!(refusal.message.contains("member \"p/"), "{name}: {}", refusal.message);
        let mut damaged = whole.clone();
        damaged[whole.len() / 2] ^= 0x10;
        run(&place, &damaged, &keep()).expect_err(&format!("{name} with a changed bit"));
    }
}

/// Archives with random damage: whatever comes of one, it comes without a panic and within the
/// root. The damage is the same in every run.
#[test]
fn random_damage_does_no_harm() {
    let tar = Tar::new()
        .directory("p")
        .file("p/file", vec![1; 600])
        .symlink("p/link", "file")
        .hard_link("p/hard", "p/file")
        .long(b'L', &[b'n'; 120])
        .file("p/x", "second")
        .pax(b'x', &[("path", b"p/third"), ("mtime", b"1.5"), ("size", b"3")])
        .file("p/y", "abc")
        .finish();
    let mut random = Random(42);
    let mut codes = std::collections::BTreeMap::<String, u32>::new();
    for round in 0..3000 {
        let mut bytes = tar.clone();
        for _ in 0..=random.below(3) {
            // Name, size, type, link and the first bytes of data.
            let field = [random.below(12), 124 + random.below(12), 156, 157 + random.below(8)];
            let at = random.below(bytes.len() / 512) * 512 + field[random.below(4)];
            bytes[at] = [b'/', b'.', 0, 0xff, b'1', b'5', random.below(256) as u8][random.below(7)];
        }
        // Most damage is found by the checksum of the header; this lets the rest be seen too.
        mend_checksums(&mut bytes);
        let packed = match round % 5 {
            0 => gzip(&bytes),
            1 => zstd(&bytes),
            2 => xz(&bytes),
            3 => bzip2(&bytes),
            _ => bytes,
        };
        let place = Place::in_memory();
        let code = match run(&place, &packed, &keep()) {
            Ok(outcome) => format!("landed, {} dropped", outcome.skipped.min(1)),
            Err(refusal) => format!("{:?}", refusal.code),
        };
        *codes.entry(code).or_default() += 1;
    }
    // The damage is of many kinds, or this would prove little.
    assert!(codes.len() >= 6, "{codes:?}");
    assert!(!codes.contains_key("Failed"), "{codes:?}");
}

/// Numbers without order (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Writes the right checksum into every block that begins like a header.
fn mend_checksums(bytes: &mut [u8]) {
    for block in bytes.chunks_exact_mut(512).filter(|block| &block[257..262] == b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}
