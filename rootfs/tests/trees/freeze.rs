//! Freezing: what a build left behind becomes immutable, in inodes of its own.

use crate::listing::{Place, tree};
use hangar_rootfs::freeze::freeze;
use hangar_rootfs::job::{FreezeOptions, FreezeOutcome, Limits, Refusal, RefusalCode};
use hangar_rootfs::manifest::{Manifest, Node};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat};
use std::fs::{self, File, FileTimes, Permissions};
use std::io::{BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// A store with frozen trees, as the warden makes it.
pub struct Store(pub Place);

impl Store {
    pub fn new() -> Self {
        Self(Place::new())
    }

    /// Freezes a tree under a name.
    pub fn freeze(
        &self,
        input: &Place,
        name: &str,
        options: &FreezeOptions,
    ) -> Result<FreezeOutcome, Refusal> {
        fs::create_dir(self.0.at(name)).unwrap();
        let destination: OwnedFd = File::open(self.0.at(name)).unwrap().into();
        let store = self.0.fd();
        freeze(input.fd(), store, destination.as_fd(), options, &mut |_| Ok(()))
    }

    pub fn tree(&self, name: &str) -> PathBuf {
        self.0.at(name).join("tree")
    }

    pub fn manifest(&self, name: &str) -> Manifest {
        let file = File::open(self.0.at(name).join("manifest")).unwrap();
        Manifest::read_from(&mut BufReader::new(file)).unwrap().0
    }
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

fn set_mtime(path: &Path, seconds: u64, nanoseconds: u32) {
    let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// A small project with all that a real one has.
pub fn project() -> Place {
    let place = Place::new();
    place.write("run.py", "print('hello')\n");
    place.write(".venv/bin/tool", "#!/bin/sh\n");
    chmod(&place.at(".venv/bin/tool"), 0o775);
    symlink("/usr/bin/python3.11", place.at(".venv/bin/python")).unwrap();
    place.write("node_modules/a/index.js", "shared");
    fs::create_dir(place.at("node_modules/b")).unwrap();
    let first = place.at("node_modules/a/index.js");
    fs::hard_link(first, place.at("node_modules/b/index.js")).unwrap();
    place.write(b"odd \xff\n%/x", "odd");
    place.write("large", (0..3_000_000u32).map(|n| (n / 7) as u8).collect::<Vec<_>>());
    fs::create_dir(place.at("empty")).unwrap();
    set_mtime(&place.at("run.py"), 1_500_000_000, 123_456_789);
    set_mtime(&place.at("empty"), 1_400_000_000, 1);
    place
}

#[test]
fn a_frozen_tree_is_the_tree_without_write_bits() {
    let (input, store) = (project(), Store::new());
    let outcome = store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    assert_eq!(tree(&store.tree("1")), tree(&input.path()));
    assert_eq!((outcome.files, outcome.symlinks, outcome.linked_files), (6, 1, 0));
    assert_eq!(outcome.directories, 8);

    let manifest = store.manifest("1");
    assert_eq!(manifest.entries().len(), 6 + 1 + 8);
    for entry in manifest.entries() {
        let relative = std::str::from_utf8(&entry.path).map(ToOwned::to_owned);
        let path = match &relative {
            Ok(path) => store.tree("1").join(path),
            Err(_) => continue,
        };
        let metadata = fs::symlink_metadata(&path).unwrap();
        let mtime = (metadata.mtime(), metadata.mtime_nsec() as u32);
        assert_eq!((entry.mtime.seconds, entry.mtime.nanoseconds), mtime, "{path:?}");
        match &entry.node {
            Node::Directory { mode } => {
                assert_eq!((metadata.mode() & 0o7777, *mode), (0o755, 0o755), "{path:?}");
            }
            Node::File { mode, size, digest } => {
                assert_eq!(metadata.mode() & 0o7777, *mode, "{path:?}");
                assert_eq!(metadata.size(), *size, "{path:?}");
                let content = fs::read(&path).unwrap();
                assert_eq!(blake3::hash(&content).as_bytes(), digest, "{path:?}");
            }
            Node::Symlink { target } => {
                let found = fs::read_link(&path).unwrap();
                assert_eq!(found.as_os_str().as_encoded_bytes(), &**target);
            }
        }
    }
    let mode = |path: &str| fs::metadata(store.tree("1").join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("run.py"), mode(".venv/bin/tool")), (0o644, 0o755));
    let mtime = fs::metadata(store.tree("1").join("empty")).unwrap();
    assert_eq!((mtime.mtime(), mtime.mtime_nsec()), (1_400_000_000, 1));
}

#[test]
fn the_same_tree_has_the_same_digest() {
    let (input, store) = (project(), Store::new());
    let first = store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    let second = store.freeze(&input, "2", &FreezeOptions::default()).unwrap();
    assert_eq!(first, second);
    let read = |name| fs::read(store.0.at(name)).unwrap();
    assert_eq!(read("1/manifest"), read("2/manifest"));
}

/// The reason for new inodes: a descriptor that a process of the build kept open (F1).
#[test]
fn what_holds_the_old_file_open_cannot_write_into_the_frozen_one() {
    let (input, store) = (project(), Store::new());
    let mut kept = File::options().append(true).open(input.at("run.py")).unwrap();
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    kept.write_all(b"evil").unwrap();
    assert_eq!(fs::read(store.tree("1").join("run.py")).unwrap(), b"print('hello')\n");
    for path in tree(&input.path()).keys() {
        let Ok(path) = std::str::from_utf8(path) else { continue };
        assert_ne!(inode(&input.at(path)), inode(&store.tree("1").join(path)), "{path}");
    }
}

#[test]
fn hard_links_of_the_tree_stay_among_themselves() {
    let (input, store) = (project(), Store::new());
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    let first = fs::metadata(store.tree("1").join("node_modules/a/index.js")).unwrap();
    let second = fs::metadata(store.tree("1").join("node_modules/b/index.js")).unwrap();
    assert_eq!((first.ino(), first.nlink()), (second.ino(), 2));
    assert_eq!(fs::metadata(input.at("node_modules/a/index.js")).unwrap().nlink(), 2);
}

/// A link out of the tree is one more name of a file that is not part of it.
#[test]
fn a_hard_link_from_outside_is_copied() {
    let (input, store, other) = (project(), Store::new(), Place::new());
    other.write("secret", "mine");
    fs::hard_link(other.at("secret"), input.at("secret")).unwrap();
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    assert_eq!(fs::metadata(store.tree("1").join("secret")).unwrap().nlink(), 1);
    assert_eq!(fs::metadata(other.at("secret")).unwrap().nlink(), 2);
}

#[test]
fn special_bits_and_attributes_are_left_behind() {
    let (input, store) = (project(), Store::new());
    chmod(&input.at("run.py"), 0o6754);
    chmod(&input.at("empty"), 0o1777);
    let attribute = rustix::fs::setxattr(input.at("large"), "user.x", b"1", XattrFlags::empty());
    attribute.unwrap();
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    let mode = |path: &str| fs::metadata(store.tree("1").join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode("run.py"), mode("empty")), (0o755, 0o755));
    let mut names = [0; 100];
    let count = rustix::fs::listxattr(store.tree("1").join("large"), &mut names[..]);
    assert_eq!(count, Ok(0));
}

#[test]
fn special_files_are_refused_by_name_and_never_opened() {
    let node =
        |kind, device| move |path: &Path| mknodat(CWD, path, kind, Mode::RUSR, device).unwrap();
    type Make = Box<dyn Fn(&Path)>;
    let table: Vec<(&str, Make)> = vec![
        ("a named pipe", Box::new(node(FileType::Fifo, 0))),
        ("a socket", Box::new(|path| drop(UnixListener::bind(path).unwrap()))),
        // The null device and one that no driver has.
        ("a device", Box::new(node(FileType::CharacterDevice, makedev(1, 3)))),
        ("a device", Box::new(node(FileType::BlockDevice, makedev(250, 250)))),
    ];
    for (what, make) in table {
        let (input, store) = (project(), Store::new());
        make(&input.at("empty/it"));
        let refusal = store.freeze(&input, "1", &FreezeOptions::default()).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::SpecialFile);
        let expected =
            format!("\"empty/it\" is {what}; only files, directories and symlinks can be frozen");
        assert_eq!(refusal.message, expected);
        assert!(!store.0.at("1/manifest").exists());
    }
}

