//! Servers: one for each state directory, with a warden of the same build, gone when told.

use hangar_runtime::wire::warden::BUILD_ID;
use hangar_tests::crash::{Ground, Victim};
use hangar_tests::processes::{Process, below, signal, wait_for};
use hangar_tests::program;
use hangar_tests::remains::{group_parents, remains};
use hangar_tests::run::{stderr, stdout};
use hangar_tests::session::Session;
use rustix::process::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A server that is not expected to come up.
fn serve(ground: &Ground) -> Output {
    ground.place().hangar(["serve"]).output().unwrap()
}

#[test]
fn a_signal_ends_everything() {
    for number in [Signal::TERM, Signal::INT] {
        let ground = Ground::default();
        let daemon = ground.start();
        let session = daemon.session(&json!({ "network": "egress" }));
        let stubborn = "trap '' TERM INT HUP; (setsid sleep 1000 &); echo up; sleep 1000";
        let command = session.start_command(&json!({ "command": ["bash", "-c", stubborn] }));
        let id = session.id;
        wait_for("its processes", || (ground.inside(&id).len() >= 3).then_some(()));
        let warden = ground.warden();
        let mut all = below(&warden);
        all.push(warden);
        signal(daemon.pid(), number);
        assert!(daemon.ended().success());
        assert!(all.iter().all(|process| !process.lives()), "{all:#?}");
        assert_eq!(group_parents(&ground.state()), [""; 0].map(PathBuf::from));
        assert_eq!(ground.names("sessions"), [id.as_str()]);

        // The session is stored, its command has a cause.
        let daemon = ground.start();
        let ended = Session::of(&daemon, &id).finish(command);
        assert_eq!((ended.out().as_str(), ended.cause().as_str()), ("up\n", "session_ended"));
        ground.check(&daemon, &all);
        daemon.stop();
    }
}

#[test]
fn a_state_directory_has_one_server() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = daemon.session(&json!({ "network": "none" }));
    let refused = serve(&ground);
    assert_eq!((refused.status.success(), stdout(&refused).as_str()), (false, ""));
    let said = stderr(&refused);
    assert!(said.contains("another `hangar serve` uses this state directory"), "{said}");
    // The first one has not noticed.
    assert_eq!(session.bash("echo here").out(), "here\n");
    drop(session);
    ground.check(&daemon, &[]);
    daemon.stop();
}

#[test]
fn a_signal_while_it_starts_ends_it_too() {
    let ground = Ground::default();
    for pause in [0, 10, 20, 40, 80] {
        let mut server = ground.place().hangar(["serve"]).stderr(Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(server.id()).unwrap();
        wait_for("its program", || Process::read(pid)?.command.contains("serve").then_some(()));
        std::thread::sleep(Duration::from_millis(pause));
        signal(pid, Signal::TERM);
        let _status = server.wait().unwrap();
        assert_eq!(remains(&ground.state()), [""; 0]);
    }
}

#[test]
fn a_server_that_cannot_come_up_leaves_no_warden() {
    let ground = Ground::default();
    ground.start().stop();
    // The journal could bring it back.
    for name in ground.names("api").iter().filter(|name| name.starts_with("db.sqlite")) {
        fs::remove_file(ground.state().join("api").join(name)).unwrap();
    }
    fs::write(ground.state().join("api/db.sqlite"), "no database").unwrap();
    let refused = serve(&ground);
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("opening the database failed"), "{}", stderr(&refused));
    assert_eq!(remains(&ground.state()), [""; 0]);
    // `hangar run` is told the same, and leaves as little.
    ground.place().write("project/x", "");
    let refused = ground.place().run(&[], "project", &["echo", "not reached"]);
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""));
    assert!(stderr(&refused).contains("opening the database failed"), "{}", stderr(&refused));
    assert_eq!(remains(&ground.state()), [""; 0]);
}

