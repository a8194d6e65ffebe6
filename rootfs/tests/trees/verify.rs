//! Verifying: every kind of difference is found and named.

use crate::freeze::{Store, project};
use hangar_rootfs::job::{Difference, FreezeOptions, RefusalCode, VerifyOutcome};
use hangar_rootfs::verify::verify;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt, lchown, symlink};
use std::path::Path;
use std::time::SystemTime;

fn frozen() -> Store {
    let store = Store::new();
    store.freeze(&project(), "1", &FreezeOptions::default()).unwrap();
    store
}

fn run(store: &Store) -> VerifyOutcome {
    let version: OwnedFd = File::open(store.0.at("1")).unwrap().into();
    verify(version.as_fd(), &mut |_| Ok(())).unwrap()
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Does something that changes the time of a directory or file, and sets the time back.
fn keeping_time(path: &Path, change: impl FnOnce()) {
    let before = fs::metadata(path).unwrap().modified().unwrap();
    change();
    File::open(path).unwrap().set_modified(before).unwrap();
}

#[test]
fn an_untouched_tree_is_what_was_frozen() {
    let store = Store::new();
    let frozen = store.freeze(&project(), "1", &FreezeOptions::default()).unwrap();
    let outcome = run(&store);
    assert_eq!(outcome.root_digest, frozen.root_digest);
    assert_eq!((outcome.files, outcome.bytes), (frozen.files, frozen.bytes));
    assert_eq!((outcome.mismatch_count, outcome.mismatches), (0, vec![]));
}

#[test]
fn every_difference_is_found() {
    use Difference::*;
    type Change = Box<dyn Fn(&Path)>;
    type Row = (&'static str, Change, &'static [(&'static str, Difference)]);
    let table: Vec<Row> = vec![
        (
            "one byte of a file, all else as it was",
            Box::new(|tree| {
                let path = tree.join("large");
                keeping_time(&path, || {
                    let file = File::options().write(true).open(&path).unwrap();
                    file.write_all_at(b"!", 2_000_000).unwrap();
                });
            }),
            &[("large", Content)],
        ),
        (
            "a longer file",
            Box::new(|tree| {
                let path = tree.join("large");
                keeping_time(&path, || {
                    File::options().write(true).open(&path).unwrap().set_len(3_000_001).unwrap();
                });
            }),
            &[("large", Content)],
        ),
        (
            "a file that is gone",
            Box::new(|tree| keeping_time(tree, || fs::remove_file(tree.join("run.py")).unwrap())),
            &[("run.py", Missing)],
        ),
        (
            "a file more",
            Box::new(|tree| {
                let directory = tree.join("empty");
                keeping_time(&directory, || fs::write(directory.join("more"), "").unwrap());
            }),
            &[("empty/more", Extra)],
        ),
        (
            "modes",
            Box::new(|tree| {
                chmod(&tree.join("run.py"), 0o4444);
                chmod(&tree.join("empty"), 0o700);
            }),
            &[("empty", Mode), ("run.py", Mode)],
        ),
        (
            "a time",
            Box::new(|tree| {
                File::open(tree.join("run.py"))
                    .unwrap()
                    .set_modified(SystemTime::UNIX_EPOCH)
                    .unwrap();
            }),
            &[("run.py", Mtime)],
        ),
        (
            "the time of the root",
            Box::new(|tree| {
                File::open(tree).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }),
            &[(".", Mtime)],
        ),
        (
            "a directory where a file was",
            Box::new(|tree| {
                keeping_time(tree, || {
                    let before = fs::metadata(tree.join("run.py")).unwrap().modified().unwrap();
                    fs::remove_file(tree.join("run.py")).unwrap();
                    fs::create_dir(tree.join("run.py")).unwrap();
                    let directory = File::open(tree.join("run.py")).unwrap();
                    directory.set_modified(before).unwrap();
                });
            }),
            &[("run.py", Type)],
        ),
        (
            "a link that points elsewhere",
            Box::new(|tree| {
                let path = tree.join(".venv/bin/python");
                keeping_time(&tree.join(".venv/bin"), || {
                    let before = fs::symlink_metadata(&path).unwrap().modified().unwrap();
                    fs::remove_file(&path).unwrap();
                    symlink("/usr/bin/evil", &path).unwrap();
                    touch_link(&path, before);
                });
            }),
            &[(".venv/bin/python", LinkTarget)],
        ),
        (
            "the owner is not part of it",
            Box::new(|tree| lchown(tree.join("run.py"), Some(1), Some(1)).unwrap()),
            &[],
        ),
    ];
    for (what, change, expected) in table {
        let store = frozen();
        change(&store.tree("1"));
        let outcome = run(&store);
        let found: Vec<_> = outcome.mismatches.iter().map(|m| (m.path.as_str(), m.what)).collect();
        assert_eq!(found, expected, "{what}");
        assert_eq!(outcome.mismatch_count, expected.len() as u64, "{what}");
    }
}

fn touch_link(path: &Path, time: SystemTime) {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let time = rustix::fs::Timespec {
        tv_sec: since.as_secs() as i64,
        tv_nsec: i64::from(since.subsec_nanos()),
    };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, flags).unwrap();
}

#[test]
fn many_differences_are_counted_and_a_few_listed() {
    let store = frozen();
    for n in 0..200 {
        fs::write(store.tree("1").join(format!("more-{n}")), "").unwrap();
    }
    let outcome = run(&store);
    assert_eq!((outcome.mismatch_count, outcome.mismatches.len()), (201, 32));
}

#[test]
fn a_manifest_that_was_edited_is_refused() {
    let store = frozen();
    let path = store.0.at("1/manifest");
    chmod(&path, 0o644);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen(" 15 ", " 16 ", 1)).unwrap();
    let version: OwnedFd = File::open(store.0.at("1")).unwrap().into();
    let refusal = verify(version.as_fd(), &mut |_| Ok(())).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::CorruptManifest);
    assert!(refusal.message.contains("is not the digest of the lines before it"), "{refusal}");
}
