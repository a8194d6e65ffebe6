//! A server with one environment that archives are sent to.

use hangar_archives::{Tar, Zip};
use hangar_tests::daemon::Daemon;
use hangar_tests::disk::Disk;
use hangar_tests::http::{Answer, Body, try_ask};
use hangar_tests::run::Place;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Whether what was there before goes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    Kept,
    Replaced,
}

pub struct Ground {
    // In the order in which they go away.
    pub daemon: Daemon,
    _disk: Option<Disk>,
    place: Place,
    /// The environment.
    pub id: String,
}

/// Bytes that are sent: an archive, or what is made of one.
pub trait Bytes {
    fn bytes(self) -> Vec<u8>;
}

impl Bytes for Vec<u8> {
    fn bytes(self) -> Vec<u8> {
        self
    }
}

impl Bytes for Tar {
    fn bytes(self) -> Vec<u8> {
        self.finish()
    }
}

impl Bytes for Zip {
    fn bytes(self) -> Vec<u8> {
        self.finish()
    }
}

impl Ground {
    pub fn new() -> Self {
        Self::configured("")
    }

    /// One whose operator wrote this in the configuration.
    pub fn configured(config: &str) -> Self {
        let place = Place::default();
        place.write("state/config.toml", config);
        Self::at(place, None)
    }

    /// One whose state lies on a file system of its own, with so much room and so many inodes.
    pub fn on_a_disk(bytes: u64, inodes: u32) -> Self {
        let place = Place::default();
        let disk = Disk::mount(&place, bytes, inodes);
        Self::at(place, Some(disk))
    }

    fn at(place: Place, disk: Option<Disk>) -> Self {
        let daemon = Daemon::start(&place.state());
        let id = daemon.environment("ground", &[]);
        Self { daemon, _disk: disk, place, id }
    }

    /// A file or directory beside the state.
    pub fn path(&self, below: &str) -> PathBuf {
        self.place.path(below)
    }

    pub fn send(&self, archive: impl Bytes, before: Before) -> Answer {
        let replace = if before == Before::Replaced { "?replace=1" } else { "" };
        let path = format!("/v1/environments/{}/import{replace}", self.id);
        let bytes = archive.bytes();
        let body = Body { kind: "application/octet-stream", bytes: &bytes };
        try_ask(&self.daemon.socket(), "POST", &path, body).expect("an answer")
    }

    /// An archive that has to be taken in the place of what is there; its answer.
    pub fn takes(&self, archive: impl Bytes) -> Value {
        let answer = self.send(archive, Before::Replaced);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, 200, "{text}\n{}", self.daemon.log());
        answer.json()
    }

    /// An archive that has to be refused: with this status and code, saying all of this, and
    /// without any change to what is there. The answer is the error.
    pub fn refuses(&self, archive: impl Bytes, status: u16, code: &str, says: &[&str]) -> Value {
        let before = self.lines();
        let answer = self.send(archive, Before::Replaced);
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert_eq!(answer.status, status, "{text}");
        let error = answer.json()["error"].take();
        assert_eq!(error["code"], code, "{text}");
        let message = error["message"].as_str().expect("a message");
        for part in says {
            assert!(message.contains(part), "{message} lacks {part}");
        }
        assert!(!message.contains(self.path("").to_str().expect("UTF-8")), "{message}");
        assert_eq!(self.lines(), before, "a failed import changed something");
        error
    }

    /// The listing: `d PATH` and `f PATH CONTENT`, by path; links are not listed.
    pub fn lines(&self) -> Vec<String> {
        let listed = self.daemon.get(&format!("/v1/environments/{}/files", self.id));
        let entries = listed["entries"].as_array().expect("entries");
        let mut lines: Vec<String> = entries
            .iter()
            .map(|entry| {
                let path = entry["path"].as_str().expect("a path");
                if entry["dir"] == true {
                    return format!("d {path}");
                }
                let content = self.content_at(entry["href"].as_str().expect("an address"));
                assert_eq!(entry["bytes"], content.len(), "{path}");
                format!("f {path} {}", content.escape_ascii())
            })
            .collect();
        lines.sort();
        lines
    }

    /// What is at an address relative to the environment.
    pub fn content_at(&self, href: &str) -> Vec<u8> {
        let path = format!("/v1/environments/{}/{href}", self.id);
        let answer = self.daemon.ask("GET", &path, &json!({}));
        assert_eq!(answer.status, 200, "{href}: {}", String::from_utf8_lossy(&answer.body));
        answer.body
    }

    pub fn content(&self, path: &str) -> Vec<u8> {
        self.content_at(&format!("files/{path}"))
    }

    /// Where the source is on the disk.
    pub fn source(&self) -> PathBuf {
        self.place.state().join("api/sources").join(&self.id)
    }

    /// The permission bits of a path of the source.
    pub fn mode(&self, path: &str) -> u32 {
        fs::symlink_metadata(self.source().join(path)).expect("it is there").mode() & 0o7777
    }

    /// What a link of the source points to; nothing when there is no link.
    pub fn link(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.source().join(path)).ok()?;
        Some(target.into_os_string().into_string().expect("UTF-8"))
    }

    /// Builds the source; it has to become ready.
    pub fn build(&self) {
        let build = self.daemon.build(&self.id, &json!({}));
        assert_eq!(build["status"], "ready", "{build}");
    }

    /// What a command in a session on the active version prints.
    pub fn in_session(&self, command: &str) -> String {
        let session = self.daemon.session(&json!({ "environment": self.id }));
        let ended = session.bash(command);
        let said = ended.out();
        assert_eq!(ended.status(), "0", "{said}{}", ended.err());
        session.delete();
        said
    }

    /// Removes the environment with everything in it.
    pub fn delete(self) {
        self.daemon.delete(&format!("/v1/environments/{}", self.id));
        assert!(!self.source().exists());
        self.daemon.stop();
    }
}

/// `lines` are exactly these.
#[track_caller]
pub fn assert_lines(ground: &Ground, expected: &[&str]) {
    assert_eq!(ground.lines(), expected);
}
