//! Sessions: a command outlives the API, a session outlives nothing else, its files outlive all.

use hangar_tests::crash::{Ground, Victim};
use hangar_tests::daemon::Daemon;
use hangar_tests::http::{Body, try_ask};
use hangar_tests::processes::{self, Process, below, wait_for};
use hangar_tests::remains::group_parents;
use hangar_tests::session::Session;
use serde_json::{Value, json};
use std::fs;

fn new_session(daemon: &Daemon) -> String {
    daemon.session(&json!({ "network": "none" })).id
}

/// Writes numbered lines on both streams until a file tells it to end.
const COUNT: &str = "n=0; while [ ! -e stop ]; do n=$((n + 1)); echo line $n; echo wrong $n >&2; \
                     echo $n > count; sleep 0.01; done; echo end $n; exit 7";

fn counted(ground: &Ground, session: &str) -> u64 {
    let path = ground.state().join("sessions").join(session).join("workdir/count");
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Waits until the command has written this much more.
fn wait_for_lines(ground: &Ground, session: &str, more: u64) {
    let before = counted(ground, session);
    wait_for("the command to write", || (counted(ground, session) >= before + more).then_some(()));
}

fn start(daemon: &Daemon, session: &str, text: &str) -> u64 {
    Session::of(daemon, session).start_command(&json!({ "command": ["bash", "-c", text] }))
}

fn shown(daemon: &Daemon, session: &str, command: u64) -> Value {
    daemon.get(&format!("/v1/hangar/sessions/{session}/exec/{command}"))
}

#[test]
fn a_command_goes_on_while_there_is_no_api() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = new_session(&daemon);
    let command = start(&daemon, &session, COUNT);
    wait_for_lines(&ground, &session, 3);
    let (warden, init) = (ground.warden(), ground.init(&session).unwrap());

    daemon.crash();
    wait_for_lines(&ground, &session, 50);
    assert!(warden.lives() && init.lives());

    let daemon = ground.start();
    assert_eq!(ground.warden(), warden, "the warden is adopted");
    assert_eq!(ground.init(&session).unwrap(), init, "the session is adopted");
    assert_eq!(shown(&daemon, &session, command)["status"], "running");
    let other = Session::of(&daemon, &session);
    assert_eq!(other.bash("echo beside; touch stop").out(), "beside\n");

    // Every line of before, meanwhile and after, in order and once.
    let ended = other.finish(command);
    let count = counted(&ground, &session);
    let lines = |word: &str| (1..=count).map(|n| format!("{word} {n}\n")).collect::<String>();
    assert_eq!(ended.out(), format!("{}end {count}\n", lines("line")));
    assert_eq!(ended.err(), lines("wrong"));
    assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("7", "own"));
    assert_eq!(ended.record["lost"], 0);
    ground.check(&daemon, &[]);
    other.delete();
    ground.check(&daemon, &[init]);
    daemon.stop();
}

#[test]
fn a_command_that_ends_while_there_is_no_api_ended_as_it_did() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = new_session(&daemon);
    let bytes = "head -c 3000000 /dev/zero | tr '\\0' x";
    let own = start(&daemon, &session, &format!("until [ -e go ]; do :; done; {bytes}; exit 3"));
    let killed = start(&daemon, &session, "until [ -e go ]; do :; done; kill -TERM $$");
    daemon.crash();
    let workdir = ground.state().join("sessions").join(&session).join("workdir");
    fs::write(workdir.join("go"), "").unwrap();
    wait_for("both commands to end", || (ground.inside(&session).len() == 1).then_some(()));

    let daemon = ground.start();
    let session = Session::of(&daemon, &session);
    let ended = session.finish(own);
    assert!(ended.stdout == vec![b'x'; 3_000_000], "{} bytes", ended.stdout.len());
    assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("3", "own"));
    assert_eq!(session.finish(killed).status(), "signal 15");
    for (command, field, value) in [(own, "exit_code", 3), (killed, "signal", 15)] {
        let shown = shown(&daemon, &session.id, command);
        assert_eq!((&shown["status"], &shown[field]), (&json!("ended"), &json!(value)), "{shown}");
    }
    ground.check(&daemon, &[]);
    daemon.stop();
}