/// The warden of this build with another build's name in it.
fn warden_of_another_build(ground: &Ground) -> PathBuf {
    let mut bytes = fs::read(program("hangar-warden")).unwrap();
    let other = BUILD_ID.replace(|c: char| c.is_ascii_hexdigit() && !c.is_ascii_digit(), "0");
    assert_ne!(other, BUILD_ID);
    let places: Vec<usize> = bytes
        .windows(BUILD_ID.len())
        .enumerate()
        .filter(|(_, window)| *window == BUILD_ID.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert!(!places.is_empty(), "the program names its build");
    for at in places {
        bytes[at..at + BUILD_ID.len()].copy_from_slice(other.as_bytes());
    }
    let path = ground.place().path("hangar-warden");
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_warden_of_another_build_is_refused_with_the_way_out() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = daemon.session(&json!({ "network": "none" }));
    assert_eq!(session.bash("echo kept > kept").status(), "0");
    let id = session.id;
    daemon.stop();

    let mut other = Command::new(warden_of_another_build(&ground))
        .arg("--state-dir")
        .arg(ground.state())
        .args(["--range-base", "1879048192"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = i32::try_from(other.id()).unwrap();
    let parked = wait_for("the other warden", || {
        let warden = Process::read(pid)?;
        ground.state().join("run/warden.sock").exists().then_some(())?;
        below(&warden).first().cloned()
    });
    for _ in 0..2 {
        let refused = serve(&ground);
        assert!(!refused.status.success());
        let said = stderr(&refused);
        assert!(said.contains("a warden of another build runs on this state directory"), "{said}");
        assert!(said.contains(&format!("`sudo kill {pid}`")), "{said}");
        assert!(said.contains(BUILD_ID), "{said}");
        assert!(parked.lives(), "nothing was done to it");
    }
    // `hangar run` passes it on.
    ground.place().write("project/x", "");
    let refused = ground.place().run(&[], "project", &["echo", "not reached"]);
    assert_eq!((refused.status.code(), stdout(&refused).as_str()), (Some(125), ""));
    assert!(stderr(&refused).contains(&format!("`sudo kill {pid}`")), "{}", stderr(&refused));

    signal(pid, Signal::TERM);
    assert!(other.wait().unwrap().success());
    let daemon = ground.start();
    assert_eq!(Session::of(&daemon, &id).bash("cat kept").out(), "kept\n");
    ground.check(&daemon, &[parked]);
    daemon.stop();
}

#[test]
fn deaths_one_after_the_other() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let session = daemon.session(&json!({ "network": "none" })).id;
    let order = [Victim::Api, Victim::Warden, Victim::Api, Victim::Init, Victim::Warden];
    for (number, victim) in order.into_iter().enumerate() {
        let text = format!("echo {number} >> log; cat log");
        let log = Session::of(&daemon, &session).bash(&text).out();
        let expected: String = (0..=number).map(|number| format!("{number}\n")).collect();
        assert_eq!(log, expected, "{victim:?}");
        let init = ground.init(&session);
        daemon = ground.kill(daemon, victim, init.as_ref());
    }
    // Both at once.
    let before = [ground.warden()];
    daemon.crash();
    before[0].kill();
    let daemon = ground.start();
    ground.check(&daemon, &before);
    assert_eq!(Session::of(&daemon, &session).bash("wc -l < log").out(), "5\n");
    daemon.stop();
}

#[test]
fn the_ids_are_those_of_the_configuration_and_stay_so() {
    let ground = Ground::default();
    let write = |base: &str| {
        ground.place().write("state/config.toml", &format!("[warden]\nrange_base = {base}\n"));
    };
    write("2013265920");
    let daemon = ground.start();
    let session = daemon.session(&json!({ "network": "none" }));
    assert_eq!(session.bash("id -u; echo mine > kept").out(), "1000\n");
    let owner = |path: &str| fs::metadata(ground.state().join(path)).unwrap().uid();
    let workdir = format!("sessions/{}/workdir/kept", session.id);
    assert_eq!((owner("api"), owner(&workdir)), (2_013_265_921, 2_013_331_456 + 1000));
    drop(session);
    daemon.stop();

    for (base, why) in [
        ("1879048192", "the state directory was made with 2013265920, not with 1879048192"),
        ("2013265921", "is no multiple of 65536"),
        ("1048576", "is among the ids of containers"),
    ] {
        write(base);
        let refused = serve(&ground);
        assert!(!refused.status.success());
        assert!(stderr(&refused).contains(why), "{}", stderr(&refused));
    }
    write("2013265920");
    let daemon = ground.start();
    assert_eq!(owner(&workdir), 2_013_332_456);
    daemon.stop();
}
