//! A strict session: every attempt gives what is expected, and the host is as it was.

use hangar_probe::catalogue::{Probe, is_expected};
use hangar_runtime::ids::BLOCK_SIZE;
use hangar_tests::host::Host;
use hangar_tests::probing::{HOLDER, Owner, Run, run};
use hangar_tests::processes;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

pub fn holds(probe: &Probe) {
    let before = Host::look();
    let run = run(probe, &[], Owner::Store);
    let id = probe.id;
    assert_eq!(run.outcome.error, None, "{id}: the session was not launched");
    let failed: Vec<_> = run
        .outcome
        .commands
        .iter()
        .filter(|command| command.end != "code 0" && command.end != "killed")
        .collect();
    assert!(failed.is_empty(), "{id}: {failed:?}");
    every_attempt_is_refused(probe, &run);
    if id == "P036" {
        the_sweep_is_golden(&run);
    }
    the_host_is_as_it_was(&before, &run, id);
}

fn every_attempt_is_refused(probe: &Probe, run: &Run) {
    let id = probe.id;
    for attempt in probe.attempts {
        let got = run.results.get(attempt.name);
        let held = run.results.get(&format!("{HOLDER}{}", attempt.name));
        assert!(got.or(held).is_some(), "{id}: {} was not tried: {run:#?}", attempt.name);
        if let Some(got) = got {
            let expected = attempt.expected;
            assert!(is_expected(expected, got), "{id}: {}: {got}, not {expected}", attempt.name);
        }
        if let Some(held) = held {
            let holds = held == "ok" || is_expected(attempt.expected, held);
            assert!(holds, "{id}: {} of the holder: {held}", attempt.name);
        }
    }
    for name in run.results.keys() {
        let listed = probe.expected(name.trim_start_matches(HOLDER)).is_some();
        let swept = id == "P036" && name.starts_with("call ");
        assert!(listed || swept, "{id}: {name} is not in the catalogue");
    }
}

/// P036: what each number gives is what the table of the filter says.
fn the_sweep_is_golden(run: &Run) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../seccomp/golden/command.txt");
    let golden = fs::read_to_string(path).expect("the golden table");
    let golden: BTreeMap<u32, &str> = golden
        .lines()
        .filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            Some((words.next()?.parse().ok()?, words.nth(1)?))
        })
        .collect();
    let mut compared = 0;
    for (name, got) in &run.results {
        let Some(number) = name.strip_prefix("call ").and_then(|n| n.parse().ok()) else {
            continue;
        };
        match golden.get(&number) {
            Some(&"allow") => assert_eq!(got, "ok", "{name}"),
            Some(&"by arguments") => {}
            Some(refusal) => assert_eq!(got, refusal, "{name}"),
            None => assert_eq!(got, "ENOSYS", "{name} is newer than the table"),
        }
        compared += 1;
    }
    assert!(compared > 590, "only {compared} numbers were tried");
}

fn the_host_is_as_it_was(before: &Host, run: &Run, id: &str) {
    assert_eq!(run.trees.0, run.trees.1, "{id}: the environment changed");
    assert_eq!(run.outcome.left, Vec::<String>::new(), "{id}");
    let after = Host::look();
    assert_eq!((&before.name, &before.settings), (&after.name, &after.settings), "{id}");
    let place = run.place.path().to_string_lossy().into_owned();
    let new: Vec<_> = after.mounts.iter().filter(|mount| mount.contains(&place)).collect();
    assert!(new.is_empty(), "{id}: {new:?}");
    for base in &run.outcome.blocks {
        nothing_is_left_of(*base, id);
    }
    let dumps = fs::read_dir(run.place.path().join("session-0/workdir")).expect("workdir");
    let dumps = dumps.flatten().filter(|e| e.file_name().to_string_lossy().starts_with("core"));
    assert_eq!(dumps.count(), 0, "{id}: a core file");
}

/// No process, key, message or semaphore of a block's uids is on the host.
fn nothing_is_left_of(base: u32, id: &str) {
    let of_block = |uid: u32| uid >= base && uid - base < BLOCK_SIZE;
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let processes: Vec<_> =
            processes::all().into_iter().filter(|p| of_block(p.uid)).map(|p| p.command).collect();
        // The kernel collects keys of nobody in its own time.
        let keys = owned("/proc/keys", 5, of_block);
        let messages: Vec<String> = ["shm", "sem", "msg"]
            .iter()
            .flat_map(|kind| owned(&format!("/proc/sysvipc/{kind}"), ipc_owner(kind), of_block))
            .collect();
        if processes.is_empty() && keys.is_empty() && messages.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "{id}: left: {processes:?} {keys:?} {messages:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The column of the owner in `/proc/sysvipc`.
fn ipc_owner(kind: &str) -> usize {
    match kind {
        "sem" => 4,
        _ => 7,
    }
}

/// Lines of a table whose uid column is one of these.
fn owned(table: &str, column: usize, of_block: impl Fn(u32) -> bool) -> Vec<String> {
    assert!(Path::new(table).exists(), "{table} is not there to be looked at");
    let text = fs::read_to_string(table).expect("read");
    let uid = |line: &str| line.split_whitespace().nth(column)?.parse().ok();
    text.lines().filter(|line| uid(line).is_some_and(&of_block)).map(str::to_owned).collect()
}
