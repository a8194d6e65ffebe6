//! What an attacker changes while a session or a command starts.

use hangar_peel::spec::{Command, Session, Spec};
use hangar_probe::catalogue::{is_expected, probe};
use hangar_tests::daemon::Daemon;
use hangar_tests::probing::{Owner, PROGRAM, first_block, parse, prepare};
use hangar_tests::session::Session as Served;
use hangar_tests::{peel, scratch};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many sessions start while the tree is exchanged.
const LAUNCHES: usize = 200;

/// P065: the version's tree and a link to something else change places all the time. A session
/// gets the version or is refused, and never sees what the link leads to.
#[test]
fn no_exchange_gets_a_session_anything_but_its_version() {
    let place = scratch();
    let secret = place.path().join("secret");
    std::fs::create_dir(&secret).expect("mkdir");
    std::fs::write(secret.join("marker"), "secret of the host").expect("write");
    let daemon = Daemon::start(&place.path().join("state"));
    let id = daemon.environment("swapped", &[("marker", "version")]);
    let build = daemon.build(&id, &json!({}));
    assert_eq!(build["status"], "ready", "{build}");
    let version = daemon.state().join(format!("versions/{id}/1"));
    let pairs = [
        (version.join("tree"), version.join("evil")),
        (version.clone(), version.with_file_name("evil")),
    ];
    symlink(&secret, &pairs[0].1).expect("symlink");
    // The second link leads to a directory that looks like a version.
    let whole = place.path().join("whole");
    std::fs::create_dir(&whole).expect("mkdir");
    std::fs::copy(version.join("record"), whole.join("record")).expect("copy");
    symlink(&secret, whole.join("tree")).expect("symlink");
    symlink(&whole, &pairs[1].1).expect("symlink");
    let (mut started, mut refused) = (0, 0);
    for pair in &pairs {
        let exchange = Exchange::start(pair.clone());
        for _ in 0..LAUNCHES / pairs.len() {
            let request = json!({ "environment": id });
            let answer = daemon.ask("POST", "/v1/hangar/sessions", &request);
            if answer.status >= 300 {
                refused += 1;
                continue;
            }
            started += 1;
            let made = answer.json();
            let session = Served::of(&daemon, made["id"].as_str().expect("an id"));
            assert_eq!(session.bash("cat /env/swapped/marker").out(), "version");
            session.delete();
        }
        let exchanges = exchange.stop();
        assert!(exchanges > 1000, "only {exchanges} exchanges");
    }
    assert!(started > 0 && refused > 0, "{started} started, {refused} refused: no race");
    // Nothing is left in the way of an ordinary session.
    let session = daemon.session(&json!({ "environment": id }));
    assert_eq!(session.bash("cat /env/swapped/marker").out(), "version");
    session.delete();
    daemon.stop();
}

/// A thread that exchanges two names until it is stopped; they are as before then.
struct Exchange {
    stop: std::sync::Arc<AtomicBool>,
    count: std::sync::Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Exchange {
    fn start((one, other): (PathBuf, PathBuf)) -> Self {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let count = std::sync::Arc::new(AtomicU64::new(0));
        let (told, counted) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let exchange =
                || renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).expect("root");
            while !told.load(Ordering::Relaxed) {
                exchange();
                exchange();
                counted.fetch_add(2, Ordering::Relaxed);
            }
        });
        Self { stop, count, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread ends");
        self.count.load(Ordering::Relaxed)
    }
}

fn in_directory(directory: &str) -> Command {
    Command {
        arguments: vec![PROGRAM.into(), "P067".into()],
        directory: Some(directory.to_owned()),
        ..Command::default()
    }
}

fn session_with(place: &Path, commands: Vec<Command>) -> hangar_peel::spec::Outcome {
    let environment = place.join("env");
    prepare(&environment, Owner::Store);
    let outcome = peel(&Spec {
        directory: place.to_owned(),
        first_block: Some(first_block()),
        sessions: vec![Session { environment: Some(environment), ..Session::default() }],
        commands,
        // What a careless launcher would leave open.
        inherited: Some("/".into()),
        ..Spec::default()
    });
    assert_eq!(outcome.error, None);
    outcome
}

/// Working directories that lead through descriptors and links of the kernel: refused.
const REFUSED: [&str; 12] = [
    "/proc/self/fd/0",
    "/proc/self/fd/3",
    "/proc/self/fd/9",
    "/dev/fd/3",
    "/proc/self/root",
    "/proc/self/cwd",
    "/proc/1/root",
    "/proc/1/cwd",
    "/workspace/to-descriptor",
    "/workspace/to-root-of-init",
    "/workspace/gone",
    "",
];
/// Those that are unusual and stay inside.
const INSIDE: [&str; 6] = [
    "../../../..",
    "workspace",
    "/workspace/../..",
    "/env/probe/open/../../../../..",
    "/workspace/to-system",
    "/proc/self",
];

/// P067: a command starts inside of the session's root or not at all (CVE-2024-21626).
#[test]
fn no_working_directory_leads_out() {
    let place = scratch();
    let workdir = place.path().join("session-0/workdir");
    std::fs::create_dir_all(&workdir).expect("mkdir");
    symlink("/proc/self/fd/3", workdir.join("to-descriptor")).expect("symlink");
    symlink("/proc/1/root", workdir.join("to-root-of-init")).expect("symlink");
    symlink("/usr", workdir.join("to-system")).expect("symlink");
    let commands = REFUSED.iter().chain(&INSIDE).map(|path| in_directory(path)).collect();
    let outcome = session_with(place.path(), commands);
    let mut ended = outcome.commands.iter();
    for (path, command) in REFUSED.iter().zip(&mut ended) {
        assert!(command.end.starts_with("not-executed"), "{path}: {command:?}");
        assert_eq!(command.stdout, "", "{path}");
    }
    let probe = probe("P067").expect("known");
    for (path, command) in INSIDE.iter().zip(&mut ended) {
        assert_eq!(command.end, "code 0", "{path}: {command:?}");
        let results = parse("P067", &command.stdout);
        for attempt in probe.attempts {
            let got = results.get(attempt.name).map_or("not tried", String::as_str);
            assert!(is_expected(attempt.expected, got), "{path}: {}: {got}", attempt.name);
        }
    }
}

/// A directory that comes and goes: the command is in it, or does not start.
#[test]
fn a_vanishing_working_directory_leads_nowhere_else() {
    let place = scratch();
    let flapping = "echo here; while :; do mkdir /workspace/flap; rmdir /workspace/flap; done";
    let flapping = Command {
        arguments: vec!["sh".into(), "-c".into(), flapping.into()],
        background: true,
        ..Command::default()
    };
    let look = Command {
        arguments: vec!["readlink".into(), "/proc/self/cwd".into()],
        directory: Some("/workspace/flap".into()),
        ..Command::default()
    };
    let commands = std::iter::once(flapping).chain(std::iter::repeat_n(look, 100)).collect();
    let outcome = session_with(place.path(), commands);
    for command in &outcome.commands[1..] {
        let inside = ["/workspace/flap\n", "/workspace/flap (deleted)\n"];
        let legal = match command.end.as_str() {
            "code 0" => inside.contains(&command.stdout.as_str()),
            end => end.starts_with("not-executed") && command.stdout.is_empty(),
        };
        assert!(legal, "{command:?}");
    }
}