#[test]
fn output_that_was_being_read_is_read_again_to_its_end() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let session = new_session(&daemon);
    let command = start(&daemon, &session, COUNT);
    let path = format!("/v1/hangar/sessions/{session}/exec/{command}/output");
    for _ in 0..3 {
        let reader = ground.ask_later("GET", &path, "text/plain", Vec::new());
        wait_for_lines(&ground, &session, 20);
        daemon = ground.kill(daemon, Victim::Api, None);
        assert!(reader.join().unwrap().is_err(), "what was cut off does not look whole");
    }
    assert_eq!(Session::of(&daemon, &session).bash("touch stop").status(), "0");
    let ended = Session::of(&daemon, &session).finish(command);
    let count = counted(&ground, &session);
    assert!(ended.out().ends_with(&format!("line {count}\nend {count}\n")));
    assert_eq!(ended.out().lines().count() as u64, count + 1);
    daemon.stop();
}

/// The session is not there any more, what it wrote is, and the next command starts it again.
fn assert_relaunches(ground: &Ground, daemon: &Daemon, session: &str, old: &[Process]) {
    assert!(old.iter().all(|process| !process.lives()));
    let again = Session::of(daemon, session);
    let ended = again.bash("cat count kept; cat ~/home; ls /tmp; id -u");
    assert!(ended.out().ends_with("kept\nhome\n1000\n"), "{} {}", ended.out(), ended.err());
    assert!(ground.init(session).is_some_and(|init| !old.contains(&init)));
    ground.check(daemon, old);
}

const PREPARE: &str = "echo kept > kept; echo home > ~/home; touch /tmp/gone";

#[test]
fn the_death_of_the_warden_ends_sessions_and_keeps_their_files() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = new_session(&daemon);
    assert_eq!(Session::of(&daemon, &session).bash(PREPARE).status(), "0");
    let done = start(&daemon, &session, "echo done; exit 4");
    assert_eq!(Session::of(&daemon, &session).finish(done).status(), "4");
    let running = start(&daemon, &session, COUNT);
    wait_for_lines(&ground, &session, 10);
    let inside = ground.inside(&session);
    assert!(inside.len() >= 2);

    let reader = {
        let path = format!("/v1/hangar/sessions/{session}/exec/{running}/output");
        ground.ask_later("GET", &path, "text/plain", Vec::new())
    };
    ground.warden().kill();
    wait_for("every process of the session to end", || {
        inside.iter().all(|process| !process.lives()).then_some(())
    });
    // Who reads the output learns that it ended, and the server ends with a reason.
    let answer = reader.join().unwrap().expect("the end is told");
    assert!(String::from_utf8_lossy(&answer.body).contains("session_ended"));
    let log = ground.state().with_file_name("server.log");
    assert!(!daemon.ended().success());
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("the warden ended") && log.contains("start the server again"), "{log}");

    let daemon = ground.start();
    let ended = Session::of(&daemon, &session).finish(running);
    assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("signal 9", "session_ended"));
    // All but the last words, which init had not read yet.
    let out = ended.out();
    let said: Vec<&str> = out.lines().collect();
    let counted: Vec<String> = (1..=said.len()).map(|number| format!("line {number}")).collect();
    assert_eq!(said, counted);
    assert!(!said.is_empty());
    let shown_now = shown(&daemon, &session, running);
    assert_eq!(
        (&shown_now["status"], &shown_now["cause"]),
        (&json!("ended"), &json!("session_ended"))
    );
    // What ended before is as it was.
    let before = Session::of(&daemon, &session).finish(done);
    assert_eq!((before.out().as_str(), before.status().as_str()), ("done\n", "4"));
    assert_eq!(daemon.get(&format!("/v1/sessions/{session}"))["status"], "stopped");
    assert_relaunches(&ground, &daemon, &session, &inside);
    daemon.stop();
}

#[test]
fn the_death_of_an_init_ends_its_session_and_no_other() {
    let ground = Ground::default();
    let daemon = ground.start();
    let (session, other) = (new_session(&daemon), new_session(&daemon));
    assert_eq!(Session::of(&daemon, &session).bash(PREPARE).status(), "0");
    let running = start(&daemon, &session, COUNT);
    let beside = start(&daemon, &other, COUNT);
    wait_for_lines(&ground, &session, 10);
    let inside = ground.inside(&session);
    let daemon = ground.kill(daemon, Victim::Init, inside.first());
    let ended = Session::of(&daemon, &session).finish(running);
    assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("signal 9", "session_ended"));
    assert!(ended.out().starts_with("line 1\nline 2\n"));
    wait_for("the end to be stored", || {
        (shown(&daemon, &session, running)["cause"] == "session_ended").then_some(())
    });
    assert_relaunches(&ground, &daemon, &session, &inside);
    wait_for_lines(&ground, &other, 3);
    assert_eq!(shown(&daemon, &other, beside)["status"], "running");
    daemon.stop();
}

/// The child that waits for the next session: an init that has not locked itself in yet.
fn parked(ground: &Ground) -> Process {
    wait_for("a child to be parked", || {
        let mut children = below(&ground.warden()).into_iter();
        children.find(|process| process.is_parked() && process.command == "hangar-init")
    })
}

