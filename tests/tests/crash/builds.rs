//! Builds that are cut off: they fail with a reason, block nothing, and leave nothing half-done.

use hangar_tests::crash::{Ground, Victim, archive, begin_build, ended_build};
use hangar_tests::daemon::Daemon;
use hangar_tests::http::{Body, ask, try_ask};
use hangar_tests::processes::{Process, signal, wait_for};
use rustix::process::Signal;
use serde_json::json;

/// Waits as long as there is a file that says so.
const SETUP: &str = "echo begun; while [ -e wait ]; do sleep 0.05; done; echo built > built.txt\n";

/// An environment with many small files and a script.
fn project(ground: &Ground, daemon: &Daemon, files: &[(&str, &str)]) -> String {
    let id = daemon.environment("cut", files);
    let tar = archive(ground.place(), 2000);
    let body = Body { kind: "application/x-tar", bytes: &tar };
    let path = format!("/v1/environments/{id}/import");
    let answer = try_ask(&daemon.socket(), "POST", &path, body).unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    id
}

/// A build that did not get to its end, and what the server says about it.
fn assert_failed(daemon: &Daemon, id: &str, number: u64, victim: Victim) {
    let build = ended_build(daemon, id, number);
    assert_eq!(build["status"], "failed", "{victim:?}: {build}");
    let reason = build["error"].as_str().unwrap();
    let expected = match victim {
        Victim::Api => "the server stopped while the build ran",
        // Which of them stored it: the server before its end, or the next one.
        Victim::Warden if reason.contains("the session service is not there") => return,
        Victim::Warden if reason.contains("the build's session ended") => return,
        Victim::Warden => "the server stopped while the build ran",
        Victim::Init => "the build's session ended",
        Victim::Worker => "freezing the version",
    };
    assert!(reason.contains(expected), "{victim:?}: {reason}");
}

/// The next build is not blocked, and what it makes is whole.
fn assert_builds(daemon: &Daemon, id: &str) -> u64 {
    let number = begin_build(daemon, id);
    let build = ended_build(daemon, id, number);
    assert_eq!(build["status"], "ready", "{build}\n{}", daemon.log());
    assert_whole(daemon, id, number);
    number
}

fn assert_whole(daemon: &Daemon, id: &str, number: u64) {
    let verified =
        daemon.post(&format!("/v1/hangar/environments/{id}/versions/{number}/verify"), &json!({}));
    assert_eq!(verified["intact"], true, "{verified}");
    let session = daemon.session(&json!({ "environment": id, "version": number }));
    let ended = session.bash("cat /env/cut/built.txt; find /env/cut/many -type f | wc -l");
    assert_eq!(ended.out(), "built\n2000\n", "{}", ended.err());
    session.delete();
}

/// Kills at one point of a build, for each victim in turn, and builds again at the end.
fn cut_off(
    ground: &Ground,
    mut daemon: Daemon,
    id: &str,
    victims: &[Victim],
    point: impl Fn(&Daemon, u64) -> Process,
) -> Daemon {
    for victim in victims {
        let number = begin_build(&daemon, id);
        let busy = daemon.ask("POST", &format!("/v1/environments/{id}/build"), &json!({}));
        assert_eq!(busy.status, 409, "one build at a time");
        let held = point(&daemon, number);
        let process = match victim {
            Victim::Init => {
                let session = ground.build_session(&daemon).unwrap();
                ground.init(&session).unwrap()
            }
            _ => held,
        };
        daemon = ground.kill(daemon, *victim, Some(&process));
        assert_failed(&daemon, id, number, *victim);
        let shown = daemon.get(&format!("/v1/environments/{id}"));
        assert_ne!(shown["version"], number, "a failed build is not active");
    }
    daemon
}

/// Stops the process of the build's session that does the work.
fn hold_command(ground: &Ground, daemon: &Daemon) -> Process {
    let command =
        wait_for("a command of the build", || ground.command(&ground.build_session(daemon)?));
    command.stop();
    command
}

fn wait_for_log(daemon: &Daemon, id: &str, number: u64, line: &str) {
    let path = format!("/v1/hangar/environments/{id}/builds/{number}/log");
    wait_for("a line of the log", || {
        let log = daemon.ask("GET", &path, &json!({})).body;
        String::from_utf8_lossy(&log).contains(line).then_some(())
    });
}

#[test]
fn while_the_files_are_copied() {
    let ground = Ground::default();
    let daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP)]);
    let victims = [Victim::Api, Victim::Warden, Victim::Init];
    let daemon = cut_off(&ground, daemon, &id, &victims, |daemon, number| {
        wait_for_log(daemon, &id, number, "copying the files of the project\n");
        let command = hold_command(&ground, daemon);
        let build = daemon.get(&format!("/v1/environments/{id}/builds/{number}"));
        assert_eq!(build["stage"], "copying files");
        command
    });
    assert_builds(&daemon, &id);
    daemon.stop();
}

#[test]
fn while_packages_are_installed() {
    let ground = Ground::default();
    let daemon = ground.start();
    let files = [("requirements.txt", ""), ("setup.sh", SETUP)];
    let id = project(&ground, &daemon, &files);
    let victims = [Victim::Api, Victim::Warden, Victim::Init];
    let daemon = cut_off(&ground, daemon, &id, &victims, |daemon, number| {
        let path = format!("/v1/environments/{id}/builds/{number}");
        wait_for("the installer", || {
            let build = daemon.get(&path);
            assert_eq!(build["status"], "building", "{build}");
            (build["stage"] == "python packages").then_some(())
        });
        hold_command(&ground, daemon)
    });
    assert_builds(&daemon, &id);
    daemon.stop();
}

