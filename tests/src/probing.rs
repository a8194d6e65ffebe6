//! Running one probe in a session that some steps of the launch were left out of.

use crate::tree::digest;
use crate::{peel_with_key, program, scratch};
use hangar_peel::spec::{Command, Outcome, Session, Spec};
use hangar_probe::catalogue::Probe;
use hangar_runtime::ids::{Block, Range};
use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the probe's program is in every session: in the environment it attacks.
pub const PROGRAM: &str = "/env/probe/hangar-probe";

/// Who owns the attacked tree on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The store, as freezing leaves it.
    Store,
    /// The root of the host; with `map-owners` that is the root of the session.
    Root,
    /// The root of the session.
    SessionRoot,
    /// The user of the session.
    Agent,
}

/// Results by attempt.
pub type Results = BTreeMap<String, String>;

/// What one run of a probe gave.
#[derive(Debug)]
pub struct Run {
    /// What each attempt gave; those of the other end of a probe with two are `holder: ATTEMPT`.
    pub results: Results,
    /// All that is known, for a message.
    pub outcome: Outcome,
    /// The environment before and after, on the host.
    pub trees: (Vec<String>, Vec<String>),
    /// The directory of the experiment.
    pub place: tempfile::TempDir,
}

thread_local! {
    /// Tests run side by side, each in a thread or a process of its own.
    static FIRST_BLOCK: u16 = {
        static THREADS: AtomicU32 = AtomicU32::new(0);
        let slot = (std::process::id() + THREADS.fetch_add(1, Ordering::Relaxed)) % 499;
        // Below 3000, where other tests launch, and with uids below 2^31, as real ones are.
        1000 + u16::try_from(slot * 4).expect("below 2,000")
    };
}

/// The first block of this test.
#[must_use]
pub fn first_block() -> u16 {
    FIRST_BLOCK.with(|block| *block)
}

fn block(index: u16) -> Block {
    Range::default().block(NonZeroU16::new(first_block() + index).expect("not 0"))
}

/// Makes the tree that probes attack, with the program in it.
///
/// # Panics
/// When it cannot be made.
pub fn prepare(at: &Path, owner: Owner) {
    let id = match owner {
        Owner::Store => Range::default().store(),
        Owner::Root => 0,
        Owner::SessionRoot => block(0).base,
        Owner::Agent => block(0).agent(),
    };
    let prepared = std::process::Command::new(program("hangar-probe"))
        .arg("prepare")
        .arg(at)
        .args([id.to_string(), block(0).base.to_string()])
        .status();
    assert!(prepared.expect("it starts").success());
    std::fs::copy(program("hangar-probe"), at.join("hangar-probe")).expect("copy");
}

/// Runs a probe without some steps, against a tree that belongs to `owner`.
///
/// # Panics
/// When the experiment cannot be made; a session that does not start is in the outcome.
#[must_use]
pub fn run(probe: &Probe, without: &[&str], owner: Owner) -> Run {
    let place = scratch();
    let environment = place.path().join("env");
    prepare(&environment, owner);
    let before = digest(&environment);
    let bystander = Bystander::new();
    let script = script(probe, bystander.0.id());
    let session = Session { environment: Some(environment.clone()), ..Session::default() };
    let outcome = peel_with_key(&Spec {
        directory: place.path().to_owned(),
        without: without.iter().map(|step| (*step).to_owned()).collect(),
        first_block: Some(first_block()),
        sessions: vec![session; script.sessions],
        commands: script.commands,
        inherited: Some("/".into()),
        ..Spec::default()
    });
    let output = |index: usize| outcome.commands.get(index).map(|command| command.stdout.clone());
    let mut results = match std::fs::read_to_string(place.path().join(REPORT)) {
        Ok(text) => parse(probe.id, &text),
        Err(_) => parse(probe.id, &output(script.taker).unwrap_or_default()),
    };
    if let Some(text) = script.holder.and_then(output) {
        let held = parse(probe.id, &text);
        results.extend(held.into_iter().map(|(name, got)| (format!("{HOLDER}{name}"), got)));
    }
    if probe.id == "P057" {
        forget_messages();
    }
    let after = digest(&environment);
    drop(bystander);
    Run { results, outcome, trees: (before, after), place }
}

/// What stands before an attempt of the other end.
pub const HOLDER: &str = "holder: ";

/// Where a probe writes whose standard output is what it looks at.
const REPORT: &str = "session-0/workdir/report";

/// Removes what P057 leaves where it shares the namespace of the host.
fn forget_messages() {
    let mut command = std::process::Command::new(program("hangar-probe"));
    let forgotten = command.args(["forget-messages", &first_block().to_string()]).status();
    assert!(forgotten.expect("it starts").success());
}

