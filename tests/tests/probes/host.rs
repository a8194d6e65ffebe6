//! The halves of probes that only the host can look at.

use hangar_peel::spec::{Command, Outcome, Session, Spec};
use hangar_probe::catalogue::{is_expected, probe, probes};
use hangar_runtime::ids::{AGENT_UID, BLOCK_SIZE};
use hangar_tests::host::Host;
use hangar_tests::probing::{Owner, PROGRAM, first_block, parse, prepare, run};
use hangar_tests::processes::{self, wait_for};
use hangar_tests::tree::digest;
use hangar_tests::{peel, scratch};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;

fn command(session: usize, words: &str) -> Command {
    let arguments = words.split(' ').map(str::to_owned).collect();
    Command { session, arguments, ..Command::default() }
}

fn spec(directory: &Path, sessions: Vec<Session>, commands: Vec<Command>) -> Spec {
    Spec {
        directory: directory.to_owned(),
        first_block: Some(first_block()),
        sessions,
        commands,
        ..Spec::default()
    }
}

/// P012: every probe one after the other, all on one environment.
#[test]
fn the_environment_is_the_same_after_all_probes() {
    let place = scratch();
    let environment = place.path().join("env");
    prepare(&environment, Owner::Store);
    let before = digest(&environment);
    let commands: Vec<Command> =
        probes().map(|probe| command(0, &format!("{PROGRAM} {} --seconds 1", probe.id))).collect();
    let count = commands.len();
    let session = Session { environment: Some(environment.clone()), ..Session::default() };
    let outcome = peel(&spec(place.path(), vec![session], commands));
    assert_eq!(outcome.error, None);
    let ended = outcome.commands.iter().filter(|command| command.end == "code 0").count();
    assert_eq!(ended, count, "{:?}", outcome.commands);
    assert_eq!(digest(&environment), before);
    // The comparison notices what the probes do where nothing stops them.
    for id in ["P001", "P002", "P003", "P004"] {
        let probe = probe(id).expect("known");
        let harmed = run(probe, probe.steps, Owner::Store);
        assert_ne!(harmed.trees.0, harmed.trees.1, "{id}");
    }
}

/// P043: below the floor nothing is launched, and the error says why.
#[test]
fn an_older_landlock_is_refused() {
    for abi in [0, 1] {
        let place = scratch();
        let spec = spec(place.path(), vec![Session::default()], Vec::new());
        let outcome = peel(&Spec { landlock_abi: Some(abi), ..spec });
        let error = outcome.error.clone().expect("the launch is refused");
        assert!(error.contains("Landlock") && error.contains("2 or newer"), "{error}");
        assert!(outcome.inits.is_empty() && outcome.left.is_empty(), "{outcome:?}");
    }
}

/// Two sessions on one environment, looked at while they run.
fn two_sessions<T>(look: impl FnOnce(&[u32; 2]) -> T) -> (T, Outcome, tempfile::TempDir) {
    let place = scratch();
    let environment = place.path().join("env");
    prepare(&environment, Owner::Store);
    let session = Session { environment: Some(environment), ..Session::default() };
    let shell = |session, script: &str| Command {
        arguments: vec!["sh".into(), "-c".into(), script.into()],
        ..command(session, "")
    };
    let hold = |session| Command {
        background: true,
        ..shell(session, &format!("{PROGRAM} P025; exec sleep 400"))
    };
    let wait =
        shell(0, "for _ in $(seq 2000); do [ -e /workspace/seen ] && exit; sleep 0.05; done");
    let commands = vec![hold(0), hold(1), wait];
    let spec = spec(place.path(), vec![session; 2], commands);
    let base = |index: u16| {
        let number = std::num::NonZeroU16::new(first_block() + index).expect("not 0");
        hangar_runtime::ids::Range::default().block(number).base
    };
    let bases = [base(0), base(1)];
    let running = std::thread::spawn(move || peel(&spec));
    let looked = look(&bases);
    std::fs::write(place.path().join("session-0/workdir/seen"), "").expect("write");
    (looked, running.join().expect("the sessions end"), place)
}

/// P060: a socket without a name in the file system is not on the host either.
#[test]
fn the_host_reaches_no_abstract_socket_of_a_session() {
    let place = scratch();
    let key = i32::from(first_block());
    let name = hangar_probe::cross::abstract_name(key);
    let connect = || {
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        UnixStream::connect_addr(&address).map(drop).map_err(|error| error.kind())
    };
    let environment = place.path().join("env");
    prepare(&environment, Owner::Store);
    let session = Session { environment: Some(environment), ..Session::default() };
    let words = format!("{PROGRAM} P060 --role holder --seconds 30 --key {key}");
    let hold = Command { background: true, ..command(0, &words) };
    let wait = "echo > /workspace/held; for _ in $(seq 600); do [ -e /workspace/seen ] && exit; sleep 0.05; done";
    let wait =
        Command { arguments: vec!["sh".into(), "-c".into(), wait.into()], ..Command::default() };
    let spec = spec(place.path(), vec![session], vec![hold, wait]);
    let running = std::thread::spawn(move || peel(&spec));
    let workdir = place.path().join("session-0/workdir");
    wait_for("the holder", || workdir.join("held").exists().then_some(()));
    let connected = connect();
    std::fs::write(workdir.join("seen"), "").expect("write");
    let outcome = running.join().expect("the session ends");
    assert_eq!(outcome.error, None);
    let held = parse("P060", &outcome.commands[0].stdout);
    assert_eq!(held.get("listen").map(String::as_str), Some("ok"), "{held:?}");
    assert_eq!(connected, Err(std::io::ErrorKind::ConnectionRefused));
    // With a listener of its own the host does connect.
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    let _listener = UnixListener::bind_addr(&address).expect("bind");
    assert_eq!(connect(), Ok(()));
}

