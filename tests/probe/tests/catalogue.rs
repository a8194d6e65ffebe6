//! The catalogue is whole, names real steps, and lists what the probes report.
//!
//! The probes run here as an ordinary user of the host, with no barrier at all. That is the ground
//! control: where a user of the host may do a thing, the probe has to get it done, or its refusal
//! in a session would prove nothing.

use hangar_probe::catalogue::{is_expected, probe, probes};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A uid that owns nothing and that nothing else of the host runs as.
const SOMEBODY: u32 = 1_879_900_001;

fn ids() -> Vec<String> {
    let plain = (1..=45).chain(53..=73).map(|number| format!("P{number:03}"));
    let letters = ["P021b", "P021c", "P041b", "P041c", "P045b", "P045c", "P063b"];
    plain.chain(letters.map(str::to_owned)).collect()
}

#[test]
fn every_id_is_there_once() {
    let known: Vec<&str> = probes().map(|probe| probe.id).collect();
    let unique: BTreeSet<&str> = known.iter().copied().collect();
    assert_eq!(known.len(), unique.len());
    let wanted = ids();
    assert_eq!(unique, wanted.iter().map(String::as_str).collect());
}

#[test]
fn steps_are_steps_of_the_launch() {
    let launch: BTreeSet<&str> =
        hangar_runtime::steps::LAUNCH.iter().map(|step| step.name).collect();
    for probe in probes() {
        let mut steps = probe.steps.iter().chain(probe.needed);
        let barrier = probe.steps.len() + probe.needed.len() + probe.beyond.len();
        assert!(barrier > 0, "{}: no barrier", probe.id);
        assert!(
            steps.all(|step| launch.contains(step)),
            "{}: {:?} {:?}",
            probe.id,
            probe.steps,
            probe.needed
        );
    }
}

#[test]
fn attempts_have_one_name_and_an_outcome_each() {
    for probe in probes() {
        let names: BTreeSet<&str> = probe.attempts.iter().map(|attempt| attempt.name).collect();
        assert_eq!(names.len(), probe.attempts.len(), "{}", probe.id);
        assert!(probe.attempts.iter().all(|attempt| !attempt.expected.is_empty()));
    }
    assert!(is_expected("EPERM|EINVAL", "EINVAL+EPERM"));
    assert!(!is_expected("EPERM|EINVAL", "EINVAL+ok"));
}

/// One test at a time: names in /tmp and keys of messages are the host's, and a program that is
/// being copied cannot be run while another test forks.
static HOST: Mutex<()> = Mutex::new(());

/// The tree the probes attack, and a working directory.
struct Ground {
    directory: tempfile::TempDir,
    _host: MutexGuard<'static, ()>,
}

impl Ground {
    fn new() -> Self {
        // A test that failed leaves nothing another depends on.
        let host = HOST.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let ground = Self { directory, _host: host };
        let program = ground.path("hangar-probe");
        std::fs::copy(env!("CARGO_BIN_EXE_hangar-probe"), &program).unwrap();
        let env = ground.path("env");
        let prepared = Command::new(&program).args(["prepare", &env]).status().unwrap();
        assert!(prepared.success(), "the tests need root");
        let workspace = ground.path("workspace");
        std::fs::create_dir(&workspace).unwrap();
        chown(Path::new(&workspace), Some(SOMEBODY), Some(SOMEBODY)).unwrap();
        ground
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.path("hangar-probe"));
        command
            .args(arguments)
            .env("PROBE_ENV", self.path("env"))
            .env("PROBE_WORKSPACE", self.path("workspace"))
            .current_dir(self.path("workspace"))
            .stdin(Stdio::null())
            .uid(SOMEBODY)
            .gid(SOMEBODY);
        command
    }

    /// Results by attempt.
    fn run(&self, arguments: &[&str]) -> BTreeMap<String, String> {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                assert_eq!(line["id"], arguments[0]);
                let field = |name: &str| line[name].as_str().unwrap().to_owned();
                (field("attempt"), field("result"))
            })
            .collect()
    }
}

