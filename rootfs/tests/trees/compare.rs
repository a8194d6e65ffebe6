//! Comparing and measuring frozen trees.

use crate::freeze::{Store, project};
use hangar_rootfs::compare::compare;
use hangar_rootfs::job::{
    CompareOptions, CompareOutcome, FreezeOptions, NodeShown, PathDifference, RefusalCode,
};
use hangar_rootfs::measure::measure;
use std::fs::{self, File, Permissions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

fn referring(to: &str) -> FreezeOptions {
    FreezeOptions { references: vec![format!("{to}/tree")], ..FreezeOptions::default() }
}

/// Two versions of a project: one file changed, one added, one removed, one made executable, a
/// file that became a link.
fn two_versions() -> Store {
    let store = Store::new();
    let project = project();
    project.write("gone", "gone");
    project.write("kind", "a file");
    store.freeze(&project, "1", &FreezeOptions::default()).unwrap();
    project.write("run.py", "print('changed')\n");
    project.write("new/file", "new");
    fs::remove_file(project.at("gone")).unwrap();
    fs::remove_file(project.at("kind")).unwrap();
    symlink("run.py", project.at("kind")).unwrap();
    fs::set_permissions(project.at("large"), Permissions::from_mode(0o755)).unwrap();
    store.freeze(&project, "2", &referring("1")).unwrap();
    store
}

fn compared(store: &Store, listed_max: u64) -> (CompareOutcome, Vec<PathDifference>) {
    let dir = |name: &str| -> OwnedFd { File::open(store.0.at(name)).unwrap().into() };
    let mut lines = Vec::new();
    let options = CompareOptions { listed_max };
    let outcome = compare(dir("1").as_fd(), dir("2").as_fd(), &mut lines, &options).unwrap();
    let text = String::from_utf8(lines).unwrap();
    (outcome, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

#[test]
fn every_difference_is_told_and_nothing_else() {
    let (outcome, listed) = compared(&two_versions(), 100);
    let paths: Vec<_> = listed.iter().map(|difference| difference.path.as_str()).collect();
    assert_eq!(paths, ["gone", "kind", "large", "new", "new/file", "run.py"]);
    assert_eq!((outcome.added, outcome.removed, outcome.changed), (2, 1, 3));
    assert!(!outcome.truncated && outcome.unchanged > 5);
    let [gone, kind, large, _, new, run] = listed.try_into().unwrap();
    assert!(gone.after.is_none() && new.before.is_none());
    assert!(matches!(new.after, Some(NodeShown::File { bytes: 3, .. })));
    assert_eq!(kind.after, Some(NodeShown::Symlink { target: "run.py".to_owned() }));
    let (Some(NodeShown::File { mode, digest, .. }), Some(NodeShown::File { digest: same, .. })) =
        (large.after, large.before)
    else {
        panic!("no files")
    };
    assert_eq!((mode.as_str(), &digest), ("0755", &same));
    let Some(NodeShown::File { digest, .. }) = run.after else { panic!("no file") };
    let content = blake3_of("print('changed')\n");
    assert_eq!(digest, format!("blake3:{content}"));
}

fn blake3_of(text: &str) -> String {
    let place = crate::listing::Place::new();
    place.write("x", text);
    let store = Store::new();
    store.freeze(&place, "1", &FreezeOptions::default()).unwrap();
    let manifest = fs::read_to_string(store.0.at("1/manifest")).unwrap();
    let line = manifest.lines().find(|line| line.ends_with(" x")).unwrap();
    line.split(' ').nth(4).unwrap().to_owned()
}

#[test]
fn a_long_list_is_cut_and_says_so() {
    let (outcome, listed) = compared(&two_versions(), 2);
    assert_eq!((listed.len(), outcome.truncated, outcome.changed), (2, true, 3));
}

#[test]
fn a_damaged_manifest_is_refused() {
    let store = two_versions();
    let path = store.0.at("2/manifest");
    let text = fs::read_to_string(&path).unwrap().replace("run.py", "run.pz");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    fs::write(&path, text).unwrap();
    let dir = |name: &str| -> OwnedFd { File::open(store.0.at(name)).unwrap().into() };
    let options = CompareOptions { listed_max: 9 };
    let refusal =
        compare(dir("1").as_fd(), dir("2").as_fd(), &mut Vec::new(), &options).unwrap_err();
    assert_eq!(refusal.code, RefusalCode::CorruptManifest);
}

#[test]
fn a_shared_file_counts_once() {
    let store = two_versions();
    fs::create_dir_all(store.0.at("3.tmp/tree/x")).unwrap();
    let measured = measure(store.0.fd(), &mut |_| Ok(())).unwrap();
    assert_eq!(measured.trees.keys().collect::<Vec<_>>(), ["1", "2"], "and no half-done tree");
    let (first, second) = (measured.trees["1"], measured.trees["2"]);
    // The sum over inodes of both trees, counted here by other means.
    let mut inodes = std::collections::BTreeMap::new();
    for version in ["1", "2"] {
        let mut pending = vec![store.tree(version)];
        while let Some(path) = pending.pop() {
            let found = fs::symlink_metadata(&path).unwrap();
            inodes.insert(found.ino(), found.blocks() * 512);
            if found.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
    assert_eq!(measured.disk_bytes, inodes.values().sum::<u64>());
    let shared = first.disk_bytes + second.disk_bytes - measured.disk_bytes;
    assert!(shared > 0, "unchanged files are shared");
    assert_eq!(first.own_disk_bytes, first.disk_bytes - shared);
    assert_eq!(second.own_disk_bytes, second.disk_bytes - shared);
    assert!(first.bytes > 3_000_000 && first.files >= 5);
}
