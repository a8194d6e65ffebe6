//! What a session can use up: each limit is met, told as what it is, and only felt inside.

use hangar_tests::cgroup::Cgroup;
use hangar_tests::daemon::Daemon;
use hangar_tests::processes::wait_for;
use hangar_tests::remains::remains;
use hangar_tests::run::{Place, stderr, stdout};
use hangar_tests::session::{Ended, Session};
use serde_json::json;

/// A session that works: what it is asked for comes back.
fn works(session: &Session<'_>) {
    let ended = session.bash("echo $((6 * 7)) > $WORKSPACE/x && cat $WORKSPACE/x | tr -d 4");
    assert_eq!((ended.status().as_str(), ended.out().as_str()), ("0", "2\n"), "{}", ended.err());
}

fn python(script: &str) -> serde_json::Value {
    json!({ "command": ["python3", "-c", script] })
}

/// Two sessions on one server: one that is loaded, and one that must not feel it.
struct Pair {
    daemon: Daemon,
    place: Place,
}

impl Pair {
    fn new() -> Self {
        let place = Place::default();
        Self { daemon: Daemon::start(&place.state()), place }
    }

    /// Starts a load, uses the other session while it runs, and waits for its end. Both sessions
    /// work afterwards, and nothing is left of them.
    fn load(self, limits: serde_json::Value, load: serde_json::Value, check: impl Fn(&Ended)) {
        let loaded = self.daemon.session(&json!({ "limits": limits }));
        let other = self.daemon.session(&json!({}));
        works(&loaded);
        let number = loaded.start_command(&load);
        for _ in 0..3 {
            works(&other);
        }
        let ended = loaded.finish(number);
        check(&ended);
        works(&other);
        works(&loaded);
        loaded.delete();
        other.delete();
        self.daemon.stop();
        assert_eq!(remains(&self.place.state()), [""; 0]);
    }
}

/// Forks until it cannot, and says how often it could.
const FORKS: &str = "
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(1000)
        count += 1
except BlockingIOError as error:
    print(count, error.strerror, flush=True)
os._exit(11)
";

#[test]
fn too_many_processes_are_refused_and_told() {
    let limits = json!({ "pids_max": 32 });
    Pair::new().load(limits, python(FORKS), |ended| {
        // The session's init and the command itself count too.
        assert_eq!(ended.out(), "30 Resource temporarily unavailable\n", "{}", ended.err());
        assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("11", "own pids"));
    });
}

#[test]
fn too_many_threads_are_refused_and_told() {
    let script = "
import threading, time
count = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
        count += 1
except RuntimeError as error:
    print(count, error, flush=True)
";
    Pair::new().load(json!({ "pids_max": 32 }), python(script), |ended| {
        assert_eq!(ended.out(), "30 can't start new thread\n", "{}", ended.err());
        assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("0", "own pids"));
    });
}

/// Every process of it starts two more, for as long as it lasts.
const BOMB: &str = "bomb() { bomb | bomb & }; bomb; wait; sleep 1000";

#[test]
fn a_fork_bomb_ends_with_its_command() {
    let pair = Pair::new();
    let bombed = pair.daemon.session(&json!({ "limits": { "pids_max": 64 } }));
    let other = pair.daemon.session(&json!({}));
    let cgroup = Cgroup::of(&bombed);
    let number =
        bombed.start_command(&json!({ "command": ["bash", "-c", BOMB], "timeout_ms": 4000 }));
    let full = || cgroup.number("pids.current") == cgroup.number("pids.max");
    wait_for("the bomb to fill its session", || full().then_some(()));
    assert_eq!(cgroup.number("pids.max"), 64);
    works(&other);
    let ended = bombed.finish(number);
    assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("signal 9", "timeout pids"));
    // The bomb went with its command: init is alone.
    wait_for("the bomb to be gone", || (cgroup.number("pids.current") == 1).then_some(()));
    works(&bombed);
    works(&other);
    bombed.delete();
    other.delete();
    pair.daemon.stop();
    assert_eq!(remains(&pair.place.state()), [""; 0]);
}

const MEMORY: u64 = 96 << 20;

#[test]
fn a_command_that_fills_memory_is_ended_and_told() {
    let limits = json!({ "memory_bytes_max": MEMORY });
    let fill = format!("b'x' * {}; print('not reached')", 2 * MEMORY);
    Pair::new().load(limits, python(&fill), |ended| {
        assert_eq!(ended.out(), "");
        assert_eq!(
            (ended.status().as_str(), ended.cause().as_str()),
            ("signal 9", "out_of_memory")
        );
    });
}

#[test]
fn a_child_that_fills_memory_dies_and_its_parent_is_told() {
    let limits = json!({ "memory_bytes_max": MEMORY });
    let fill = format!("python3 -c \"b'x' * {}\"", 2 * MEMORY);
    // A shell that goes on decides by itself how it ends.
    Pair::new().load(limits.clone(), json!({ "command": format!("{fill}; echo $?") }), |ended| {
        assert_eq!((ended.out().as_str(), ended.cause().as_str()), ("137\n", "own"));
    });
    // One that ends as its child did, did so for want of memory.
    Pair::new().load(limits, json!({ "command": format!("{fill} || exit $?") }), |ended| {
        assert_eq!((ended.status().as_str(), ended.cause().as_str()), ("137", "out_of_memory"));
    });
}

