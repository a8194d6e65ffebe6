//! Deaths at every place: what is left, and what the next start makes of it.

use crate::client::{State, environment, eventually, plan, processes_of, session, shell};
use hangar_runtime::record::{Next, RecordReader};
use hangar_runtime::wire::warden::{EndCause, Event, ExitStatus, Request, SessionEnd};

/// The host's pid of a session's init: the one process of the block's first uid.
fn init_of(state: &State) -> i32 {
    let uid = state.range.base + 65_536;
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(status) = std::fs::read_to_string(entry.path().join("status")) else { continue };
        if status.contains(&format!("\nUid:\t{uid}\t")) {
            return entry.file_name().to_str().unwrap().parse().unwrap();
        }
    }
    panic!("no init runs");
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn the_death_of_init_ends_the_session_and_its_commands() {
    let state = State::new();
    let warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    let output = api.start(shell(&id, 1, "echo begun; sleep 100"));
    eventually("the command runs", || processes_of(state.range).len() >= 2);
    kill(init_of(&state));
    let end = api.command_end(1);
    assert_eq!((end.cause, end.status), (EndCause::SessionEnded, ExitStatus::Signal(9)));
    output.read_all();
    let Event::SessionEnded { reason, .. } = api.event() else { panic!("another event") };
    assert_eq!(reason, SessionEnd::InitDied);
    state.expect_no_groups();
    assert!(processes_of(state.range).is_empty());
    api.launch(&plan(1));
    assert_eq!(api.run(&id, 2, "echo again").1, "again\n");
}

#[test]
fn the_death_of_the_warden_ends_sessions_and_the_next_one_tidies_up() {
    let state = State::new();
    let mut warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    api.run(&id, 1, "echo kept > file");
    api.start(shell(&id, 2, "echo begun; sleep 100"));
    warden.child.kill().unwrap();
    warden.child.wait().unwrap();
    eventually("every process of the session is gone", || processes_of(state.range).is_empty());
    eventually("the parked child is gone", || {
        state.all_groups().iter().all(|group| {
            std::fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|procs| procs.is_empty())
        })
    });
    assert!(!state.all_groups().is_empty(), "the groups are left");

    // What else a warden can leave at its death.
    std::fs::create_dir_all(state.path(&format!("sessions/{}.tmp/commands", session(2)))).unwrap();
    let versions = state.path(&format!("versions/{}", environment(1)));
    for unfinished in ["1/tree", "2.tmp/tree", "3.0.removing/tree"] {
        std::fs::create_dir_all(versions.join(unfinished)).unwrap();
    }
    std::fs::create_dir_all(state.path("versions/henv_x.0.removing/1")).unwrap();
    let finished = versions.join("4");
    std::fs::create_dir_all(finished.join("tree")).unwrap();
    std::fs::write(finished.join("record"), "x").unwrap();
    for path in ["1", "1/tree", "2.tmp", "2.tmp/tree", "3.0.removing", "3.0.removing/tree"] {
        let store = Some(state.range.store());
        std::os::unix::fs::chown(versions.join(path), store, store).unwrap();
    }

    let warden = state.start();
    eventually("only workers have groups", || {
        state.groups().iter().all(|group| group.to_string_lossy().contains("/job-"))
    });
    let mut api = warden.connect();
    api.launch(&plan(1));
    assert_eq!(api.run(&id, 3, "cat file").1, "kept\n");
    let record = std::fs::File::open(state.path(&format!("sessions/{id}/commands/2"))).unwrap();
    let mut reader = RecordReader::new(record);
    let status = loop {
        match reader.next().unwrap() {
            Next::Frame(_) => {}
            Next::Pending => panic!("the record has no end"),
            Next::End { status, .. } => break status,
        }
    };
    assert_eq!(status, ExitStatus::Signal(9));
    eventually("unfinished trees are removed", || {
        std::fs::read_dir(&versions).unwrap().count() == 1
            && std::fs::read_dir(state.path("versions")).unwrap().count() == 1
    });
    assert!(finished.exists());
    assert_eq!(std::fs::read_dir(state.path("sessions")).unwrap().count(), 1);
}

#[test]
fn a_removal_that_was_cut_off_goes_on() {
    let state = State::new();
    let mut warden = state.start();
    let mut api = warden.connect();
    let id = session(1);
    api.launch(&plan(1));
    api.run(&id, 1, "mkdir -p a/b; echo x > a/b/c; chmod 500 a/b");
    api.done(Request::Stop { session: id.clone() });
    api.done(Request::Shutdown);
    warden.child.wait().unwrap();
    let sessions = state.path("sessions");
    std::fs::rename(sessions.join(id.as_str()), sessions.join(format!("{id}.removing"))).unwrap();
    let warden = state.start();
    eventually("the session is removed", || std::fs::read_dir(&sessions).unwrap().count() == 0);
    // Its block is free again; the child that waits for a session can have the one after it.
    let mut api = warden.connect();
    use std::os::unix::fs::MetadataExt;
    let owners = [2, 3].map(|number| {
        api.launch(&plan(number));
        let workdir = sessions.join(session(number).as_str()).join("workdir");
        std::fs::metadata(workdir).unwrap().uid()
    });
    assert!(owners.contains(&(state.range.base + 65_536 + 1000)), "{owners:?}");
}

#[test]
fn sigterm_ends_everything() {
    let state = State::new();
    let mut warden = state.start();
    let mut api = warden.connect();
    api.launch(&plan(1));
    api.start(shell(&session(1), 1, "sleep 100"));
    let pid = rustix::process::Pid::from_child(&warden.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(api.command_end(1).cause, EndCause::SessionEnded);
    let Event::SessionEnded { reason, .. } = api.event() else { panic!("another event") };
    assert_eq!(reason, SessionEnd::Shutdown);
    assert!(api.is_closed());
    assert!(warden.child.wait().unwrap().success());
    assert!(processes_of(state.range).is_empty());
    assert!(state.all_groups().is_empty());
}

#[test]
fn sessions_outlive_their_api_for_a_while() {
    let state = State::new();
    let mut warden = state.start_with(&["--orphan-timeout-ms", "400"]);
    let mut api = warden.connect();
    api.launch(&plan(1));
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert_eq!(api.run(&session(1), 1, "echo here").1, "here\n", "an API is there");
    drop(api);
    assert!(warden.child.wait().unwrap().success());
    assert!(processes_of(state.range).is_empty());
    assert!(state.all_groups().is_empty());
}

#[test]
fn a_state_directory_has_one_warden_and_one_range() {
    let state = State::new();
    let warden = state.start();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hangar-warden"))
        .arg("--state-dir")
        .arg(state.path(""))
        .args(["--range-base", &state.range.base.to_string()])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("another warden uses this state directory"), "{error}");
    drop(warden);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hangar-warden"))
        .arg("--state-dir")
        .arg(state.path(""))
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("range-base"), "the owners of all files depend on it: {error}");
    let other = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(other.path().join("thesis.odt"), "years of work").unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_hangar-warden"))
        .arg("--state-dir")
        .arg(other.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("no state directory"), "{error}");
}
