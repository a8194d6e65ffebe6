//! Output and exit status.

use super::{Place, stderr, stdout};
use std::io::Read;
use std::process::Stdio;

#[test]
fn the_exit_status_is_the_commands() {
    let place = Place::with_server(&[]);
    let shell = |text: &'static str| ["sh", "-c", text];
    for (options, command, status, out, said) in [
        (&[][..], &["python3", "run.py"][..], 0, "hello\n", ""),
        (&[], &shell("echo out; echo err >&2; exit 7"), 7, "out\n", "err\n"),
        (&[], &shell("exit 255"), 255, "", ""),
        (&[], &shell("kill -TERM $$"), 143, "", ""),
        (&[], &shell("kill -KILL $$"), 137, "", ""),
        (&[], &["no-such-program"], 127, "", "No such file"),
        (&[], &["/etc/passwd"], 126, "", "Permission denied"),
        (&["--timeout", "0.5"], &["sleep", "60"], 137, "", "its time was over"),
        (
            &["--memory", "64M"],
            &["python3", "-c", "bytearray(256 << 20)"],
            137,
            "",
            "memory was used up",
        ),
        (
            &["--pids", "16"],
            &shell("for i in $(seq 40); do sleep 1 & done; wait; exit 3"),
            2,
            "",
            "limit on processes",
        ),
        (&["--env", "A=b c", "--cwd", "/tmp"], &shell("echo $A $PWD"), 0, "b c /tmp\n", ""),
        (
            &[],
            &shell("echo $PWD $PROJECT_ROOT $WORKSPACE"),
            0,
            "/env/tiny /env/tiny /workspace\n",
            "",
        ),
        (&[], &["cat"], 0, "", ""),
    ] {
        let output = place.run(&[&["--quiet"], options].concat(), command);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), out, "{command:?}");
        assert!(stderr(&output).contains(said), "{command:?}: {}", stderr(&output));
    }
    assert_eq!(place.sessions(), [""; 0]);
}

#[test]
fn a_hundred_megabytes_arrive_byte_for_byte() {
    let place = Place::with_server(&[]);
    // Every byte value, and a sequence that no piece of it repeats.
    let script = "import hashlib, sys
for i in range(100):
    b = hashlib.shake_128(str(i).encode()).digest(1 << 20)
    sys.stdout.buffer.write(b)
    sys.stderr.buffer.write(b[:1000])
";
    let output = place.run(&["--quiet"], &["python3", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let here = std::process::Command::new("python3").args(["-c", script]).output().unwrap();
    assert_eq!(output.stdout.len(), 100 << 20);
    assert!(output.stdout == here.stdout);
    assert!(output.stderr == here.stderr);
}

#[test]
fn failures_of_hangar_itself_are_125_with_nothing_on_standard_output() {
    let place = Place::without_server();
    place.write("broken/setup.sh", "echo before the end\nexit 3\n");
    place.write("other/tiny/x", "");
    let ran = place.run(&[], &["true"]);
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    for (project, options, said) in [
        ("no-such-project", &[][..], "No such file"),
        ("tiny/run.py", &[], "Not a directory"),
        ("broken", &[], "setup.sh"),
        ("broken", &["--quiet"], "before the end"),
        ("other/tiny", &[], "--name"),
        ("tiny", &["--no-such-option"], "--no-such-option"),
        ("tiny", &["--artifacts", "tiny/run.py"], "tiny/run.py"),
        ("tiny", &["--server", "http://127.0.0.1:9"], "no server"),
    ] {
        let output = place.run_of(project, options, &["echo", "x"]);
        assert_eq!(output.status.code(), Some(125), "{project} {options:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{project} {options:?}");
        assert!(stderr(&output).contains(said), "{project} {options:?}: {}", stderr(&output));
    }
    let named = place.run_of("other/tiny", &["--name", "tiny-2"], &["ls"]);
    assert_eq!((named.status.code(), stdout(&named).as_str()), (Some(0), "x\n"));
}

#[test]
fn a_reader_that_goes_away_ends_the_command_and_not_with_a_storm() {
    let place = Place::with_server(&[]);
    let mut command = place.hangar(["run", "--quiet"]);
    command.args(["tiny", "--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((&first, said.as_str()), (b"y\n", ""));
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
    assert_eq!(place.sessions(), [""; 0]);
}
