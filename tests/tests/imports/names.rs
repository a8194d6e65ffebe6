//! Names of members.

use crate::ground::{Ground, assert_lines};
use hangar_archives::{Method, System, Tar, Zip, ZipMember, unicode_name};
use serde_json::json;

fn dos(name: &str, data: &str) -> ZipMember {
    ZipMember::new(name, data).system(System::Dos)
}

pub fn backslashes_of_windows() {
    let ground = Ground::new();
    let zip = Zip::new()
        .member(&dos("src\\", "").method(Method::Stored))
        .member(&dos("src\\main.py", "main"))
        .member(&dos("requirements.txt", ""))
        // After the conversion these are no names of the environment.
        .member(&dos("..\\..\\escape", "!"))
        .member(&dos("\\absolute", "!"));
    let answer = ground.takes(zip);
    assert_lines(&ground, &["d src", "f requirements.txt ", "f src/main.py main"]);
    assert_eq!(answer["notes"]["backslashes_converted"], 4);
    assert_eq!(answer["skipped_reasons"], json!({"absolute_path": 1, "parent_in_path": 1}));
}

pub fn backslashes_of_unix() {
    let ground = Ground::new();
    let answer = ground.takes(Zip::new().file("a\\b.txt", "zip").file("c", ""));
    assert_lines(&ground, &["f a\\b.txt zip", "f c "]);
    assert_eq!(answer["notes"], json!({}));
    ground.takes(Tar::new().file("a\\b.txt", "tar").file("c", ""));
    assert_eq!(ground.content("a%5Cb.txt"), b"tar");
}

pub fn utf8_without_its_flag() {
    let ground = Ground::new();
    let answer = ground.takes(Zip::new().file("r\u{e9}sum\u{e9}.md", "x"));
    assert_lines(&ground, &["f r\u{e9}sum\u{e9}.md x"]);
    assert_eq!(answer["notes"], json!({"names_taken_for_utf8": 1}));
}

pub fn names_in_other_encodings() {
    let ground = Ground::new();
    let answer = ground.takes(
        Zip::new()
            .member(&ZipMember::new(b"old-\x81.txt", "437"))
            .member(&ZipMember::new("flag-\u{fc}.txt", "flag").flags(1 << 11))
            .member(
                &ZipMember::new("ue.txt", "field").extra(&unicode_name(b"ue.txt", "\u{fc}.txt")),
            )
            // Whoever renamed it left the field as it was.
            .member(&ZipMember::new("new.txt", "name").extra(&unicode_name(b"x", "\u{e4}.txt"))),
    );
    assert_lines(
        &ground,
        &["f flag-\u{fc}.txt flag", "f new.txt name", "f old-\u{fc}.txt 437", "f \u{fc}.txt field"],
    );
    assert_eq!(answer["notes"], json!({"names_from_cp437": 1, "names_from_unicode_field": 1}));
}

pub fn names_that_are_no_utf8() {
    let ground = Ground::new();
    let tar = Tar::new().file(b"d/x\xe9", "1").file(b"d/x\xff", "2").file("d/x\u{e9}", "3");
    let answer = ground.takes(tar.file("other", ""));
    assert_eq!((&answer["count"], &answer["notes"]), (&json!(4), &json!({"names_not_utf8": 2})));
    let listed = ground.daemon.get(&format!("/v1/environments/{}/files", ground.id));
    let mut found: Vec<(&str, Vec<u8>)> = Vec::new();
    for entry in listed["entries"].as_array().unwrap().iter().filter(|entry| entry["dir"] == false)
    {
        let href = entry["href"].as_str().unwrap();
        found.push((href, ground.content_at(href)));
    }
    found.sort();
    let expected = [
        ("files/d/x%C3%A9", b"3".to_vec()),
        ("files/d/x%E9", b"1".to_vec()),
        ("files/d/x%FF", b"2".to_vec()),
        ("files/other", Vec::new()),
    ];
    assert_eq!(found, expected);
    // Each can be removed by itself.
    ground.daemon.delete(&format!("/v1/environments/{}/files/d/x%E9", ground.id));
    assert_eq!(ground.content("d/x%FF"), b"2");
}

