//! How trees are packed: parents, wrapping directories, metadata of archivers, the root.

use crate::ground::{Ground, assert_lines};
use hangar_archives::{Header, Tar, Zip, gzip};
use serde_json::json;
use std::path::Path;
use std::process::Command;

const SIDE: &[u8] = b"\x00\x05\x16\x07side";

fn read_only_tree() -> Tar {
    Tar::new()
        .member(&Header::new(b"ro/", b'5').mode(0o555), b"")
        .member(&Header::new(b"ro/in/", b'5').mode(0o555), b"")
        .file_mode("ro/in/x", "x", 0o444)
        .file("beside", "")
}

pub fn directories_that_cannot_be_written() {
    let ground = Ground::new();
    let answer = ground.takes(read_only_tree());
    assert_eq!(answer["skipped"], 0);
    assert_lines(&ground, &["d ro", "d ro/in", "f beside ", "f ro/in/x x"]);
    ground.build();
    let said = ground.in_session("cd $PROJECT_ROOT && stat -c '%a' ro ro/in ro/in/x");
    assert_eq!(said, "755\n755\n644\n", "the mount is what is read-only");
    // A second import of it, a single removal, and the removal of everything work too.
    ground.takes(read_only_tree());
    ground.daemon.delete(&format!("/v1/environments/{}/files/ro", ground.id));
    assert_lines(&ground, &["f beside "]);
    ground.takes(read_only_tree());
    ground.delete();
}

pub fn ordinary_modes() {
    let ground = Ground::new();
    ground.takes(Tar::new().directory("d").file_mode("d/run", "#!", 0o4750).file("d/x", "x"));
    assert_eq!([ground.mode("run"), ground.mode("x")], [0o755, 0o644]);
}

pub fn members_without_parents() {
    let ground = Ground::new();
    ground.takes(Tar::new().file("a/b/one", "1").file("a/b/two", "2").file("c", ""));
    assert_lines(&ground, &["d a", "d a/b", "f a/b/one 1", "f a/b/two 2", "f c "]);
    assert_eq!(
        [ground.mode("a"), ground.mode("a/b"), ground.mode("a/b/one")],
        [0o755, 0o755, 0o644]
    );
}

pub fn parents_that_come_later() {
    let ground = Ground::new();
    let tar = Tar::new().file("a/b/one", "1").file("c", "");
    let late = Header::new(b"a/b/", b'5').mode(0o700);
    ground.takes(tar.member(&late, b"").file("a/b/two", "2"));
    assert_lines(&ground, &["d a", "d a/b", "f a/b/one 1", "f a/b/two 2", "f c "]);
}

fn run(directory: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    command.current_dir(directory).args(arguments);
    for (name, value) in [("GIT_CONFIG_NOSYSTEM", "1"), ("HOME", "/nonexistent")] {
        command.env(name, value);
    }
    for role in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{role}_NAME"), "t").env(format!("GIT_{role}_EMAIL"), "t@invalid");
    }
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

pub fn an_archive_made_by_git() {
    let ground = Ground::new();
    let repository = ground.path("repository");
    std::fs::create_dir_all(repository.join("src")).unwrap();
    std::fs::write(repository.join("src/main.py"), "main").unwrap();
    std::fs::write(repository.join("README"), "read").unwrap();
    let git = |arguments: &[&str]| run(&repository, "git", arguments);
    git(&["init", "-q", "."]);
    git(&["add", "-A"]);
    git(&["commit", "-qm", "one"]);
    for format in ["tar", "tar.gz", "zip"] {
        let format = format!("--format={format}");
        let answer = ground.takes(git(&["archive", &format, "--prefix=proj-1.0/", "HEAD"]));
        assert_lines(&ground, &["d src", "f README read", "f src/main.py main"]);
        assert_eq!(answer["wrapper_stripped"], "proj-1.0", "{format}");
        assert_eq!((&answer["written"], &answer["skipped"]), (&json!(2), &json!(0)), "{format}");
    }
    // Unpacked by a tool that does not know the header, and packed again.
    let tar = Tar::new().file("pax_global_header", "52 comment=x").file("p/README", "read");
    let answer = ground.takes(tar);
    assert_lines(&ground, &["f README read"]);
    assert_eq!(answer["skipped_reasons"], json!({"archiver_metadata": 1}));
}