/// P025: processes and files of a session have ids of its block, and no others.
#[test]
fn what_a_session_makes_belongs_to_its_block() {
    let (_, outcome, place) = two_sessions(|bases| {
        for base in bases {
            let own = || {
                processes::all().into_iter().filter(|p| p.uid >= *base && p.uid - base < BLOCK_SIZE)
            };
            let agent = wait_for("a command", || own().find(|p| p.command.contains("sleep 400")));
            assert_eq!(agent.uid, base + AGENT_UID);
            let init = own().find(processes::Process::is_first).expect("init");
            assert_eq!(init.uid, *base);
            assert!(own().all(|p| p.uid == *base || p.uid == base + AGENT_UID));
        }
    });
    assert_eq!(outcome.error, None);
    for (index, base) in outcome.blocks.iter().enumerate() {
        let path = place.path().join(format!("session-{index}/workdir/owned"));
        let made = std::fs::metadata(path).expect("the probe made it");
        assert_eq!((made.uid(), made.gid()), (base + AGENT_UID, base + AGENT_UID));
    }
}

/// P055: the id maps of two sessions, as the host's kernel has them, name no id twice.
#[test]
fn two_sessions_have_no_id_in_common() {
    let (maps, outcome, _place) = two_sessions(|bases| {
        bases.map(|base| {
            let init = wait_for("init in its last namespaces", || {
                let ready = |p: &processes::Process| p.command.contains("sleep 400");
                let uid = base + AGENT_UID;
                processes::all().into_iter().find(|p| p.uid == uid && ready(p))
            });
            ["uid_map", "gid_map"].map(|name| host_ids(init.pid, name))
        })
    });
    assert_eq!(outcome.error, None);
    for (base, maps) in outcome.blocks.iter().zip(&maps) {
        for map in maps {
            for (first, last) in map {
                assert!(first >= base && last - base < BLOCK_SIZE, "{first} to {last}");
            }
        }
    }
    assert!(outcome.blocks[0].abs_diff(outcome.blocks[1]) >= BLOCK_SIZE);
}

/// The first and the last host id of each line of an id map.
fn host_ids(pid: i32, name: &str) -> Vec<(u32, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{name}")).expect("it runs");
    let lines: Vec<(u32, u32)> = text
        .lines()
        .map(|line| {
            let words: Vec<u32> = line.split_whitespace().flat_map(str::parse).collect();
            (words[1], words[1] + words[2] - 1)
        })
        .collect();
    assert!(!lines.is_empty());
    lines
}

/// What a hostile tree has where mounts go: links to a canary, to nowhere, up and around.
fn hostile(tree: &Path, canary: &Path) {
    std::fs::create_dir_all(tree).expect("mkdir");
    let targets = [
        ("proc", canary.to_path_buf()),
        ("dev", canary.to_path_buf()),
        ("sys", "/sys".into()),
        ("tmp", canary.to_path_buf()),
        ("run", "../../../../../../../../run".into()),
        ("etc", "/nowhere/at/all".into()),
        ("usr", "usr".into()),
        ("workspace", canary.to_path_buf()),
        ("home", "/root".into()),
        ("opt", "./../.././../..".into()),
        ("env", canary.to_path_buf()),
        ("root", "/".into()),
    ];
    for (name, target) in targets {
        symlink(target, tree.join(name)).expect("symlink");
    }
    for (directory, name) in [("a/etc", "resolv.conf"), ("a/dev", "null"), ("a/proc", "sys")] {
        std::fs::create_dir_all(tree.join(directory)).expect("mkdir");
        symlink(canary, tree.join(directory).join(name)).expect("symlink");
    }
}

/// P064: whatever the trees contain, mounts land on the session's own directories.
#[test]
fn hostile_trees_decide_about_no_mount() {
    for staging in [false, true] {
        let place = scratch();
        let canary = place.path().join("canary");
        std::fs::create_dir(&canary).expect("mkdir");
        std::fs::write(canary.join("file"), "untouched").expect("write");
        let environment = place.path().join("env");
        prepare(&environment, Owner::Store);
        for tree in ["env", "session-0/workdir", "session-0/home", "session-0/source", "packs"] {
            hostile(&place.path().join(tree), &canary);
        }
        let before = (digest(&canary), Host::look());
        let session = Session { environment: Some(environment), staging, ..Session::default() };
        let commands = vec![command(0, &format!("{PROGRAM} P064"))];
        let outcome = peel(&spec(place.path(), vec![session], commands));
        assert_eq!(outcome.error, None);
        let results = parse("P064", &outcome.commands[0].stdout);
        let probe = probe("P064").expect("known");
        for attempt in probe.attempts {
            let got = results.get(attempt.name).map_or("not tried", String::as_str);
            assert!(is_expected(attempt.expected, got), "{}: {got}", attempt.name);
        }
        let known = ["/", "/tmp", "/run", "/usr", "/etc", "/opt", "/env", "/workspace", "/home"];
        for mount in &outcome.proofs[0].mounts {
            let top = mount.target.split('/').take(2).collect::<Vec<_>>().join("/");
            let own = known.contains(&mount.target.as_str())
                || known.contains(&top.as_str())
                || ["/dev", "/proc"].contains(&top.as_str());
            assert!(own, "a mount at {}", mount.target);
        }
        let after = Host::look();
        assert_eq!((digest(&canary), &after.settings), (before.0, &before.1.settings));
        let place = place.path().to_string_lossy().into_owned();
        assert!(!after.mounts.iter().any(|mount| mount.contains(&place)));
    }
}