pub fn names_of_many_scripts() {
    let ground = Ground::new();
    let names =
        ["\u{65e5}\u{672c}\u{8a9e}.txt", "a b", "100%", "q?x#y", "e\u{301}", "\u{e9}", "-rf"];
    let tar = names.iter().fold(Tar::new(), |tar, name| tar.file(name, name));
    let answer = ground.takes(tar);
    assert_eq!(answer["notes"], json!({}));
    let mut expected: Vec<String> =
        names.iter().map(|name| format!("f {name} {}", name.as_bytes().escape_ascii())).collect();
    expected.sort();
    assert_eq!(ground.lines(), expected);
}

pub fn a_path_that_is_too_long() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "as it was"));
    let directories = vec!["n".repeat(100); 60].join("/");
    let link = format!("{directories}/s");
    let tar = Tar::new()
        .long(b'L', link.as_bytes())
        .symlink("s", "/")
        .long(b'L', format!("{link}/escape").as_bytes())
        .file("escape", "!");
    let says = ["is 6061 bytes long; 3072 are allowed"];
    let error = ground.refuses(tar, 422, "environment_invalid", &says);
    assert_eq!(error["detail"], json!({"max_path_bytes": 3072}));
    // Deep, though not long.
    let deep = vec!["d"; 300].join("/");
    let tar = Tar::new().long(b'L', deep.as_bytes()).file("d", "!");
    let says = ["is 300 levels deep; 256 are allowed"];
    let error = ground.refuses(tar, 422, "environment_invalid", &says);
    assert_eq!(error["detail"], json!({"max_path_depth": 256}));
    let zip = Zip::new().file("x".repeat(256), "!");
    ground.refuses(zip, 422, "environment_invalid", &["is 256 bytes long; 255 are possible"]);
}

pub fn a_path_that_is_just_not_too_long() {
    let ground = Ground::new();
    let directories = vec!["n".repeat(100); 30].join("/");
    let long = format!("{directories}/{}", "f".repeat(41));
    assert_eq!(long.len(), 3071);
    let deep = format!("{}/f", vec!["d"; 254].join("/"));
    let tar = Tar::new().long(b'L', long.as_bytes()).file("f", "long").long(b'L', deep.as_bytes());
    ground.takes(tar.file("f", "deep"));
    assert_eq!(
        (ground.content(&long), ground.content(&deep)),
        (b"long".to_vec(), b"deep".to_vec())
    );
    // And what landed can be removed.
    ground.daemon.delete(&format!("/v1/environments/{}/files/d", ground.id));
    assert_eq!(ground.content(&long), b"long");
    ground.delete();
}

pub fn a_file_that_is_a_directory() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("kept", "as it was"));
    let names = ["\"conf\"", "\"conf/x\""];
    for zip in [
        Zip::new().file("conf", "1").file("conf/x", "2"),
        Zip::new().file("conf/x", "2").file("conf", "1"),
    ] {
        ground.refuses(zip, 422, "environment_invalid", &names);
    }
    for tar in [
        Tar::new().file("a.txt", "1").file("a.txt/b.txt", "2"),
        Tar::new().file("a.txt/b.txt", "2").file("a.txt", "1"),
    ] {
        ground.refuses(tar, 422, "environment_invalid", &["\"a.txt\"", "\"a.txt/b.txt\""]);
    }
}

pub fn names_that_only_begin_alike() {
    let ground = Ground::new();
    ground.takes(Zip::new().file("conf", "1").file("conf.d/x", "2").file("conf-x/conf", "3"));
    assert_lines(&ground, &["d conf-x", "d conf.d", "f conf 1", "f conf-x/conf 3", "f conf.d/x 2"]);
}

pub fn names_that_differ_by_case() {
    let ground = Ground::new();
    let tar = Tar::new().file("net/xt_mark.h", "mark").file("net/xt_MARK.h", "MARK").file("x", "");
    let answer = ground.takes(tar);
    assert_lines(&ground, &["d net", "f net/xt_MARK.h MARK", "f net/xt_mark.h mark", "f x "]);
    assert_eq!(answer["notes"], json!({"names_differ_only_by_case": 1}));
}

pub fn names_that_differ_by_more() {
    let ground = Ground::new();
    // The same names in other directories are other names.
    let answer = ground.takes(Tar::new().file("a/README", "1").file("b/readme", "2"));
    assert_lines(&ground, &["d a", "d b", "f a/README 1", "f b/readme 2"]);
    assert_eq!(answer["notes"], json!({}));
}
