//! What is fuzzed, and replayed by `rootfs/tests/trees/fuzz.rs`.
#![allow(dead_code, reason = "each program uses one of them")]

use hangar_rootfs::import::import as import_upload;
use hangar_rootfs::job::{ImportOptions, Limits, RefusalCode};
use hangar_rootfs::names::{escape, parts_of, unescape};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;

/// Imports an upload into a directory beside a witness: whatever is in it, nothing panics, no call
/// fails for a reason that is not the upload's, and nothing happens outside.
pub fn import(bytes: &[u8]) {
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let root = place.path().join("root");
    std::fs::create_dir(&root).expect("mkdir");
    std::fs::write(place.path().join("witness"), "untouched").expect("write");
    let mut upload = tempfile::tempfile_in("/dev/shm").expect("a file");
    upload.write_all(bytes).expect("write");
    let limits = Limits {
        bytes_max: 1 << 20,
        file_bytes_max: 1 << 20,
        entries_max: 200,
        depth_max: 16,
        path_bytes_max: 512,
    };
    let options = ImportOptions { limits, ..ImportOptions::default() };
    let out = File::open(&root).expect("open");
    match import_upload(&upload, out.as_fd(), &options, &mut |_| Ok(())) {
        Ok(outcome) => assert!(outcome.bytes <= 1 << 20 && outcome.written <= 200, "{outcome:?}"),
        Err(refusal) => assert!(refusal.code != RefusalCode::Failed, "{refusal}"),
    }
    let beside = std::fs::read_dir(place.path()).expect("list").count();
    assert_eq!(beside, 2, "something landed outside");
    let witness = std::fs::read(place.path().join("witness")).expect("read");
    assert_eq!(witness, b"untouched");
}

/// Takes a name apart.
pub fn name(bytes: &[u8]) {
    if let Ok(parts) = parts_of(bytes, &Limits::default()) {
        assert!(parts.iter().all(|part| !part.is_empty() && *part != b"." && *part != b".."));
    }
    if !bytes.contains(&0) {
        assert_eq!(unescape(escape(bytes).as_bytes()).as_deref(), Some(bytes));
    }
}