#[test]
fn links_to_directories_are_kept_and_not_walked() {
    let (input, store) = (Place::new(), Store::new());
    symlink("/etc", input.at("etc")).unwrap();
    symlink("..", input.at("up")).unwrap();
    symlink("loop", input.at("loop")).unwrap();
    let outcome = store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    assert_eq!((outcome.files, outcome.directories, outcome.symlinks), (0, 1, 3));
    assert_eq!(tree(&store.tree("1")), tree(&input.path()));
}

#[test]
fn unchanged_files_are_linked_and_changed_ones_are_not() {
    let (input, store) = (project(), Store::new());
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    // Same size and time, other content: only the digest tells.
    let (mtime, content) = (fs::metadata(input.at("large")).unwrap().modified().unwrap(), {
        let mut content = fs::read(input.at("large")).unwrap();
        content[1_500_000] ^= 1;
        content
    });
    fs::write(input.at("large"), &content).unwrap();
    let large = File::options().write(true).open(input.at("large")).unwrap();
    large.set_modified(mtime).unwrap();
    chmod(&input.at(".venv/bin/tool"), 0o644);
    input.write("new", "new");
    let references = vec!["1/tree".to_owned()];
    let options = FreezeOptions { references, ..FreezeOptions::default() };
    let outcome = store.freeze(&input, "2", &options).unwrap();

    let same =
        |path: &str| inode(&store.tree("1").join(path)) == inode(&store.tree("2").join(path));
    assert!(same("run.py") && same("node_modules/a/index.js"));
    assert!(same("node_modules/b/index.js"), "the second name of a linked file");
    assert!(!same("large") && !same(".venv/bin/tool"));
    assert_eq!(fs::read(store.tree("2").join("large")).unwrap(), content);
    assert_eq!(tree(&store.tree("2")), tree(&input.path()));
    // run.py, the shared index.js by its first name, and the odd one.
    assert_eq!((outcome.linked_files, outcome.files), (3, 7));
    assert_eq!(outcome.linked_bytes, 15 + 6 + 3);
}

