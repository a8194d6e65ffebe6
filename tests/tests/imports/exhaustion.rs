//! Imports when the disk has no room or no inodes left: they are refused as a whole, the source stays
//! as it was, and the next one that fits works.

use crate::ground::{Before, Ground, assert_lines};
use hangar_archives::{Tar, gzip};
use std::fs;

const UNAVAILABLE: &str = "environment_unavailable";

/// Bytes that are worth a tenth of their size when they are compressed.
fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = vec![0; length];
    for block in bytes.chunks_mut(100) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let length = block.len().min(8);
        block[..length].copy_from_slice(&state.to_le_bytes()[..length]);
    }
    bytes
}

/// Nothing is left of the import, and a project that fits can be imported.
fn assert_recovered(ground: &Ground) {
    assert!(!ground.source().with_extension("import").exists(), "half an import is left");
    let names: Vec<_> = fs::read_dir(ground.source().parent().unwrap()).unwrap().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    let uploads = ground.source().parent().unwrap().with_file_name("uploads");
    let names = fs::read_dir(uploads).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name != "kept").collect();
    assert!(left.is_empty(), "an upload is left: {left:?}");
    let answer = ground.send(Tar::new().file("fits", "x"), Before::Kept);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    assert_lines(ground, &["f fits x", "f kept as it was"]);
}

#[test]
fn an_import_that_does_not_fit_on_the_disk_changes_nothing() {
    let ground = Ground::on_a_disk(64 << 20, 4000);
    ground.takes(Tar::new().file("kept", "as it was"));
    // The upload fits, and what it unpacks to does not.
    let mut tar = Tar::new();
    for number in 0..5u64 {
        tar = tar.file(format!("big/{number}"), content(16 << 20, number));
    }
    let says = ["the disk is full", "\"big/"];
    ground.refuses(gzip(&tar.finish()), 503, UNAVAILABLE, &says);
    assert_recovered(&ground);
}

#[test]
fn an_upload_that_does_not_fit_on_the_disk_changes_nothing() {
    let ground = Ground::on_a_disk(64 << 20, 4000);
    ground.takes(Tar::new().file("kept", "as it was"));
    let tar = Tar::new().file("big", vec![7; 80 << 20]);
    ground.refuses(tar, 503, UNAVAILABLE, &["the disk is full; the upload could not be stored"]);
    assert_recovered(&ground);
}

#[test]
fn an_import_without_inodes_left_changes_nothing() {
    let ground = Ground::on_a_disk(128 << 20, 1500);
    ground.takes(Tar::new().file("kept", "as it was"));
    let tar = (0..2000).fold(Tar::new(), |tar, number| tar.file(format!("many/{number}"), "x"));
    ground.refuses(tar, 503, UNAVAILABLE, &["the disk is full", "\"many/"]);
    assert_recovered(&ground);
}