/// Waits until a launch has come to the child that was parked: its group is limited then.
fn wait_for_launch(ground: &Ground, child: &Process) {
    let group = child.cgroups.lines().find_map(|line| line.rsplit_once("/hsess-"));
    let group = format!("hsess-{}", group.expect("it is in a group").1);
    wait_for("the launch", || {
        let files = group_parents(&ground.state()).into_iter();
        let mut limits =
            files.filter_map(|p| fs::read_to_string(p.join(&group).join("pids.max")).ok());
        limits.any(|limit| limit.trim() != "max").then_some(())
    });
}

#[test]
fn while_a_session_is_launched() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let create = |ground: &Ground| {
        let body = br#"{"network": "none"}"#.to_vec();
        ground.ask_later("POST", "/v1/hangar/sessions", "application/json", body)
    };
    // The child of the launch dies under it.
    let child = parked(&ground);
    child.stop();
    let asked = create(&ground);
    wait_for_launch(&ground, &child);
    child.kill();
    let answer = asked.join().unwrap().unwrap();
    assert!(answer.status >= 500, "{answer:?}");
    assert_eq!(daemon.get("/v1/hangar/sessions")["sessions"], json!([]));
    wait_for("its directory to go", || {
        let body = Body { kind: "application/json", bytes: br#"{"network": "none"}"# };
        let made = try_ask(&daemon.socket(), "POST", "/v1/hangar/sessions", body).unwrap();
        assert_eq!(made.status, 200, "{made:?}");
        daemon.delete(&format!("/v1/sessions/{}", made.json()["id"].as_str().unwrap()));
        ground.names("sessions").is_empty().then_some(())
    });
    ground.check(&daemon, &[child]);

    // It died before: the launch does without.
    let child = parked(&ground);
    child.kill();
    let session = new_session(&daemon);
    assert_eq!(Session::of(&daemon, &session).bash("echo here").out(), "here\n");
    Session::of(&daemon, &session).delete();

    // The warden dies.
    let child = parked(&ground);
    child.stop();
    let asked = create(&ground);
    wait_for_launch(&ground, &child);
    daemon = ground.kill(daemon, Victim::Warden, None);
    assert!(asked.join().unwrap().map_or(true, |answer| answer.status >= 500));

    // The API dies, and what it asked for is done; nobody is told, but it is in the list.
    let child = parked(&ground);
    child.stop();
    let asked = create(&ground);
    wait_for_launch(&ground, &child);
    daemon.crash();
    assert!(asked.join().unwrap().is_err());
    child.proceed();
    let daemon = ground.start();
    ground.check(&daemon, &[]);
    let listed = daemon.get("/v1/hangar/sessions");
    for session in listed["sessions"].as_array().unwrap() {
        let session = Session::of(&daemon, session["id"].as_str().unwrap());
        assert_eq!(session.bash("echo here").out(), "here\n");
        session.delete();
    }
    ground.check(&daemon, &[child]);
    assert_eq!(ground.names("sessions"), [""; 0]);
    daemon.stop();
}

#[test]
fn the_egress_proxy_comes_back() {
    let ground = Ground::default();
    let daemon = ground.start();
    let session = daemon.session(&json!({ "network": "egress" }));
    // A private address is refused, and by nobody but the proxy.
    let ask = "exec 3<>/dev/tcp/127.0.0.1/3128; \
               printf 'CONNECT 10.0.0.1:443 HTTP/1.1\\r\\nHost: 10.0.0.1:443\\r\\n\\r\\n' >&3; \
               head -n 1 <&3";
    let refused = session.bash(ask).out();
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let mut before = ground.egress().unwrap();
    for _ in 0..2 {
        before.kill();
        let again = wait_for("another proxy", || ground.egress().filter(|now| *now != before));
        // Its listener was there all the time: what is asked meanwhile waits.
        assert_eq!(session.bash(ask).out(), refused);
        ground.check(&daemon, &[before]);
        before = again;
    }
    // The API's death is nothing to it, the warden's is its own.
    let id = session.id.clone();
    daemon.crash();
    let daemon = ground.start();
    assert_eq!(Session::of(&daemon, &id).bash(ask).out(), refused);
    assert_eq!(ground.egress(), Some(before.clone()));
    let daemon = ground.kill(daemon, Victim::Warden, None);
    assert!(!before.lives());
    assert_eq!(Session::of(&daemon, &id).bash(ask).out(), refused);
    daemon.stop();
    assert!(processes::warden(&ground.state()).is_none());
}
