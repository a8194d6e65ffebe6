//! The worker as the warden starts it: a root of its own, a socket, one job.
//!
//! These tests need root, to make mounts and to change the root directory.

use crate::freeze::{Store, project};
use crate::listing::{Place, tree};
use hangar_archives::Tar;
use hangar_rootfs::job::{self, Refusal, RefusalCode};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use serde_json::{Value, json};
use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

const WORKER: &str = env!("CARGO_BIN_EXE_hangar-worker");

/// Mounts a read-only root with the given directories, and runs the worker in it with the socket, which
/// comes as standard input, on 3 and the upload, which comes as standard output, on 4.
const START: &str = r#"
set -eu
root=$1 worker=$2 user=$3; shift 3
mount -t tmpfs tmpfs "$root"
for library in /usr /lib /lib64; do mkdir "$root$library"; mount --rbind "$library" "$root$library"; done
while [ "$1" != -- ]; do mkdir -p "$root/$1"; mount --bind "$2" "$root/$1"; shift 2; done
shift
touch "$root/worker"; mount --bind "$worker" "$root/worker"
mount -o remount,bind,ro "$root"
umask 077
exec chroot "$root" /usr/bin/setpriv --reuid "$user" --regid "$user" --clear-groups \
    --inh-caps=-all --bounding-set=-all /worker "$@" 3<&0 4<&1 0</dev/null 1>/dev/null
"#;

/// How the worker ended.
struct Ended {
    /// 'D' or 'R'; nothing when there was no answer.
    first: Option<u8>,
    answer: Value,
    code: Option<i32>,
    progress: usize,
}

struct Job<'a> {
    arguments: &'a [&'a str],
    options: Value,
    directories: Vec<(&'a str, &'a Path)>,
    upload: Option<&'a [u8]>,
    user: u32,
}

impl Job<'_> {
    fn run(&self) -> Ended {
        let root = tempfile::tempdir_in("/var/tmp").unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let options = serde_json::to_vec(&self.options).unwrap();
        rustix::net::send(&ours, &options, SendFlags::empty()).unwrap();
        let upload: OwnedFd = match self.upload {
            Some(bytes) => hangar_archives::upload(bytes).into(),
            None => File::open("/dev/null").unwrap().into(),
        };
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", START, "start"]);
        command.arg(root.path()).arg(WORKER).arg(self.user.to_string());
        for (name, path) in &self.directories {
            command.arg(name).arg(path);
        }
        command.arg("--").args(self.arguments);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::from(upload)).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        drop(command);
        let mut ended = Ended { first: None, answer: Value::Null, code: None, progress: 0 };
        let mut datagram = vec![0; job::DATAGRAM_BYTES_MAX];
        loop {
            let (_, length) =
                rustix::net::recv(&ours, &mut datagram[..], RecvFlags::empty()).unwrap();
            match datagram[..length].split_first() {
                None => break,
                Some((&job::PROGRESS, _)) => ended.progress += 1,
                Some((first, json)) => {
                    assert_eq!(ended.first, None, "a second answer");
                    ended.first = Some(*first);
                    ended.answer = serde_json::from_slice(json).unwrap();
                }
            }
        }
        ended.code = child.wait().unwrap().code();
        ended
    }
}

#[test]
fn an_upload_is_imported() {
    let out = Place::new();
    let tar = Tar::new().file("p/a", "1").symlink("p/b", "/etc/passwd").finish();
    let ended = Job {
        arguments: &["import"],
        options: json!({"limits": {"bytes_max": 1000}}),
        directories: vec![("out", &out.path())],
        upload: Some(&tar),
        user: 0,
    }
    .run();
    assert_eq!((ended.first, ended.code), (Some(job::DONE), Some(0)), "{}", ended.answer);
    assert_eq!(out.lines(), ["f a 1"]);
    assert_eq!(ended.answer["written"], 1);
    assert_eq!(ended.answer["skipped_reasons"], json!({"absolute_link": 1}));
    assert_eq!(ended.answer["wrapper_stripped"], "p");
}

#[test]
fn a_refusal_names_the_member() {
    let out = Place::new();
    let tar = Tar::new().file("big", "12345").finish();
    let ended = Job {
        arguments: &["import"],
        options: json!({"limits": {"file_bytes_max": 4}}),
        directories: vec![("out", &out.path())],
        upload: Some(&tar),
        user: 0,
    }
    .run();
    assert_eq!((ended.first, ended.code), (Some(job::REFUSED), Some(1)));
    let refusal: Refusal = serde_json::from_value(ended.answer).unwrap();
    assert_eq!((refusal.code, refusal.limit), (RefusalCode::FileTooLarge, Some(4)));
    assert_eq!(refusal.message, "the file \"big\" has 5 bytes; 4 are allowed");
}

