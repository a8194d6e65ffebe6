//! The editable files of an environment: what was acknowledged is there, what was not is not.

use hangar_tests::crash::{Ground, Victim, archive};
use hangar_tests::daemon::Daemon;
use hangar_tests::http::ask;
use hangar_tests::processes::wait_for;
use serde_json::{Value, json};

const TAR: &str = "application/x-tar";

/// The regular files of a source, with their sizes.
fn files(daemon: &Daemon, id: &str) -> Vec<(String, u64)> {
    let listed = daemon.get(&format!("/v1/environments/{id}/files"));
    let entries = listed["entries"].as_array().unwrap().iter();
    let mut files: Vec<_> = entries
        .filter(|entry| entry["dir"] == false)
        .map(|entry| (entry["path"].as_str().unwrap().to_owned(), entry["bytes"].as_u64().unwrap()))
        .collect();
    files.sort();
    files
}

fn content(daemon: &Daemon, id: &str, path: &str) -> Vec<u8> {
    let answer = daemon.ask("GET", &format!("/v1/environments/{id}/files/{path}"), &json!({}));
    assert_eq!(answer.status, 200, "{path}");
    answer.body
}

#[test]
fn an_import_is_there_whole_or_not_at_all() {
    let ground = Ground::default();
    let tar = archive(ground.place(), 5000);
    let mut daemon = ground.start();
    let id = daemon.environment("source", &[("kept", "acknowledged\n")]);
    let before = vec![("kept".to_owned(), 13)];
    let path = format!("/v1/environments/{id}/import");
    for victim in [Victim::Worker, Victim::Api, Victim::Warden] {
        let import = ground.ask_later("POST", &path, TAR, tar.clone());
        let worker = wait_for("the import", || ground.worker("import", ""));
        worker.stop();
        assert!(ground.names("api/sources").contains(&format!("{id}.import")), "it is too fast");
        daemon = ground.kill(daemon, victim, Some(&worker));
        match (victim, import.join().unwrap()) {
            (Victim::Api, answer) => assert!(answer.is_err(), "{answer:?}"),
            (_, Ok(answer)) => {
                assert!(answer.status >= 500, "{victim:?}: {answer:?}");
                assert_ne!(answer.json()["error"]["message"], Value::Null);
            }
            // The server ended with its warden before it could answer.
            (Victim::Warden, Err(_)) => {}
            (_, Err(error)) => panic!("{victim:?}: {error}"),
        }
        assert_eq!(files(&daemon, &id), before, "{victim:?}");
        assert_eq!(content(&daemon, &id, "kept"), b"acknowledged\n");
    }
    let import = ground.ask_later("POST", &path, TAR, tar).join().unwrap().unwrap();
    assert_eq!(import.status, 200, "{import:?}");
    assert_eq!(import.json()["count"], 5002);
    // Acknowledged is kept, whoever dies next.
    let after = files(&daemon, &id);
    assert_eq!(after.len(), 5002);
    for victim in [Victim::Api, Victim::Warden] {
        daemon = ground.kill(daemon, victim, None);
        assert_eq!(files(&daemon, &id), after);
        assert_eq!(content(&daemon, &id, "many/12/1234"), b"1234\n");
    }
    daemon.stop();
}

#[test]
fn a_file_that_was_taken_is_there_after_the_death_of_the_api() {
    let ground = Ground::default();
    let mut daemon = ground.start();
    let id = daemon.environment("source", &[]);
    for round in 0..3 {
        for number in 0..20 {
            let path = format!("/v1/environments/{id}/files/{round}/{number}");
            let text = format!("{round} {number}\n");
            assert_eq!(ask(&daemon.socket(), "PUT", &path, text.as_bytes()).status, 200);
        }
        // One more is on its way.
        let path = format!("/v1/environments/{id}/files/{round}/last");
        let last = ground.ask_later("PUT", &path, "text/plain", vec![b'x'; 32 << 20]);
        daemon = ground.kill(daemon, Victim::Api, None);
        let taken = last.join().unwrap().is_ok();
        let there = files(&daemon, &id);
        let last = there.iter().find(|(path, _)| *path == format!("{round}/last"));
        assert!(last.is_some() || !taken);
        assert!(last.is_none_or(|(_, bytes)| *bytes == 32 << 20), "{last:?}");
        for number in 0..20 {
            let text = format!("{round} {number}\n");
            assert_eq!(content(&daemon, &id, &format!("{round}/{number}")), text.as_bytes());
        }
    }
    daemon.stop();
}
