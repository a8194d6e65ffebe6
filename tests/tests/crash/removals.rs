//! Removals that are cut off go on, and what was removed gives back what it had.

use hangar_runtime::ids::DEFAULT_RANGE_BASE;
use hangar_tests::crash::{BLOCK, Ground, Victim, begin_build, ended_build};
use hangar_tests::daemon::Daemon;
use hangar_tests::processes::{Process, below, wait_for};
use hangar_tests::session::Session;
use serde_json::json;
use std::fs;

/// A session with many files.
fn full_session(daemon: &Daemon) -> String {
    let session = daemon.session(&json!({ "network": "none" }));
    let text = "for d in $(seq 20); do mkdir $d; (cd $d && touch $(seq 100)); done";
    assert_eq!(session.bash(text).status(), "0");
    session.id
}

fn hold_remover(ground: &Ground) -> Process {
    let worker = wait_for("the removal", || ground.worker("remove", ""));
    worker.stop();
    worker
}

/// The block that the child has which waits for the next session.
fn parked_block(ground: &Ground) -> u32 {
    wait_for("a child to be parked", || {
        let parked = below(&ground.warden()).into_iter().find(Process::is_parked)?;
        (parked.uid % BLOCK == 0).then_some(parked.uid)
    })
}

/// Blocks are given from the lowest on, so as many sessions as lie below get it, and one more for
/// the parked child.
fn assert_is_given_again(ground: &Ground, daemon: &Daemon, block: u32) {
    let below = (block - DEFAULT_RANGE_BASE) / BLOCK;
    let sessions: Vec<_> =
        (0..=below).map(|_| daemon.session(&json!({ "network": "none" }))).collect();
    let blocks: Vec<_> = sessions.iter().map(|session| ground.block(&session.id)).collect();
    assert!(blocks.contains(&Some(block)), "{block} is not in {blocks:?}");
    for session in sessions {
        session.delete();
    }
    // Their removals are over before the next one is watched.
    ground.check(daemon, &[]);
}

#[test]
fn while_a_session_is_removed() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    for victim in [Victim::Worker, Victim::Api, Victim::Warden] {
        let id = full_session(&daemon);
        let block = ground.block(&id).unwrap();
        let asked = ground.ask_later("DELETE", &format!("/v1/sessions/{id}"), "", Vec::new());
        let worker = hold_remover(&ground);
        let name = format!("{id}.removing");
        assert_eq!(ground.names("sessions"), [name]);
        // Its name is gone already, and its block is still taken.
        if victim == Victim::Worker {
            let other = full_session(&daemon);
            assert_ne!(ground.block(&other), Some(block));
            assert_ne!(parked_block(&ground), block);
            worker.proceed();
            let _done = asked.join().unwrap();
            ground.check(&daemon, &[worker]);
            Session::of(&daemon, &other).delete();
            assert_is_given_again(&ground, &daemon, block);
            continue;
        }
        daemon = ground.kill(daemon, victim, Some(&worker));
        let _maybe = asked.join().unwrap();
        assert_eq!(ground.names("sessions"), [""; 0]);
        assert_is_given_again(&ground, &daemon, block);
        let gone = daemon.ask("GET", &format!("/v1/sessions/{id}"), &json!({}));
        assert_eq!(gone.status, 404);
    }
    daemon.stop();
}

#[test]
fn a_removal_whose_worker_dies_is_tried_again() {
    let ground = Ground::default();
    let daemon = ground.start();
    let id = full_session(&daemon);
    let asked = ground.ask_later("DELETE", &format!("/v1/sessions/{id}"), "", Vec::new());
    let worker = hold_remover(&ground);
    let daemon = ground.kill(daemon, Victim::Worker, Some(&worker));
    assert_eq!(asked.join().unwrap().unwrap().status, 200, "the session is gone for its owner");
    assert_eq!(ground.names("sessions"), [""; 0]);
    daemon.stop();
}

#[test]
fn while_an_environment_is_removed() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let setup = "mkdir many; cd many; for d in $(seq 20); do mkdir $d; touch $d/{1..100}; done";
    for victim in [Victim::Worker, Victim::Api, Victim::Warden] {
        let id = daemon.environment("removed", &[("setup.sh", setup)]);
        let number = begin_build(&daemon, &id);
        assert_eq!(ended_build(&daemon, &id, number)["status"], "ready");
        ground.check(&daemon, &[]);
        let asked = ground.ask_later("DELETE", &format!("/v1/environments/{id}"), "", Vec::new());
        let worker = hold_remover(&ground);
        assert!(ground.names("versions").iter().all(|name| name.ends_with(".removing")));
        daemon = ground.kill(daemon, victim, Some(&worker));
        let _maybe = asked.join().unwrap();
        for directory in ["versions", "api/sources"] {
            assert_eq!(ground.names(directory), [""; 0], "{victim:?}");
        }
        assert!(!ground.state().join("api/logs").join(&id).exists());
        let gone = daemon.ask("GET", &format!("/v1/environments/{id}"), &json!({}));
        assert_eq!(gone.status, 404);
    }
    daemon.stop();
}

#[test]
fn while_a_session_is_torn_down() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    for victim in [Victim::Api, Victim::Warden, Victim::Api, Victim::Warden] {
        let session = daemon.session(&json!({ "network": "none" }));
        let many = "echo kept > kept; for n in $(seq 100); do sleep 1000 & done; wait";
        let _running = session.start_command(&json!({ "command": ["bash", "-c", many] }));
        let id = session.id;
        wait_for("its processes", || (ground.inside(&id).len() > 100).then_some(()));
        let inside = ground.inside(&id);
        let asked = ground.ask_later("DELETE", &format!("/v1/sessions/{id}"), "", Vec::new());
        wait_for("the first to end", || {
            inside.iter().any(|process| !process.lives()).then_some(())
        });
        daemon = ground.kill(daemon, victim, None);
        let deleted = asked.join().unwrap().is_ok_and(|answer| answer.status == 200);
        assert!(inside.iter().all(|process| !process.lives()) || !deleted);
        // Gone, or as it was: then it can be deleted.
        if daemon.ask("GET", &format!("/v1/sessions/{id}"), &json!({})).status == 200 {
            assert!(!deleted);
            let kept = ground.state().join("sessions").join(&id).join("workdir/kept");
            assert_eq!(fs::read_to_string(kept).unwrap(), "kept\n");
            Session::of(&daemon, &id).delete();
        }
        ground.check(&daemon, &inside);
        assert_eq!(ground.names("sessions"), [""; 0]);
    }
    daemon.stop();
}
