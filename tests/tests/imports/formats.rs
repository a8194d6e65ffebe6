//! How archives are put together: zips and their directory, tars and their extensions, compression.

use crate::ground::{Ground, assert_lines};
use hangar_archives::{Method, Sizes, Tar, Zip, ZipMember, bzip2, gzip, xz, zstd};
use serde_json::json;

const INVALID: &str = "environment_invalid";

fn member(name: &str, data: &str) -> ZipMember {
    ZipMember::new(name, data)
}

pub fn a_streamed_member_with_wide_sizes() {
    let ground = Ground::new();
    let zip = || {
        let zeros = ZipMember::new("zeros.bin", vec![0; 5000]).sizes(Sizes::BehindWide);
        Zip::new().member(&member("a.txt", "a").sizes(Sizes::Behind)).member(&zeros)
    };
    let whole = zip().member(&member("z.txt", "z").sizes(Sizes::BehindWide)).wide();
    let answer = ground.takes(whole);
    assert_eq!((&answer["written"], &answer["bytes"]), (&json!(3), &json!(5002)));
    assert_eq!(ground.content("z.txt"), b"z");
    // A directory that has fewer members than it says is no success.
    let fewer = zip().wide().entries(3);
    ground.refuses(fewer, 422, INVALID, &["has 2 entries", "its end says 3"]);
}

pub fn a_streamed_zip() {
    let ground = Ground::new();
    let zip = ["a", "b", "c"].iter().fold(Zip::new(), |zip, name| {
        zip.member(&member(name, &name.repeat(1000)).sizes(Sizes::Behind))
    });
    assert_eq!(ground.takes(zip)["bytes"], 3000);
}

pub fn one_name_with_two_contents() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "as it was"));
    let twice = Zip::new().file("setup.sh", "echo good").file("setup.sh", "echo bad");
    let says = ["can be read in two ways", "members 1 and 2", "\"setup.sh\""];
    ground.refuses(twice, 422, INVALID, &says);
    let two_names = Zip::new().member(&member("a.py", "x").local_name("b.py"));
    ground.refuses(two_names, 422, INVALID, &["\"a.py\"", "\"b.py\""]);
}

pub fn one_member_listed_twice() {
    let ground = Ground::new();
    let zip = Zip::new().file("a.py", "x").member(&member("a.py", "x").header_of(0)).file("b", "");
    let answer = ground.takes(zip);
    assert_lines(&ground, &["f a.py x", "f b "]);
    assert_eq!((&answer["written"], &answer["count"]), (&json!(2), &json!(2)));
}

pub fn unreadable_members_are_named_first() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "as it was"));
    let zip = (0..40).fold(Zip::new(), |zip, number| zip.file(format!("plain/{number}"), "x"));
    let zip = zip
        .member(&member("big.bin", "x").method(Method::Numbered(9)))
        .member(&member("secret.txt", "x").flags(1));
    let says = ["\"big.bin\"", "method 9 (Deflate64)", "\"secret.txt\" is encrypted"];
    ground.refuses(zip, 422, INVALID, &says);
}

pub fn every_readable_method() {
    let ground = Ground::new();
    let zip = Zip::new()
        .member(&member("stored", "1").method(Method::Stored))
        .member(&member("deflated", "2"))
        .member(&member("bzip2", "3").method(Method::Bzip2))
        .member(&member("zstd", "4").method(Method::Zstd));
    ground.takes(zip);
    assert_lines(&ground, &["f bzip2 3", "f deflated 2", "f stored 1", "f zstd 4"]);
}

pub fn a_size_before_a_long_name() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "as it was"));
    let tar = Tar::new()
        .pax(b'x', &[("size", b"1536")])
        .long(b'L', b"a-name-of-thirty-bytes-exactly")
        .file("short", "12345678")
        .file("other", "12345678");
    let says = ["can be read in two ways", "two different sizes"];
    ground.refuses(tar, 422, INVALID, &says);
}

pub fn extensions_of_one_member() {
    let ground = Ground::new();
    let long = "n".repeat(200);
    let tar = Tar::new()
        .pax(b'x', &[("size", b"8"), ("path", long.as_bytes())])
        .long(b'L', long.as_bytes())
        .file("short", "12345678")
        // What was said of one member is not true of the next.
        .file("other", "123");
    ground.takes(tar);
    assert_lines(&ground, &[&format!("f {long} 12345678"), "f other 123"]);
}

pub fn gzip_in_several_members() {
    let ground = Ground::new();
    let tar = Tar::new().file("first", vec![b'1'; 600]).file("second", vec![b'2'; 3000]).finish();
    let cut = |pack: fn(&[u8]) -> Vec<u8>| [pack(&tar[..700]), pack(&tar[700..])].concat();
    for packed in [cut(gzip), cut(zstd), cut(xz), cut(bzip2)] {
        assert_eq!(ground.takes(packed)["bytes"], 3600);
        assert_eq!(ground.content("second"), vec![b'2'; 3000]);
    }
}

pub fn archives_that_are_cut() {
    let ground = Ground::new();
    let tar = Tar::new().file("first", "1").file("second", vec![b'2'; 3000]);
    let without_end = tar.clone().unfinished();
    ground.takes(tar.clone());
    let tar = tar.finish();
    ground.refuses(without_end, 422, INVALID, &["cut short after the member \"second\""]);
    let says = ["cut short inside the member \"second\" (476 of its 3000 bytes are there)"];
    ground.refuses(tar[..2012].to_vec(), 422, INVALID, &says);
    for packed in [gzip(&tar), zstd(&tar), xz(&tar), bzip2(&tar)] {
        let cut = packed[..packed.len() - 9].to_vec();
        ground.refuses(cut, 422, INVALID, &["the archive is"]);
    }
}