#[test]
fn while_the_project_sets_itself_up() {
    let ground = Ground::default();
    let daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP), ("wait", "")]);
    let victims = [Victim::Api, Victim::Warden, Victim::Init];
    let daemon = cut_off(&ground, daemon, &id, &victims, |daemon, number| {
        wait_for_log(daemon, &id, number, "begun\n");
        ground.command(&ground.build_session(daemon).unwrap()).unwrap()
    });
    daemon.delete(&format!("/v1/environments/{id}/files/wait"));
    assert_builds(&daemon, &id);
    daemon.stop();
}

#[test]
fn while_the_installed_packages_are_kept() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let files = [("requirements.txt", ""), ("setup.sh", SETUP)];
    let id = project(&ground, &daemon, &files);
    let keeping = |_: &Daemon, _: u64| {
        let worker = wait_for("the packages to be kept", || ground.worker("freeze", ".tmp"));
        worker.stop();
        assert!(worker.command.contains("freeze dependencies-"), "{worker:?}");
        assert!(ground.names(&format!("versions/{id}")).iter().any(|n| n.ends_with(".tmp")));
        worker
    };
    daemon = cut_off(&ground, daemon, &id, &[Victim::Api, Victim::Warden], keeping);

    // Packages that could not be kept fail no build.
    let number = begin_build(&daemon, &id);
    keeping(&daemon, number).kill();
    let build = ended_build(&daemon, &id, number);
    assert_eq!(build["status"], "ready", "{build}");
    let log = build["log"].as_str().unwrap();
    assert!(log.contains("the installed packages could not be kept"), "{log}");
    ground.check(&daemon, &[]);
    assert_whole(&daemon, &id, number);
    let kept = |ground: &Ground| {
        let names = ground.names(&format!("versions/{id}"));
        names.iter().filter(|name| name.starts_with("dependencies-")).count()
    };
    assert_eq!(kept(&ground), 0);

    assert_builds(&daemon, &id);
    assert_eq!(kept(&ground), 1);
    let number = assert_builds(&daemon, &id);
    let build = daemon.get(&format!("/v1/environments/{id}/builds/{number}"));
    let log = build["log"].as_str().unwrap();
    assert!(log.contains("taking the installed packages of an earlier build"), "{log}");
    daemon.stop();
}

/// Stops the worker that freezes a version.
fn hold_freezer(ground: &Ground, id: &str, number: u64) -> Process {
    let temporary = format!("{number}.tmp");
    let worker = wait_for("the freezer", || ground.worker("freeze", &temporary));
    worker.stop();
    assert!(ground.names(&format!("versions/{id}")).contains(&temporary));
    worker
}

#[test]
fn before_the_version_gets_its_name() {
    let ground = Ground::default();
    let daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP)]);
    let victims = [Victim::Worker, Victim::Api, Victim::Warden];
    let daemon =
        cut_off(&ground, daemon, &id, &victims, |_, number| hold_freezer(&ground, &id, number));
    assert_builds(&daemon, &id);
    daemon.stop();
}

/// Lets a version get its name while the API cannot ask for its record.
fn hold_before_the_record(ground: &Ground, daemon: &Daemon, id: &str, number: u64) -> Process {
    let worker = hold_freezer(ground, id, number);
    signal(daemon.pid(), Signal::STOP);
    worker.proceed();
    let version = ground.state().join(format!("versions/{id}/{number}"));
    wait_for("the version's name", || version.exists().then_some(()));
    assert!(!version.join("record").exists());
    worker
}

#[test]
fn after_the_version_got_its_name_and_before_its_record() {
    let ground = Ground::default();
    let daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP)]);
    let first = assert_builds(&daemon, &id);
    let victims = [Victim::Api, Victim::Warden];
    let daemon = cut_off(&ground, daemon, &id, &victims, |daemon, number| {
        hold_before_the_record(&ground, daemon, &id, number)
    });
    // The active version is the one that was.
    assert_eq!(daemon.get(&format!("/v1/environments/{id}"))["version"], first);
    assert_whole(&daemon, &id, first);
    assert_builds(&daemon, &id);
    daemon.stop();
}

#[test]
fn around_the_record() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP)]);
    for victim in [Victim::Api, Victim::Warden, Victim::Api, Victim::Warden] {
        let number = begin_build(&daemon, &id);
        let record = ground.state().join(format!("versions/{id}/{number}/record"));
        wait_for("the record", || record.exists().then_some(()));
        daemon = ground.kill(daemon, victim, None);
        // It counts from the moment the server stored it: both are right, half is not.
        let build = ended_build(&daemon, &id, number);
        if build["status"] == "ready" {
            assert_whole(&daemon, &id, number);
        } else {
            assert!(!record.exists(), "{victim:?}: {build}");
            assert_ne!(build["error"], "", "{build}");
        }
    }
    assert_builds(&daemon, &id);
    daemon.stop();
}

#[test]
fn while_a_version_is_verified() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let id = project(&ground, &daemon, &[("setup.sh", SETUP)]);
    let number = assert_builds(&daemon, &id);
    let path = format!("/v1/hangar/environments/{id}/versions/{number}/verify");
    for victim in [Victim::Worker, Victim::Api, Victim::Warden] {
        let asked = ground.ask_later("POST", &path, "application/json", b"{}".to_vec());
        let worker = wait_for("the worker", || ground.worker("verify", ""));
        worker.stop();
        daemon = ground.kill(daemon, victim, Some(&worker));
        if let Ok(answer) = asked.join().unwrap() {
            assert!(answer.status >= 500, "{victim:?}: {answer:?}");
        }
        assert_whole(&daemon, &id, number);
    }
    let _seen = ask(&daemon.socket(), "GET", "/v1/uhp", b"");
    daemon.stop();
}
