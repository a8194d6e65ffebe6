//! A repository is imported whole or not at all, whoever dies while git fetches, while it makes a tar
//! of the commit, and while the worker reads that.

use hangar_tests::crash::{Ground, Victim};
use hangar_tests::daemon::Daemon;
use hangar_tests::processes::{self, Process, wait_for};
use hangar_tests::repositories::Repositories;
use serde_json::{Value, json};

/// How long the one large file is; every stage takes a while with it.
const LARGE: usize = 128 << 20;

struct Import<'a> {
    ground: &'a Ground,
    path: String,
    id: String,
}

impl Import<'_> {
    /// Begins an import, holds it at one point, and kills; the source is as it was.
    fn is_cut_off(
        &self,
        mut daemon: Daemon,
        url: &str,
        victims: &[Victim],
        hold: impl Fn(&Daemon) -> Process,
    ) -> Daemon {
        let before = listing(&daemon, &self.id);
        let body = json!({ "git": { "url": url }, "replace": true }).to_string().into_bytes();
        for victim in victims {
            let asked = self.ground.ask_later("POST", &self.path, "application/json", body.clone());
            let held = hold(&daemon);
            let process = match victim {
                Victim::Init => {
                    let session = self.ground.build_session(&daemon).expect("it has a session");
                    self.ground.init(&session).expect("it runs")
                }
                _ => held,
            };
            daemon = self.ground.kill(daemon, *victim, Some(&process));
            match (victim, asked.join().unwrap()) {
                (Victim::Api, answer) => assert!(answer.is_err(), "{answer:?}"),
                (_, Ok(answer)) => {
                    assert!(answer.status >= 500, "{victim:?}: {answer:?}");
                    assert_ne!(answer.json()["error"]["message"], Value::Null);
                }
                // The server ended with its warden before it could answer.
                (Victim::Warden, Err(_)) => {}
                (_, Err(error)) => panic!("{victim:?}: {error}"),
            }
            assert_eq!(listing(&daemon, &self.id), before, "{victim:?}");
            assert_eq!(imported(&daemon, &self.id), Value::Null, "{victim:?}");
        }
        daemon
    }
}

fn listing(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/v1/environments/{id}/files"))["entries"].clone()
}

/// Which commit the source is, as the environment says.
fn imported(daemon: &Daemon, id: &str) -> Value {
    daemon.get(&format!("/v1/environments/{id}"))["imported"].clone()
}

/// Stops a process of the import's session whose command line has these words.
fn held(ground: &Ground, daemon: &Daemon, words: &str) -> Process {
    let found = wait_for("git", || {
        ground.build_session(daemon)?;
        processes::with_command(|command| command.contains(words)).next()
    });
    found.stop();
    found
}

#[test]
fn a_repository_is_there_whole_or_not_at_all() {
    let ground = Ground::default();
    let repositories = Repositories::start(&ground.place().path("repositories"));
    let project = repositories.create("project");
    let commit = project.commit(&[("large", &vec![0; LARGE]), ("src/run.py", b"print(1)\n")]);
    let mut daemon = ground.start();
    let id = daemon.environment("source", &[("kept", "acknowledged\n")]);
    let path = format!("/v1/environments/{id}/import");
    let import = Import { ground: &ground, path: path.clone(), id: id.clone() };
    let url = repositories.url("project.git");
    let victims = [Victim::Api, Victim::Warden, Victim::Init];

    // The server of this repository says nothing, so git waits.
    let silent = repositories.url("silent/project.git");
    daemon = import
        .is_cut_off(daemon, &silent, &victims, |daemon| held(&ground, daemon, "ls-remote http"));
    daemon = import
        .is_cut_off(daemon, &url, &victims, |daemon| held(&ground, daemon, "archive --format=tar"));
    let victims = [Victim::Worker, Victim::Api, Victim::Warden];
    daemon = import.is_cut_off(daemon, &url, &victims, |_| {
        let worker = wait_for("the import", || ground.worker("import", ""));
        worker.stop();
        assert!(ground.names("api/sources").contains(&format!("{id}.import")), "it is too fast");
        worker
    });

    let body = json!({ "git": { "url": url }, "replace": true });
    let answer = daemon.post(&path, &body);
    assert_eq!((&answer["git"]["commit"], &answer["count"]), (&json!(commit), &json!(2)));
    let after = listing(&daemon, &id);
    // Acknowledged is kept, whoever dies next.
    for victim in [Victim::Api, Victim::Warden] {
        daemon = ground.kill(daemon, victim, None);
        assert_eq!(listing(&daemon, &id), after);
        assert_eq!(imported(&daemon, &id)["commit"], commit);
    }
    daemon.stop();
}
