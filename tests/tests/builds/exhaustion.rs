//! Builds on a disk that has no room or no inodes left: they fail with the reason, what was there
//! before goes on, and the next build that fits works.

use super::{Server, built, failed, says};
use hangar_tests::daemon::Daemon;
use hangar_tests::disk::Disk;
use hangar_tests::processes::wait_for;
use hangar_tests::run::Place;
use serde_json::json;
use std::fs;

/// No floor: what ends these builds is the disk itself.
const NO_FLOOR: &str = "[build]\ndisk_free_bytes_min = 0\ndisk_free_inodes_min = 0\n";
/// As many inodes as a build with a thousand files leaves free.
const INODES: u32 = 6000;

/// A server whose state is on a disk of its own, with a version that was built before.
struct Ground {
    // In the order in which they go away.
    server: Server,
    _disk: Disk,
    _place: Place,
    id: String,
}

impl Ground {
    fn new(config: &str, bytes: u64, inodes: u32) -> Self {
        let place = Place::default();
        let disk = Disk::mount(&place, bytes, inodes);
        fs::write(place.state().join("config.toml"), config).unwrap();
        let daemon = Daemon::start(&place.state());
        // The server's own place has nothing in it; this one has the disk.
        let server = Server { daemon, place: Place::default() };
        let (id, _) = server.ready("ground", &[("kept", "as it was\n")]);
        Self { server, _disk: disk, _place: place, id }
    }

    /// A build with this script fails; the reason and the log.
    fn fails(&self, script: &str) -> (String, String) {
        self.server.put(&self.id, "setup.sh", script.as_bytes());
        let ended = failed(&self.server.build(&self.id));
        self.goes_on();
        ended
    }

    /// Version 1 is the active one, whole, and read by sessions.
    fn goes_on(&self) {
        let shown = self.server.daemon.get(&format!("/v1/environments/{}", self.id));
        assert_eq!((&shown["version"], &shown["status"]), (&json!(1), &json!("ready")));
        let path = format!("/v1/hangar/environments/{}/versions/1/verify", self.id);
        assert_eq!(self.server.daemon.post(&path, &json!({}))["intact"], true);
        let sessions = self.server.daemon.state().join("sessions");
        let empty = || fs::read_dir(&sessions).unwrap().next().is_none().then_some(());
        wait_for("the build to be removed", empty);
        let session = self.server.session(&self.id);
        assert_eq!(says(&session, "cat /env/ground/kept"), "as it was\n");
        session.delete();
        let versions = self.server.daemon.state().join("versions").join(&self.id);
        let left = fs::read_dir(versions).unwrap().count();
        assert_eq!(left, 1, "half a version is left");
    }

    /// The next build that fits is made.
    fn recovers(&self) {
        self.server.put(&self.id, "setup.sh", b"echo fits > made\n");
        built(&self.server.build(&self.id));
        assert_eq!(says(&self.server.session(&self.id), "cat /env/ground/made"), "fits\n");
    }
}

#[test]
fn a_build_that_takes_the_last_inodes_is_ended() {
    let ground = Ground::new("[build]\ndisk_free_bytes_min = 0\n", 256 << 20, INODES);
    let (reason, log) = ground.fails("for i in {1..4900}; do : > $i; done; echo made; sleep 60\n");
    assert!(reason.starts_with("the server has only "), "{reason}\n{log}");
    assert!(reason.ends_with(" inodes left"), "{reason}");
    ground.recovers();
}

#[test]
fn a_build_that_finds_no_inode_fails() {
    let ground = Ground::new(NO_FLOOR, 256 << 20, INODES);
    let (reason, log) = ground.fails("set -e; for i in {1..9000}; do : > $i; done\n");
    assert_eq!(reason, "`setup.sh` ended with status 1", "{log}");
    assert!(log.contains("No space left on device"), "{log}");
    ground.recovers();
}

#[test]
fn a_version_that_finds_no_inode_is_none() {
    let ground = Ground::new(NO_FLOOR, 256 << 20, INODES);
    // The build fits, and what it becomes does not fit beside it.
    let (reason, _) = ground.fails("set -e; for i in {1..3500}; do : > $i; done\n");
    assert!(reason.contains("the disk is full"), "{reason}");
    ground.recovers();
}

#[test]
fn a_build_or_a_version_that_finds_no_room_fails() {
    let ground = Ground::new(NO_FLOOR, 64 << 20, INODES);
    let (reason, log) = ground.fails("head -c 100M /dev/urandom > big\n");
    assert_eq!(reason, "`setup.sh` ended with status 1", "{log}");
    // What it said about that found no room either.
    let (reason, _) = ground.fails("head -c 30M /dev/urandom > big\n");
    assert!(reason.contains("the disk is full"), "{reason}");
    // The copy of the source finds none.
    ground.server.put(&ground.id, "large", &vec![7; 36 << 20]);
    let (reason, _) = ground.fails("echo copied\n");
    assert!(reason.contains("copying files"), "{reason}");
    let path = format!("/v1/environments/{}/files/large", ground.id);
    ground.server.daemon.delete(&path);
    ground.recovers();
}
