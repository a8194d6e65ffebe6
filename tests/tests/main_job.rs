//! The main job: real projects are built, frozen, and run in strict sessions.

use hangar_tests::daemon::Daemon;
use hangar_tests::processes::wait_for;
use hangar_tests::remains::remains;
use hangar_tests::run::{Place, stderr, stdout};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::SystemTime;

const EPISODE: [&str; 4] = ["python3", "run.py", "--episode", "12"];

/// A run that has to end with status 0; the answer is its standard output and standard error.
fn succeed(output: &Output) -> (String, String) {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(output));
    (stdout(output), stderr(output))
}

/// Numbers and states of an environment's versions, the newest first.
fn versions(place: &Place, environment: &str) -> Vec<(u64, String)> {
    let listed = place.json(&["env", "versions", environment, "--json"]);
    let versions = listed["versions"].as_array().unwrap().iter();
    versions
        .map(|v| (v["version"].as_u64().unwrap(), v["status"].as_str().unwrap().to_owned()))
        .collect()
}

/// Where the file of a version lies on the host.
fn frozen_file(place: &Place, environment: &str, version: u32, path: &str) -> PathBuf {
    let id = place.json(&["env", "show", environment, "--json"])["id"].as_str().unwrap().to_owned();
    place.state().join("versions").join(id).join(version.to_string()).join("tree").join(path)
}

/// What `run.py` says it made, for a file as it arrived here.
fn made(path: &Path, kind: &str, size: &str) -> String {
    let bytes = fs::read(path).unwrap();
    let sum = Command::new("sha256sum").arg(path).output().unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    format!("made {name}  {kind} {size}  {} bytes  sha256 {}\n", bytes.len(), &stdout(&sum)[..12])
}

