//! What ends a build: its owner, its limits, a proxy that is gone. Each says why.

use super::{Server, failed};
use hangar_tests::processes::{self, wait_for, warden};
use hangar_tests::run::stdout;
use serde_json::{Value, json};
use std::fs;

/// Starts a build and waits until its log has a line.
fn started(server: &Server, name: &str, script: &str, line: &str) -> String {
    let id = server.declaring(name, &[("setup.sh", script)], json!({}));
    server.daemon.post(&format!("/v1/environments/{id}/build"), &json!({}));
    wait_for("the build's line", || {
        let build = server.daemon.get(&format!("/v1/environments/{id}/builds/1"));
        build["log"].as_str().unwrap().contains(line).then_some(())
    });
    id
}

fn nothing_is_left(server: &Server) {
    let sessions = server.place.state().join("sessions");
    let empty = || fs::read_dir(&sessions).unwrap().next().is_none().then_some(());
    wait_for("the builds to be removed", empty);
}

#[test]
fn a_build_is_cancelled_and_blocks_nothing() {
    let server = Server::new();
    let script = "trap '' TERM INT; (setsid sleep 1000 &); echo waits; read line; echo \"read $?\"; sleep 1000\n";
    let id = started(&server, "long", script, "read 1");
    let path = format!("/v1/hangar/environments/{id}/builds/1/cancel");
    let (reason, log) = failed(&server.daemon.post(&path, &json!({})));
    assert_eq!(reason, "the build was cancelled");
    assert!(log.ends_with("failed: the build was cancelled\n"), "{log}");
    // Once more changes nothing, and the next build begins at once.
    assert_eq!(failed(&server.daemon.post(&path, &json!({}))).0, reason);
    server.put(&id, "setup.sh", b"echo fine\n");
    assert_eq!(server.build(&id)["status"], "ready");

    // The same from the command line.
    started(&server, "other", script, "read 1");
    let output = server.place.hangar(["env", "cancel", "other"]).output().unwrap();
    assert_eq!(stdout(&output), "version 1: failed (the build was cancelled)\n");
    nothing_is_left(&server);
    server.daemon.stop();
}

/// Limits that a small script meets soon.
const CONFIG: &str = "[build]
timeout_s = 20
silence_timeout_s = 4
log_bytes_max = 100000
output_bytes_max = 2000000
disk_bytes_max = 50000000
[build.limits]
pids_max = 64
memory_bytes_max = 400000000
file_bytes_max = 200000000
";

#[test]
fn every_limit_is_told_as_what_it_is() {
    let server = Server::with(CONFIG);
    for (name, script, says) in [
        ("silence", "sleep 100", "the build printed nothing for 4 s"),
        ("output", "yes | head -c 10M", "the build printed more than 2000000 bytes"),
        (
            "disk",
            "for i in $(seq 99); do head -c 20M /dev/zero > $i; echo $i; sleep 0.2; done",
            "the build took more than 50000000 bytes of disk",
        ),
        ("file", "head -c 300M /dev/zero > big", "wrote a file of more than 200000000 bytes"),
        ("memory", "python3 -c 'bytearray(1 << 30)'", "`setup.sh` used up the memory of the build"),
        (
            "processes",
            "python3 -c '\nimport os, time\nfor i in range(100):\n  if os.fork() == 0: time.sleep(60); os._exit(0)'",
            "ran into the limit on processes",
        ),
        ("time", "while :; do echo on; sleep 1; done", "the build took longer than 20 s"),
    ] {
        let (reason, log) = server.refused(name, &[("setup.sh", script)]);
        assert!(reason.contains(says), "{name}: {reason}\n{log}");
        assert!(log.trim_end().ends_with(&format!("failed: {reason}")), "{name}: {log}");
    }
    // What stays below them is built.
    let script = "yes | head -c 150000; head -c 20M /dev/zero > big; sleep 3; echo done";
    let (_, log) = server.ready("modest", &[("setup.sh", script)]);
    assert!(log.contains("the log has reached its limit"), "{log}");
    nothing_is_left(&server);
    server.daemon.stop();
}

#[test]
fn a_disk_that_is_nearly_full_ends_builds() {
    let server = Server::with("[build]\ndisk_free_bytes_min = 1000000000000000\n");
    let (reason, _) = server.refused("full", &[("setup.sh", "sleep 100")]);
    assert!(reason.contains("bytes of disk left, and 1000000000000000 are kept free"), "{reason}");
}

#[test]
fn a_build_without_its_proxy_fails_and_does_not_wait() {
    let server = Server::with("[build]\nsilence_timeout_s = 120\n");
    let script = "echo begins; for i in 1 2 3 4 5; do sleep 1; echo $i; done
        python3 -c 'import urllib.request as r; r.urlopen(\"http://example.org/\", timeout=60)'\n";
    let id = started(&server, "cut", script, "begins");
    let first = warden(&server.place.state()).expect("there is a warden");
    let dials = |process: &&processes::Process| process.command.contains("egress");
    let proxy = processes::below(&first).into_iter().find(|p| dials(&p));
    proxy.expect("there is an egress proxy").kill();
    let ended = wait_for("the build to end", || {
        let build = server.daemon.get(&format!("/v1/environments/{id}/builds/1"));
        (build["status"] != "building").then_some(build)
    });
    let (reason, log) = failed(&ended);
    assert!(reason.contains("setup.sh"), "{reason}\n{log}");
}

#[test]
fn settings_of_private_registries_reach_the_installers() {
    let config = "[build]
pip_index_url = 'http://index.invalid.example/simple'
npm_registry = 'http://registry.invalid.example/'
go_proxy = 'http://modules.invalid.example'
gem_mirror = 'http://gems.invalid.example'
cargo_registry = 'sparse+http://crates.invalid.example/'
ca_bundle = '/usr/share/hangar-test-ca.pem'
";
    let refused = hangar_tests::run::Place::default();
    fs::create_dir_all(refused.state()).unwrap();
    fs::write(refused.state().join("config.toml"), config).unwrap();
    let output = refused.hangar(["serve"]).output().unwrap();
    assert!(!output.status.success());
    let said = hangar_tests::run::stderr(&output);
    assert!(said.contains("build.ca_bundle names no file"), "{said}");

    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    let server = Server::with(&config.replace("/usr/share/hangar-test-ca.pem", bundle));
    let script = "env | grep -c invalid.example; echo \"$PIP_CERT\"\n";
    let (_, log) = server.ready("told", &[("setup.sh", script)]);
    assert!(log.contains(&format!("$ setup.sh\n5\n{bundle}\n")), "{log}");
    let asked: [(&str, Value, &str); 2] = [
        ("pip", json!({ "packages": { "pip": ["six==1.17.0"] } }), "index.invalid.example"),
        ("npm", json!({ "packages": { "npm": ["ms@2.1.3"] } }), "registry.invalid.example"),
    ];
    for (name, declared, host) in asked {
        let id = server.declaring(name, &[], declared);
        let (_, log) = failed(&server.build(&id));
        assert!(log.contains(host), "{name}: {log}");
    }
}