/// A file of a reference that is not what its manifest says is not passed on.
#[test]
fn a_damaged_reference_is_not_linked_from() {
    let (input, store) = (project(), Store::new());
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    chmod(&store.tree("1").join("run.py"), 0o644);
    fs::write(store.tree("1").join("run.py"), "evil").unwrap();
    fs::create_dir(store.0.at("3")).unwrap();
    let references = ["1/tree", "2/tree", "3/tree"].map(str::to_owned).to_vec();
    let options = FreezeOptions { references, ..FreezeOptions::default() };
    let outcome = store.freeze(&input, "4", &options).unwrap();
    assert_eq!(fs::read(store.tree("4").join("run.py")).unwrap(), b"print('hello')\n");
    assert_eq!(outcome.linked_files, 4);
    let unusable: Vec<_> = outcome.unusable_references.keys().map(String::as_str).collect();
    assert_eq!(unusable, ["2/tree", "3/tree"]);
}

#[test]
fn references_are_names_of_the_store() {
    let (input, store) = (project(), Store::new());
    for (at, reference) in ["", "1", "/tree", "../x/tree", "a/b/tree", "../tree"].iter().enumerate()
    {
        let references = vec![(*reference).to_owned()];
        let options = FreezeOptions { references, ..FreezeOptions::default() };
        let refusal = store.freeze(&input, &at.to_string(), &options).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::InvalidOptions, "{reference}");
    }
}