/// Decodes both pictures whole and prints what they are.
const DECODE: &str = "python3 run.py --episode 12 > /dev/null && python3 -c '
from PIL import Image
import glob, os
for path in sorted(glob.glob(os.environ[\"WORKSPACE\"] + \"/*\")):
    picture = Image.open(path)
    picture.load()
    print(picture.format, *picture.size, len(picture.convert(\"RGB\").getcolors(1 << 24)) > 100)
'";

#[test]
fn a_project_becomes_a_version_and_its_results_come_back() {
    let place = Place::default();
    place.copy_example("content-studio");

    // No server runs: the first run brings its own and takes it away again.
    let first = place.run(&["--artifacts", "out"], "content-studio", &EPISODE);
    let (out, said) = succeed(&first);
    let teaser = place.path("out/episode-12-teaser.png");
    let thumbnail = place.path("out/episode-12-thumbnail.webp");
    let expected = [
        "Small Town, Long Memory, episode 12: \"The clock that ran late\"\n".to_owned(),
        made(&teaser, "PNG", "1280x720"),
        made(&thumbnail, "WEBP", "480x270"),
    ];
    assert_eq!(out, expected.concat());
    assert!(said.contains("built version 1"), "{said}");
    let png = fs::read(&teaser).unwrap();
    assert_eq!(&png[..16], b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR");
    assert_eq!(&png[16..24], [0, 0, 5, 0, 0, 0, 2, 208], "1280 x 720");
    assert_eq!(&png[png.len() - 8..], b"IEND\xaeB`\x82");
    let webp = fs::read(&thumbnail).unwrap();
    assert_eq!((&webp[..4], &webp[8..12]), (&b"RIFF"[..], &b"WEBP"[..]));
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 2);
    assert_eq!(remains(&place.state()), [""; 0]);

    // Nothing changed: nothing is built, and the same bytes come out.
    let daemon = Daemon::start(&place.state());
    let (again, said) = succeed(&place.run(&["--artifacts", "again"], "content-studio", &EPISODE));
    assert_eq!(again, out);
    assert_eq!(said, "", "nothing to tell when nothing is built");
    assert_eq!(versions(&place, "content-studio"), [(1, "ready".to_owned())]);
    assert!(fs::read(place.path("again/episode-12-teaser.png")).unwrap() == png);
    let (decoded, _) = succeed(&place.run(&["-q"], "content-studio", &["sh", "-c", DECODE]));
    assert_eq!(decoded, "PNG 1280 720 True\nWEBP 480 270 True\n");

    // The project's own tests, against the read-only environment.
    let tests = place.run(&["-q"], "content-studio", &["python3", "-m", "unittest"]);
    let (_, said) = succeed(&tests);
    assert!(said.contains("Ran 5 tests") && said.ends_with("OK\n"), "{said}");

    // One changed file: version 2 runs the new code with the dependencies of version 1.
    place.edit("content-studio/run.py", "{episode.show}, episode", "{episode.show} / episode");
    let (out, said) = succeed(&place.run(&[], "content-studio", &EPISODE));
    assert!(out.starts_with("Small Town, Long Memory / episode 12"), "{out}");
    assert!(said.contains("built version 2"), "{said}");
    let ready = |number| (number, "ready".to_owned());
    assert_eq!(versions(&place, "content-studio"), [ready(2), ready(1)]);
    let log = |number: &str| place.said(&["env", "log", "content-studio", number]);
    assert!(log("1").contains("$ pip install -r requirements.txt"), "{}", log("1"));
    assert!(log("1").contains("$ npm ci"), "{}", log("1"));
    assert!(log("2").contains("taking the installed packages of an earlier build"), "{}", log("2"));
    assert!(!log("2").contains("pip install -r") && !log("2").contains("npm ci"), "{}", log("2"));
    assert!(log("2").contains("setup: wrote build-info.json"), "setup.sh runs in every build");
    let packages = |number: u32| {
        let id = place.json(&["env", "show", "content-studio", "--json"])["id"].clone();
        let path = format!("/v1/environments/{}/builds/{number}", id.as_str().unwrap());
        daemon.get(&path)["packages"].clone()
    };
    assert_eq!(packages(1), packages(2));
    assert!(packages(2).to_string().contains("sharp"), "{}", packages(2));

    changed_bytes_are_found(&place);
    daemon.stop();
    assert_eq!(remains(&place.state()), [""; 0]);
}

/// A file of the project and one of a package change by one byte each; size and time stay.
fn changed_bytes_are_found(place: &Place) {
    let verify = || {
        let words = ["env", "verify", "content-studio", "2", "--json"];
        let output = place.hangar(words).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (status, report) = verify();
    assert_eq!((status, &report["intact"]), (Some(0), &json!(true)), "{report}");
    for name in ["studio/teaser.py", ".venv/lib/python3.11/site-packages/PIL/Image.py"] {
        let path = frozen_file(place, "content-studio", 2, name);
        let before = fs::metadata(&path).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        let times =
            fs::FileTimes::new().set_modified(before.modified().unwrap_or(SystemTime::now()));
        fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), before.len());
        let (status, report) = verify();
        assert_eq!((status, &report["intact"]), (Some(1), &json!(false)), "{name}: {report}");
        assert!(report.to_string().contains(name), "{name}: {report}");
    }
}

/// Waits until what is left of builds and sessions is removed, which a server does by itself.
fn all_is_removed(place: &Place) {
    let sessions = place.state().join("sessions");
    let empty = || fs::read_dir(&sessions).unwrap().next().is_none().then_some(());
    wait_for("the sessions to be removed", empty);
}

/// The seconds a build took, from the last line of its log.
fn seconds(log: &str) -> f64 {
    let line = log.lines().rev().find(|line| line.contains("is ready after")).unwrap();
    let number = line.split_once("is ready after ").unwrap().1.trim_end_matches(" s");
    number.parse().unwrap_or_else(|error| panic!("{line}: {error}"))
}

#[test]
fn after_an_edit_the_new_code_runs_on_the_installed_dependencies() {
    let place = Place::default();
    place.copy_example("market-report");
    let daemon = Daemon::start(&place.state());
    let report = ["market-report", "--share", "TIDE"];
    let (out, _) = succeed(&place.run(&["-q"], "market-report", &report));
    let line = "TIDE  return  -10.2%  volatility  23.4%  deepest fall  -19.7%\n";
    assert!(out.starts_with(line), "{out}");
    let tests = ["python3", "-m", "unittest", "discover", "tests"];
    let (_, said) = succeed(&place.run(&["-q"], "market-report", &tests));
    assert!(said.contains("Ran 4 tests") && said.ends_with("OK\n"), "{said}");

    let log = |number: usize| place.said(&["env", "log", "market-report", &number.to_string()]);
    let first = log(1);
    assert!(first.contains("Successfully installed numpy-2.3.5 pandas-2.3.3"), "{first}");
    // Twice: what else a host does can only add to the time of a build.
    let words = ["wrote summary", "made summary", "kept summary"];
    let mut later = f64::INFINITY;
    for (number, edit) in (2..).zip(words.windows(2)) {
        place.edit("market-report/src/market_report/cli.py", edit[0], edit[1]);
        all_is_removed(&place);
        let (out, _) = succeed(&place.run(&["-q"], "market-report", &report));
        assert!(out.starts_with(line) && out.contains(edit[1]), "{out}");
        let log = log(number);
        assert!(log.contains("taking the installed packages of an earlier build"), "{log}");
        assert!(!log.contains("numpy-2.3.5"), "{log}");
        later = later.min(seconds(&log));
    }
    let first = seconds(&first);
    println!("first build {first} s, later {later} s, ratio {:.1}", first / later);
    // Measured, not asserted: the first build's time is that of the network.
    daemon.stop();
}

#[test]
fn a_node_project_passes_its_own_tests_read_only() {
    let place = Place::default();
    place.copy_example("ts-board");
    let daemon = Daemon::start(&place.state());
    let (out, _) = succeed(&place.run(&["-q"], "ts-board", &["npm", "run", "--silent", "plan"]));
    assert!(out.ends_with("wrote plan.json\n"), "{out}");
    let (out, _) = succeed(&place.run(&["-q"], "ts-board", &["npm", "test"]));
    let shown: String = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("Test Files 2 passed (2) Tests 4 passed (4)"), "{out}");
    succeed(&place.run(&["-q"], "ts-board", &["npm", "run", "--silent", "check"]));
    // The compiler that was silent can complain.
    let wrong = "echo 'const n: number = \"x\";' > $WORKSPACE/a.ts; tsc --noEmit $WORKSPACE/a.ts";
    let output = place.run(&["-q"], "ts-board", &["sh", "-c", wrong]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stdout(&output).contains("TS2322"), "{}", stdout(&output));
    let verified = place.json(&["env", "verify", "ts-board", "1", "--json"]);
    assert_eq!(verified["intact"], true, "{verified}");
    daemon.stop();
}

#[test]
fn a_build_that_fails_says_why_and_leaves_the_last_version_active() {
    let place = Place::default();
    place.write("plain/run.py", "print('one')\n");
    place.write("plain/requirements.txt", "");
    let daemon = Daemon::start(&place.state());
    let (out, _) = succeed(&place.run(&["-q"], "plain", &["python3", "run.py"]));
    assert_eq!(out, "one\n");

    place.write("plain/requirements.txt", "no such requirement !\n");
    let failed = place.run(&[], "plain", &["echo", "not reached"]);
    assert_eq!((failed.status.code(), stdout(&failed).as_str()), (Some(125), ""));
    let said = stderr(&failed);
    assert!(said.contains("version 2 was not built"), "{said}");
    assert!(said.contains("`pip install -r requirements.txt` ended with status 1"), "{said}");
    assert!(said.contains("Invalid requirement"), "pip's own words are in the log: {said}");
    let listed = place.json(&["env", "versions", "plain", "--json"]);
    assert_eq!(listed["active"], 1);
    let expected = [(2, "failed".to_owned()), (1, "ready".to_owned())];
    assert_eq!(versions(&place, "plain"), expected);

    // It blocks nothing.
    place.write("plain/requirements.txt", "# nothing\n");
    let (out, said) = succeed(&place.run(&[], "plain", &["python3", "run.py"]));
    assert_eq!(out, "one\n");
    assert!(said.contains("built version 3"), "{said}");
    all_is_removed(&place);
    daemon.stop();
    assert_eq!(remains(&place.state()), [""; 0]);
}

#[test]
fn without_a_network_what_needs_none_is_built() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let empty = [("requirements.txt", ""), ("run.py", "import sys; print(sys.prefix)")];
    let id = daemon.environment("offline", &empty);
    let build = daemon.build(&id, &json!({ "network": "none" }));
    assert_eq!(build["status"], "ready", "{build}");
    let session = daemon.session(&json!({ "environment": id, "network": "none" }));
    let ended = session.run(&json!({ "command": ["python3", "/env/offline/run.py"] }));
    assert_eq!((ended.status().as_str(), ended.out().as_str()), ("0", "/env/offline/.venv\n"));

    // What does need one fails, and the reason is that there is none.
    let id = daemon.environment("online", &[("requirements.txt", "six==1.17.0\n")]);
    let build = daemon.build(&id, &json!({ "network": "none" }));
    assert_eq!(build["status"], "failed", "{build}");
    let reason = build["error"].as_str().unwrap();
    assert!(reason.contains("pip install -r requirements.txt"), "{reason}");
    daemon.stop();
}

#[test]
fn statuses_that_a_shell_would_give() {
    let place = Place::default();
    place.write("plain/unexecutable", "#!/no/such/interpreter\n");
    let daemon = Daemon::start(&place.state());
    for (words, status) in [
        (&["sh", "-c", "exit 0"][..], 0),
        (&["sh", "-c", "exit 1"], 1),
        (&["sh", "-c", "exit 42"], 42),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -HUP $$"], 129),
        (&["python3", "-c", "import os; os.abort()"], 134),
        (&["sh", "-c", "kill -KILL $$"], 137),
        (&["python3", "-c", "import ctypes; ctypes.string_at(0)"], 139),
        (&["sh", "-c", "kill -TERM $$"], 143),
        (&["./unexecutable"], 126),
        (&["/workspace"], 126),
        (&["no-such-program"], 127),
        (&["./no-such-program"], 127),
    ] {
        let output = place.run(&["-q"], "plain", words);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{words:?}");
    }
    daemon.stop();
}

#[test]
fn failures_of_hangar_are_125_and_say_nothing_on_standard_output() {
    let place = Place::default();
    place.write("plain/x", "");
    place.write("...", "no directory");
    for (options, project, said) in [
        (&[][..], "missing", "the project missing cannot be read"),
        (&[], "...", "the project ... cannot be read"),
        (&["--name", "///"], "plain", "the name yields no path segment"),
        (&["--pids", "1"], "plain", "pids_max"),
        (&["--memory", "1K"], "plain", "memory_bytes_max"),
        (&["--cwd", "relative"], "plain", "not absolute"),
    ] {
        let output = place.run(options, project, &["echo", "not reached"]);
        let status = (output.status.code(), stdout(&output));
        assert_eq!(status, (Some(125), String::new()), "{options:?} {project}");
        assert!(stderr(&output).contains(said), "{options:?} {project}: {}", stderr(&output));
    }
    assert_eq!(remains(&place.state()), [""; 0]);
}

/// Prints a line and stays, with a child that ignores what can be ignored.
const STUBBORN: &str = "trap '' INT TERM HUP; (setsid sleep 1000 &); echo started; sleep 1000";

#[test]
fn an_interrupted_run_leaves_nothing() {
    let place = Place::default();
    place.write("plain/x", "");
    for signal in [Signal::INT, Signal::TERM] {
        let mut command = place.hangar(["run", "-q"]);
        command.args(["plain", "--", "bash", "-c", STUBBORN]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let status = 128 + signal.as_raw();
        assert_eq!(output.status.code(), Some(status), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        assert_eq!(remains(&place.state()), [""; 0]);
    }
}