#[test]
fn files_in_memory_count_and_files_on_disk_do_not() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let session = daemon.session(&json!({ "limits": { "memory_bytes_max": MEMORY } }));
    let write = |path: &str| {
        let count = (2 * MEMORY) >> 20;
        session.bash(&format!(
            "dd if=/dev/zero of={path} bs=1M count={count} status=none && echo whole"
        ))
    };
    let disk = write("/workspace/file");
    assert_eq!((disk.out().as_str(), disk.cause().as_str()), ("whole\n", "own"), "{}", disk.err());
    let memory = write("/dev/shm/file");
    assert_eq!((memory.out().as_str(), memory.cause().as_str()), ("", "out_of_memory"));
    // What fills the memory is there still, until it is removed.
    assert_eq!(session.bash("rm /dev/shm/file").status(), "0");
    works(&session);
    // A tmpfs has a size of its own, which is told as a full disk.
    let small = json!({ "limits": { "tmpfs_bytes_max": 4 << 20 } });
    let session = daemon.session(&small);
    for directory in ["/dev/shm", "/tmp"] {
        let script =
            format!("head -c 8M /dev/zero > {directory}/file; stat -c %s {directory}/file");
        let ended = session.bash(&script);
        assert_eq!((ended.out().as_str(), ended.cause().as_str()), ("4194304\n", "own"));
        assert!(ended.err().contains("No space left on device"), "{}", ended.err());
    }
    daemon.stop();
}

/// Two busy processes for a while; prints the CPU time they used for each second of wall time.
const BUSY: &str = "
import os, time
began = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() - began < 3:
            pass
        os._exit(0)
for _ in range(2):
    os.wait()
used = os.times()
print((used.children_user + used.children_system) / (time.monotonic() - began))
";

#[test]
fn busy_loops_share_the_cpu_time_of_their_session() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let limited = daemon.session(&json!({ "limits": { "cpu_millis_max": 200 } }));
    let free = daemon.session(&json!({}));
    let cgroup = Cgroup::of(&limited);
    let ratio = |ended: &Ended| -> f64 {
        assert_eq!(ended.status(), "0", "{}", ended.err());
        ended.out().trim().parse().unwrap()
    };
    let used = ratio(&limited.run(&python(BUSY)));
    // Half as much again for the edges of the kernel's periods.
    assert!(used < 0.3, "{used} CPUs of 0.2");
    assert!(cgroup.counter("cpu.stat", "nr_throttled") > 0);
    works(&limited);
    // Without the limit the same loops use more, however busy the host is.
    let unlimited = ratio(&free.run(&python(BUSY)));
    assert!(unlimited > used, "{unlimited} CPUs without a limit, {used} with one");
    limited.delete();
    free.delete();
    daemon.stop();
    assert_eq!(remains(&place.state()), [""; 0]);
}

#[test]
fn time_is_told_apart_from_other_ends() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let session = daemon.session(&json!({}));
    let after = |script: &str, timeout_ms: u64| {
        session.run(&json!({ "command": ["bash", "-c", script], "timeout_ms": timeout_ms }))
    };
    let told = |ended: &Ended| (ended.status(), ended.cause(), ended.out());
    let told_as = |status: &str, cause: &str, out: &str| {
        (status.to_owned(), cause.to_owned(), out.to_owned())
    };
    // A busy loop, and one that ignores what can be ignored and has left its process group.
    let busy = after("echo a; while :; do :; done", 1000);
    assert_eq!(told(&busy), told_as("signal 9", "timeout", "a\n"));
    let deaf = after("trap '' TERM INT HUP; echo b; setsid sleep 1000 & sleep 1000", 1000);
    assert_eq!(told(&deaf), told_as("signal 9", "timeout", "b\n"));
    // The same ends without a limit are the command's own.
    assert_eq!(told(&after("echo c; exit 3", 600_000)), told_as("3", "own", "c\n"));
    assert_eq!(told(&after("echo d; kill -KILL $$", 600_000)), told_as("signal 9", "own", "d\n"));
    let number = session.start_command(&json!({ "command": "echo e; sleep 1000" }));
    session.cancel(number);
    assert_eq!(session.finish(number).cause(), "cancelled");
    // What outlives its command is ended with it: nothing of the above is there any more.
    let left = session.bash("cat /proc/[0-9]*/comm | grep -c sleep");
    assert_eq!(left.out(), "0\n", "{}", left.err());
    daemon.stop();
}

#[test]
fn hangar_run_tells_the_limits_apart() {
    let place = Place::default();
    place.write("plain/x", "");
    let daemon = Daemon::start(&place.state());
    let fill = "exec python3 -c \"b'x' * (200 << 20)\"";
    let forks = "for i in $(seq 40); do sleep 1000 & done; echo not reached";
    let busy = format!("python3 -c '{}'", BUSY.replace("< 3", "< 1"));
    for (options, script, status, out, told) in [
        (&["--memory", "96M"][..], fill, 137, "", "the session's memory was used up"),
        (&["--pids", "16"], forks, 2, "", "the session ran into its limit on processes"),
        (&["--timeout", "0.5"], "echo a; sleep 1000", 137, "a\n", "its time was over"),
        (&[], "echo a; kill -KILL $$", 137, "a\n", ""),
    ] {
        let output = place.run(&[&["-q"], options].concat(), "plain", &["sh", "-c", script]);
        let said = stderr(&output);
        let got = (output.status.code(), stdout(&output));
        assert_eq!(got, (Some(status), out.to_owned()), "{script}: {said}");
        let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("hangar: ")).collect();
        match told {
            "" => assert_eq!(lines, [""; 0]),
            told => assert!(lines.len() == 1 && lines[0].contains(told), "{script}: {said}"),
        }
    }
    let output = place.run(&["-q", "--cpus", "0.2"], "plain", &["bash", "-c", &busy]);
    let used: f64 = stdout(&output).trim().parse().unwrap();
    assert!(used < 0.4, "{used} CPUs of 0.2");
    assert_eq!(daemon.get("/v1/hangar/sessions")["sessions"], json!([]));
    daemon.stop();
    assert_eq!(remains(&place.state()), [""; 0]);
}