pub fn two_roots() {
    let ground = Ground::new();
    for tar in [
        Tar::new().pax(b'g', &[("comment", b"c0ffee")]).file("a/x", "1").file("b/x", "2"),
        Tar::new().file("a/x", "1").file("b/x", "2").file("__MACOSX/a/._x", SIDE),
    ] {
        let answer = ground.takes(tar);
        assert_lines(&ground, &["d a", "d b", "f a/x 1", "f b/x 2"]);
        assert_eq!(answer["wrapper_stripped"], json!(null));
    }
    // One directory in a directory is stripped once.
    ground.takes(gzip(&Tar::new().file("a/b/x", "1").finish()));
    assert_lines(&ground, &["d b", "f b/x 1"]);
}

pub fn metadata_of_macos_beside_the_root() {
    let ground = Ground::new();
    let zip = Zip::new()
        .file("web/package.json", "{}")
        .file("web/index.js", "js")
        .file("__MACOSX/._web", SIDE)
        .file("__MACOSX/web/._index.js", SIDE)
        .file(".DS_Store", "x");
    let tar = Tar::new()
        .file("._web", SIDE)
        .file("web/package.json", "{}")
        .file("web/index.js", "js")
        .file("web/._index.js", SIDE)
        .file(".DS_Store", "x");
    for answer in [ground.takes(zip), ground.takes(tar)] {
        assert_eq!(answer["skipped_reasons"], json!({"archiver_metadata": 3}));
        assert_eq!(answer["wrapper_stripped"], "web");
        assert_eq!((&answer["written"], &answer["count"]), (&json!(2), &json!(2)));
    }
    assert_lines(&ground, &["f index.js js", "f package.json {}"]);
}

pub fn a_project_with_such_names() {
    let ground = Ground::new();
    // A file of the user's own beside the directory: nothing wraps everything.
    let answer = ground.takes(Zip::new().file("web/index.js", "js").file("._mine", "no magic"));
    assert_lines(&ground, &["d web", "f ._mine no magic", "f web/index.js js"]);
    assert_eq!((&answer["skipped"], &answer["wrapper_stripped"]), (&json!(0), &json!(null)));
}

pub fn side_files_of_macos() {
    let ground = Ground::new();
    let answer = ground.takes(
        Tar::new().file("tests/._test_a.py", SIDE).file("tests/test_a.py", "a").file("x", ""),
    );
    assert_lines(&ground, &["d tests", "f tests/test_a.py a", "f x "]);
    assert_eq!(answer["skipped_reasons"], json!({"archiver_metadata": 1}));
    assert_eq!(answer["skipped_examples"][0]["name"], "tests/._test_a.py");
}

pub fn files_called_like_side_files() {
    let ground = Ground::new();
    let tar = Tar::new()
        .file("t/._notes", "mine")
        .file("t/notes", "n")
        .file("t/._alone", SIDE)
        .file("x", "");
    let answer = ground.takes(tar);
    assert_eq!(answer["skipped"], 0);
    assert_eq!(ground.content("t/._notes"), b"mine");
    assert_eq!(ground.content("t/._alone"), SIDE);
}

pub fn a_member_for_the_root() {
    let ground = Ground::new();
    let root = Header::new(b"./", b'5').mode(0o700);
    let answer = ground.takes(Tar::new().member(&root, b"").file("./app.py", "app"));
    assert_eq!(answer["skipped"], 0);
    assert_lines(&ground, &["f app.py app"]);
    ground.build();
    let said = ground.in_session("id -u; stat -c '%a' $PROJECT_ROOT; cat /env/ground/app.py");
    assert_eq!(said, "1000\n755\napp");
}

pub fn the_root_is_readable() {
    let ground = Ground::new();
    ground.takes(Tar::new().directory("./").file("./app.py", "app"));
    assert_eq!(ground.mode(""), 0o755);
}