#[test]
fn a_tree_is_frozen_verified_and_removed() {
    let (input, store) = (project(), Store::new());
    fs::create_dir(store.0.at("1.tmp")).unwrap();
    let path = store.0.path();
    let freeze = Job {
        arguments: &["freeze", "1.tmp"],
        options: json!({"references": [], "entries": null}),
        directories: vec![("in", &input.path()), ("store", &path)],
        upload: None,
        user: 0,
    }
    .run();
    assert_eq!(freeze.first, Some(job::DONE), "{}", freeze.answer);
    assert_eq!(tree(&store.tree("1.tmp")), tree(&input.path()));

    let version = store.0.at("1.tmp");
    let verify = Job {
        arguments: &["verify"],
        options: json!({}),
        directories: vec![("in", &version)],
        upload: None,
        user: 0,
    }
    .run();
    assert_eq!(verify.answer["mismatch_count"], 0, "{}", verify.answer);
    assert_eq!(verify.answer["root_digest"], freeze.answer["root_digest"]);

    let remove = Job {
        arguments: &["remove", "1.tmp"],
        options: json!({}),
        directories: vec![("out", &path)],
        upload: None,
        user: 0,
    }
    .run();
    assert_eq!(remove.first, Some(job::DONE), "{}", remove.answer);
    assert_eq!(store.0.lines(), [""; 0]);
}

/// C09: a tree whose directories nobody may read or write, deleted by its owner, who is no more
/// than that.
#[test]
fn its_owner_removes_a_tree_of_any_modes() {
    const OWNER: u32 = 1_879_100_000;
    let place = Place::new();
    place.write("tree/closed/below/x", "");
    place.write("tree/read-only/y", "");
    fs::create_dir_all(place.at(format!("tree/{}", ["d"; 100].join("/")))).unwrap();
    let own = |path: &Path, mode| {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
        if fs::metadata(path).unwrap().is_dir() {
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
    };
    for path in tree(&place.at("tree")).keys().rev() {
        let path = place.at("tree").join(std::str::from_utf8(path).unwrap());
        own(&path, if path.ends_with("read-only") { 0o555 } else { 0 });
    }
    own(&place.at("tree"), 0);
    own(&place.path(), 0o755);
    let path = place.path();
    let ended = Job {
        arguments: &["remove", "tree"],
        options: json!({}),
        directories: vec![("out", &path)],
        upload: None,
        user: OWNER,
    }
    .run();
    assert_eq!(ended.first, Some(job::DONE), "{}", ended.answer);
    assert_eq!(ended.answer["entries"], 1 + 3 + 2 + 100);
    assert_eq!(place.lines(), [""; 0]);
}

#[test]
fn what_is_mounted_is_emptied_and_what_is_mounted_within_is_not_touched() {
    let (out, mounted, within) = (Place::new(), Place::new(), Place::new());
    fs::create_dir(out.at("name")).unwrap();
    mounted.write("a/b", "");
    let directories =
        [("out", out.path()), ("out/name", mounted.path()), ("out/name/a", within.path())];
    within.write("x", "stays");
    let run = |count: usize| {
        Job {
            arguments: &["remove", "name"],
            options: json!({}),
            directories: directories[..count].iter().map(|(n, p)| (*n, p.as_path())).collect(),
            upload: None,
            user: 0,
        }
        .run()
    };
    let nested = run(3);
    assert_eq!(nested.first, Some(job::REFUSED));
    assert_eq!(nested.answer["code"], "mount_in_tree", "{}", nested.answer);
    assert_eq!(within.lines(), ["f x stays"]);

    let plain = run(2);
    assert_eq!(plain.first, Some(job::DONE), "{}", plain.answer);
    assert_eq!((mounted.lines(), out.lines()), (vec![], vec!["d name".to_owned()]));
}

#[test]
fn a_mount_in_a_tree_is_not_frozen() {
    let (input, store, other) = (project(), Store::new(), Place::new());
    other.write("secret", "of the host");
    fs::create_dir(store.0.at("1.tmp")).unwrap();
    let ended = Job {
        arguments: &["freeze", "1.tmp"],
        options: json!({}),
        directories: vec![
            ("in", &input.path()),
            ("in/empty", &other.path()),
            ("store", &store.0.path()),
        ],
        upload: None,
        user: 0,
    }
    .run();
    assert_eq!(ended.answer["code"], "mount_in_tree", "{}", ended.answer);
    assert_eq!(ended.answer["message"], "the directory \"empty\" is a mount");
}

#[test]
fn jobs_that_make_no_sense_are_refused() {
    let out = Place::new();
    let path = out.path();
    for (arguments, options) in [
        (&["import"][..], json!({"limit": 1})),
        (&["import"], json!("none")),
        (&["remove"], json!({})),
        (&["remove", ".."], json!({})),
        (&["unpack"], json!({})),
        (&[], json!({})),
    ] {
        let directories = vec![("out", path.as_path())];
        let job = Job { arguments, options, directories, upload: None, user: 0 };
        let ended = job.run();
        assert_eq!(ended.answer["code"], "invalid_options", "{arguments:?}");
        assert_eq!((ended.first, ended.code), (Some(job::REFUSED), Some(1)));
    }
    out.assert_nothing_outside();
}

/// The worker's mask must not depend on what the warden was started with.
#[test]
fn directories_have_their_mode_under_any_umask() {
    let out = Place::new();
    let tar = Tar::new().file("a/b", "").directory("c").finish();
    let ended = Job {
        arguments: &["import"],
        options: json!({"wrapper": "keep"}),
        directories: vec![("out", &out.path())],
        upload: Some(&tar),
        user: 0,
    }
    .run();
    assert_eq!(ended.first, Some(job::DONE));
    for path in ["a", "c"] {
        assert_eq!(fs::metadata(out.at(path)).unwrap().mode() & 0o7777, 0o755);
    }
}