/// Results in the output of a probe.
#[must_use]
pub fn parse(id: &str, output: &str) -> Results {
    let lines = output.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &serde_json::Value| line["id"] == id)
        .filter_map(|line| {
            Some((line["attempt"].as_str()?.to_owned(), line["result"].as_str()?.to_owned()))
        })
        .collect()
}

/// A process of the host that no session may reach.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        let child = std::process::Command::new("sleep").arg("600").stdin(Stdio::null()).spawn();
        Self(child.expect("sleep"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let ended = self.0.try_wait().expect("own child");
        let _ = (self.0.kill(), self.0.wait());
        assert!(ended.is_none() || std::thread::panicking(), "a process of the host was ended");
    }
}

/// Which commands a probe is made of.
struct Script {
    sessions: usize,
    commands: Vec<Command>,
    /// The command whose results count.
    taker: usize,
    holder: Option<usize>,
}

fn command(session: usize, arguments: &[&str]) -> Command {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    Command { session, arguments, ..Command::default() }
}

fn shell(session: usize, line: &str) -> Command {
    command(session, &["sh", "-c", line])
}

/// Probes whose holder says more once it has held.
const TELLS_AT_THE_END: [&str; 1] = ["P063"];
/// Probes of one session that are told more than their id.
fn arguments(id: &str, bystander: u32) -> Vec<String> {
    let words = match id {
        "P034" => format!("P034 --pid {bystander}"),
        "P053" => format!("P053 --pid {bystander} --kill-all"),
        "P042" => "P042 --canary /env/probe/open/file".to_owned(),
        id => id.to_owned(),
    };
    words.split(' ').map(str::to_owned).collect()
}

fn script(probe: &Probe, bystander: u32) -> Script {
    let has = |attempt: &str| probe.attempts.iter().any(|known| known.name == attempt);
    let words = arguments(probe.id, bystander);
    let words: Vec<&str> =
        std::iter::once(PROGRAM).chain(words.iter().map(String::as_str)).collect();
    match probe.id {
        "P045c" => both_in_one_session(),
        "P066" => {
            let line = format!("exec {PROGRAM} P066 > /workspace/report");
            Script { sessions: 1, commands: vec![shell(0, &line)], taker: 0, holder: None }
        }
        "P068" => race(),
        "P053" | "P054" | "P055" | "P061" => beside_another(&words),
        id if has("holding") => holder_and_taker(id),
        _ => Script { sessions: 1, commands: vec![command(0, &words)], taker: 0, holder: None },
    }
}

/// The holder holds in one session while the taker takes in the other.
fn holder_and_taker(id: &str) -> Script {
    let awaited = TELLS_AT_THE_END.contains(&id);
    let seconds = if awaited { "4" } else { "30" };
    let key = first_block().to_string();
    let end = |session, role, seconds| {
        let options = ["--role", role, "--seconds", seconds, "--key", &key];
        command(session, &[&[PROGRAM, id][..], &options].concat())
    };
    let holder = Command { background: !awaited, awaited, ..end(0, "holder", seconds) };
    let commands = vec![holder, end(1, "taker", "2")];
    Script { sessions: 2, commands, taker: 1, holder: Some(0) }
}

/// The other session has a process, which lives on.
fn beside_another(words: &[&str]) -> Script {
    let sleeper =
        Command { background: true, ..shell(0, "echo $$ > /tmp/pid; echo here; exec sleep 100") };
    let lives = shell(0, "kill -0 $(cat /tmp/pid)");
    Script {
        sessions: 2,
        commands: vec![sleeper, command(1, words), lives],
        taker: 1,
        holder: None,
    }
}

/// One command aims at another command of its own session.
fn both_in_one_session() -> Script {
    let target = format!("echo $$ > /tmp/pid; exec {PROGRAM} P045c --role target");
    let target = Command { background: true, ..shell(0, &format!("{target} --seconds 30")) };
    let sender = "P045c --role sender --pid $(cat /tmp/pid)";
    let sender = shell(0, &format!("exec {PROGRAM} {sender}"));
    Script { sessions: 1, commands: vec![target, sender], taker: 1, holder: Some(0) }
}

/// How many commands are started while the racer tries to catch one of them.
const RACES: usize = 200;

fn race() -> Script {
    let racer = Command { awaited: true, ..command(0, &[PROGRAM, "P068", "--seconds", "4"]) };
    let victims = std::iter::repeat_n(command(0, &["true"]), RACES);
    let commands = std::iter::once(racer).chain(victims).collect();
    Script { sessions: 1, commands, taker: 0, holder: None }
}

/// The host directory of a session's working directory.
#[must_use]
pub fn workdir(run: &Run, session: usize) -> PathBuf {
    run.place.path().join(format!("session-{session}/workdir"))
}