#[test]
fn only_the_entries_that_are_asked_for_are_frozen() {
    let (input, store) = (project(), Store::new());
    let entries = Some(vec![".venv".to_owned(), "node_modules".to_owned(), "missing".to_owned()]);
    let options = FreezeOptions { entries, ..FreezeOptions::default() };
    store.freeze(&input, "1", &options).unwrap();
    let expected: Vec<_> = tree(&input.path())
        .into_iter()
        .filter(|(path, _)| path.starts_with(b".venv") || path.starts_with(b"node_modules"))
        .collect();
    assert_eq!(tree(&store.tree("1")).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn trees_beyond_the_limits_are_refused() {
    let input = project();
    let mut deep = input.at("deep");
    fs::create_dir(&deep).unwrap();
    for _ in 0..20 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    let limits = Limits::default();
    let table = [
        (Limits { file_bytes_max: 2_999_999, ..limits }, RefusalCode::FileTooLarge, "\"large\""),
        (Limits { bytes_max: 3_000_010, ..limits }, RefusalCode::TreeTooLarge, "3000010"),
        (Limits { entries_max: 8, ..limits }, RefusalCode::TooManyEntries, "8"),
        (Limits { depth_max: 15, ..limits }, RefusalCode::PathTooDeep, "15"),
        (Limits { path_bytes_max: 30, ..limits }, RefusalCode::PathTooLong, "30"),
    ];
    for (limits, code, says) in table {
        let store = Store::new();
        let options = FreezeOptions { limits, ..FreezeOptions::default() };
        let refusal = store.freeze(&input, "1", &options).unwrap_err();
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.message.contains(says), "{refusal}");
        assert!(refusal.limit.is_some(), "{refusal}");
    }
    Store::new().freeze(&input, "1", &FreezeOptions::default()).unwrap();
}

#[test]
fn holes_stay_holes() {
    let (input, store) = (Place::new(), Store::new());
    let mut file = File::create(input.at("holes")).unwrap();
    file.write_all(b"begin").unwrap();
    file.set_len(1 << 30).unwrap();
    store.freeze(&input, "1", &FreezeOptions::default()).unwrap();
    let frozen = fs::metadata(store.tree("1").join("holes")).unwrap();
    assert_eq!(frozen.size(), 1 << 30);
    assert!(frozen.blocks() * 512 < 4 << 20, "{} blocks", frozen.blocks());
}

/// Nothing writes while a tree is frozen; if something does, the freeze says so.
#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    let input = Place::new();
    input.write("busy", vec![7; 64 << 20]);
    let is_done = AtomicBool::new(false);
    let refusal = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = File::options().append(true).open(input.at("busy")).unwrap();
            while !is_done.load(Ordering::Relaxed) {
                file.write_all(b"x").unwrap();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // The writer may not get its turn during a short read.
        let refusal = (0..100)
            .find_map(|_| Store::new().freeze(&input, "1", &FreezeOptions::default()).err());
        is_done.store(true, Ordering::Relaxed);
        refusal
    });
    let refusal = refusal.expect("a hundred freezes saw no change");
    assert_eq!(refusal.code, RefusalCode::ChangedWhileRead);
    assert_eq!(refusal.message, "\"busy\" changed while it was read");
}

/// Nothing runs in a build that is frozen. Should something do so, a directory that turns into a
/// link out of the tree and back is frozen as the one or the other, or refused; never followed.
#[test]
fn a_directory_that_turns_into_a_link_is_never_followed() {
    let (input, other) = (Place::in_memory(), Place::in_memory());
    input.write("d/x", "inside");
    other.write("x", "secret");
    symlink(other.path(), input.at("l")).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                let swap = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(input.fd(), "d", input.fd(), "l", swap).unwrap();
            }
        });
        for _ in 0..300 {
            let store = Store(Place::in_memory());
            match store.freeze(&input, "1", &FreezeOptions::default()) {
                Ok(_) => {}
                Err(refusal) => assert_eq!(refusal.code, RefusalCode::Failed, "{refusal}"),
            }
            let frozen = store.0.lines();
            assert!(!frozen.iter().any(|line| line.contains("secret")), "{frozen:?}");
        }
        is_done.store(true, Ordering::Relaxed);
    });
}
