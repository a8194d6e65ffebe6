//! Removing: any depth, any modes, and nothing beside it.

use crate::listing::Place;
use hangar_rootfs::job::{Refusal, RefusalCode, RemoveOutcome};
use hangar_rootfs::remove::remove_named;
use rustix::fs::{FileType, Mode, OFlags, mkdirat, mknodat, openat};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};

fn run(place: &Place, name: &str) -> Result<RemoveOutcome, Refusal> {
    let outcome = remove_named(place.fd(), name, &mut |_| Ok(()));
    place.assert_nothing_outside();
    outcome
}

#[test]
fn a_tree_goes_and_its_neighbours_stay() {
    let place = Place::new();
    place.write("tree/a/b/c", "1");
    place.write(b"tree/odd \xff\n", "2");
    place.write("neighbour/x", "stays");
    symlink("../neighbour", place.at("tree/link")).unwrap();
    symlink("../../witness", place.at("tree/a/witness")).unwrap();
    fs::hard_link(place.at("neighbour/x"), place.at("tree/linked")).unwrap();
    mknodat(rustix::fs::CWD, place.at("tree/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let outcome = run(&place, "tree").unwrap();
    assert_eq!(outcome.entries, 9);
    assert_eq!(place.lines(), ["d neighbour", "f neighbour/x stays"]);
}

#[test]
fn a_file_and_a_link_are_removed_themselves() {
    let place = Place::new();
    place.write("file", "");
    place.write("target/x", "stays");
    symlink("target", place.at("link")).unwrap();
    assert_eq!(run(&place, "file").unwrap().entries, 1);
    assert_eq!(run(&place, "link").unwrap().entries, 1);
    assert_eq!(place.lines(), ["d target", "f target/x stays"]);
}

/// Far beyond PATH_MAX, the limit on descriptors and any stack.
#[test]
fn ten_thousand_levels_are_removed() {
    let place = Place::in_memory();
    let mode = Mode::from_raw_mode(0o755);
    fs::create_dir(place.at("deep")).unwrap();
    let mut directory: OwnedFd = File::open(place.at("deep")).unwrap().into();
    for level in 0..10_000 {
        mkdirat(&directory, "d", mode).unwrap();
        if level % 100 == 0 {
            mkdirat(&directory, "beside", mode).unwrap();
            let file = openat(&directory, "file", OFlags::CREATE | OFlags::WRONLY, mode);
            file.unwrap();
        }
        directory = openat(&directory, "d", OFlags::RDONLY | OFlags::DIRECTORY, mode).unwrap();
    }
    drop(directory);
    assert_eq!(run(&place, "deep").unwrap().entries, 1 + 10_000 + 100 + 100);
    assert_eq!(place.lines(), [""; 0]);
}

#[test]
fn a_directory_that_is_called_as_a_moved_one_is_no_obstacle() {
    let place = Place::new();
    fs::create_dir_all(place.at(format!("deep/{}", ["d"; 100].join("/")))).unwrap();
    place.write("deep/.removing-1/x", "");
    fs::create_dir_all(place.at(format!("deep/.removing-2/{}", ["e"; 100].join("/")))).unwrap();
    run(&place, "deep").unwrap();
    assert_eq!(place.lines(), [""; 0]);
}

#[test]
fn wide_directories_are_removed() {
    let place = Place::in_memory();
    for n in 0..3000 {
        place.write(format!("wide/{n}/x"), "");
    }
    assert_eq!(run(&place, "wide").unwrap().entries, 6001);
}

#[test]
fn only_one_name_is_taken() {
    let place = Place::new();
    place.write("a/b", "stays");
    for name in ["", ".", "..", "a/b", "../witness", "/", "a/"] {
        assert_eq!(run(&place, name).unwrap_err().code, RefusalCode::InvalidOptions, "{name:?}");
    }
    assert_eq!(run(&place, "missing").unwrap_err().code, RefusalCode::NotFound);
    assert_eq!(place.lines(), ["d a", "f a/b stays"]);
}

/// Go's module cache and many a test leave such trees (C09). Root ignores modes, so the worker
/// does this without privileges in `worker.rs`; here it is only seen that nothing fails.
#[test]
fn modes_are_no_obstacle() {
    let place = Place::new();
    place.write("tree/closed/x", "");
    place.write("tree/read-only/y/z", "");
    for (path, mode) in [("closed", 0), ("read-only/y", 0o555), ("read-only", 0o555)] {
        let path = place.at(format!("tree/{path}"));
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    run(&place, "tree").unwrap();
    assert_eq!(place.lines(), [""; 0]);
}
