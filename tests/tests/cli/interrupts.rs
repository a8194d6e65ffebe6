//! What is left when a run is cut short: nothing.

use super::{Place, end, signal_to, stderr, stdout};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

/// Starts a command that never ends by itself, and waits until it runs.
fn endless(place: &Place) -> Child {
    let mut command = place.hangar(["run", "--quiet"]);
    command.args(["tiny", "--", "sh", "-c", "echo started; sleep 1000; echo not reached"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    child
}

#[test]
fn a_signal_cancels_the_command_and_cleans_up() {
    let place = Place::with_server(&[]);
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let mut child = endless(&place);
        assert_eq!(place.sessions().len(), 1);
        let ended = end(&mut child, signal);
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(ended.code(), Some(status), "{said}");
        assert_eq!(place.sessions(), [""; 0]);
    }
}

#[test]
fn an_ephemeral_server_ends_with_its_run_however_that_ends() {
    let place = Place::without_server();
    for signal in [Signal::INT, Signal::KILL] {
        let mut child = endless(&place);
        assert!(place.server_listens());
        end(&mut child, signal);
        place.wait_for_the_end();
    }
    // The state is whole: the next run finds its version and nothing in its way.
    let output = place.run(&[], &["python3", "run.py"]);
    assert_eq!((stdout(&output).as_str(), stderr(&output).as_str()), ("hello\n", ""));
}

#[test]
fn a_server_that_ran_before_goes_on() {
    let place = Place::with_server(&[]);
    let mut child = endless(&place);
    end(&mut child, Signal::INT);
    assert!(place.server_listens());
    assert_eq!(stdout(&place.run(&[], &["python3", "run.py"])), "hello\n");
    assert!(place.server_listens());
}

#[test]
fn runs_at_the_same_time_share_one_server() {
    let place = Place::without_server();
    let start = |text: &str| {
        let mut command = place.hangar(["run", "--quiet", "--name", text]);
        command.args(["tiny", "--", "sh", "-c", &format!("sleep 1; echo {text}")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<(Child, &str)> =
        ["one", "two", "three"].into_iter().map(|text| (start(text), text)).collect();
    for (child, text) in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(stdout(&output), format!("{text}\n"), "{}", stderr(&output));
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }
    place.wait_for_the_end();
}

#[test]
fn a_second_signal_does_not_wait() {
    let place = Place::with_server(&[]);
    let child = endless(&place);
    signal_to(&child, Signal::INT);
    signal_to(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
}