/// Attempts of one end of a probe across sessions, or that need an option.
fn needs_more(id: &str, attempt: &str) -> bool {
    let other_end = attempt == "holding"
        || ["plant in", "offer in", "find in"].iter().any(|start| attempt.starts_with(start));
    other_end
        || match id {
            "P034" => attempt == "read stat of the given process",
            "P042" => attempt.contains("canary"),
            "P045c" => attempt == "pid",
            "P053" => !attempt.contains("hidden") && !attempt.contains("learn"),
            "P060" => ["bind", "listen"].contains(&attempt),
            "P063" => attempt == "read the environment",
            _ => false,
        }
}

#[test]
fn probes_report_the_attempts_of_the_catalogue() {
    let ground = Ground::new();
    for probe in probes() {
        let results = ground.run(&[probe.id, "--seconds", "1"]);
        for name in results.keys() {
            let sweep = probe.id == "P036" && name.starts_with("call ");
            assert!(sweep || probe.expected(name).is_some(), "{}: {name} is not listed", probe.id);
        }
        for attempt in probe.attempts.iter().filter(|a| !needs_more(probe.id, a.name)) {
            assert!(
                results.contains_key(attempt.name),
                "{}: {} is missing",
                probe.id,
                attempt.name
            );
        }
    }
}

/// What any user of a host may do, where no session keeps it away.
const HARM: &[(&str, &[&str])] = &[
    ("P001", &["write file", "append open/file", "open file O_TRUNC", "truncate open/file"]),
    ("P002", &["create a file", "O_TMPFILE", "mkdir", "mkfifo", "symlink", "bind a socket"]),
    ("P003", &["exchange inside", "rename out", "rename in"]),
    ("P008", &["open through proc", "openat2 through proc", "reopen O_PATH"]),
    ("P017", &["the same in nested namespaces"]),
    ("P018", &["unshare", "clone", "clone3"]),
    ("P028", &["ADDR_NO_RANDOMIZE", "READ_IMPLIES_EXEC", "PER_LINUX32"]),
    ("P034", &["processes of others", "read cmdline of init", "read stat of init"]),
    ("P038", &["int 0x80 getpid", "run it"]),
    ("P039", &["clone with garbage above"]),
    ("P040", &["io_uring_setup", "userfaultfd", "kcmp", "pidfd_getfd", "modify_ldt"]),
    ("P041c", &["no filter is in force", "refused calls stay refused below an allowing filter"]),
    ("P042", &["write the environment", "create in the environment"]),
    ("P053", &["learn that a process of others exists"]),
    ("P064", &["/tmp is something else", "directories of the host"]),
];

#[test]
fn without_a_session_the_attacks_succeed() {
    for (id, attempts) in HARM {
        let ground = Ground::new();
        let results = ground.run(&[id]);
        for attempt in *attempts {
            assert!(probe(id).unwrap().expected(attempt).is_some(), "{id}: {attempt}");
            assert_eq!(results[*attempt], "ok", "{id}: {attempt}");
        }
    }
}

/// Runs both ends side by side; the results of the taker.
fn both_ends(ground: &Ground, id: &str) -> BTreeMap<String, String> {
    let mut holder = ground
        .command(&[id, "--role", "holder", "--seconds", "30"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
    assert!(lines.map(Result::unwrap).any(|line| line.contains("holding")), "{id}: no holder");
    let results = ground.run(&[id, "--role", "taker", "--seconds", "1"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    results
}

#[test]
fn without_sessions_one_end_reaches_the_other() {
    let ground = Ground::new();
    assert_eq!(both_ends(&ground, "P056")["find in /tmp"], "ok");
    assert_eq!(both_ends(&ground, "P057")["shared memory"], "ok");
    assert_eq!(both_ends(&ground, "P060")["connect"], "ok");
    assert_eq!(both_ends(&ground, "P062")["flock"], "EAGAIN");
    assert_eq!(both_ends(&ground, "P062")["see a lock of the other session"], "ok");
    assert_eq!(both_ends(&ground, "P063")["events of the other session"], "ok");
    for path in ["/tmp", "/dev/shm", "/var/tmp"] {
        let _ = std::fs::remove_file(format!("{path}/hangar-probe-planted"));
    }
    hangar_probe::cross::forget_messages(hangar_probe::cross::IPC_KEY);
}
