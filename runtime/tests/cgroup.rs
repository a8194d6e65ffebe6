//! Groups on the real kernel; runs as root.

use hangar_runtime::cgroup::{Cgroups, GroupLimits, SessionCgroup};
use hangar_runtime::ids::CommandId;
use rustix::fd::AsRawFd;
use std::process::{Child, Command, Stdio};

const LIMITS: GroupLimits =
    GroupLimits { pids_max: 20, memory_bytes_max: 64 << 20, cpu_millis_max: Some(500) };

/// Starts a shell script whose processes are all in the group: it waits for a line first.
fn start_in(group: &SessionCgroup, leaf: &std::os::fd::OwnedFd, script: &str) -> Child {
    let mut child = Command::new("/bin/sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    group.attach_v1(i32::try_from(child.id()).unwrap()).unwrap();
    std::fs::write(format!("/proc/self/fd/{}/cgroup.procs", leaf.as_raw_fd()), pid).unwrap();
    use std::io::Write;
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    child
}

fn remove(group: &SessionCgroup) {
    group.kill_all().unwrap();
    for _ in 0..2000 {
        if group.try_remove().unwrap() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("the group does not empty");
}

#[test]
fn limits_hold_and_are_told_apart() {
    let cgroups = Cgroups::detect("test-limits").unwrap();
    let group = cgroups.create("one", &LIMITS, 1_900_000_000).unwrap();
    let before = group.counters().unwrap();

    let leaf = group.command_leaf(CommandId(1)).unwrap();
    let forks = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; \
                 do sleep 5 & done; wait";
    let mut child = start_in(&group, &leaf, forks);
    child.wait().unwrap();
    let met = group.counters().unwrap();
    assert!(met.pids_limit_hits > before.pids_limit_hits);
    assert_eq!(met.oom_kills, before.oom_kills);
    assert!(!group.leaf_is_empty(CommandId(1)).unwrap(), "the sleeps are still there");
    group.kill_leaf(CommandId(1)).unwrap();
    while !group.try_remove_leaf(CommandId(1)).unwrap() {}
    assert!(group.leaf_is_empty(CommandId(1)).unwrap());

    let before = group.counters().unwrap();
    let leaf = group.command_leaf(CommandId(2)).unwrap();
    let fill = "exec python3 -c 'b = bytearray(200 << 20)'";
    let status = start_in(&group, &leaf, fill).wait().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(status.signal(), Some(9));
    assert!(group.counters().unwrap().oom_kills > before.oom_kills);
    remove(&group);
    cgroups.remove_parents();
}

#[test]
fn what_an_earlier_warden_left_is_killed_and_removed() {
    let cgroups = Cgroups::detect("test-tidy").unwrap();
    let group = cgroups.create("left", &LIMITS, 0).unwrap();
    let paths = group.paths();
    let leaf = group.command_leaf(CommandId(7)).unwrap();
    let mut child = start_in(&group, &leaf, "sleep 100 & sleep 100");
    let reaper = std::thread::spawn(move || child.wait().unwrap());
    drop(group);
    assert_eq!(Cgroups::detect("test-tidy").unwrap().tidy().unwrap(), ["left"]);
    assert!(!reaper.join().unwrap().success());
    assert!(cgroups.tidy().unwrap().is_empty());
    cgroups.remove_parents();
    assert!(paths.iter().any(|(list, path)| list.is_empty() && path.ends_with("/left")));
}

#[test]
fn a_group_is_made_once() {
    let cgroups = Cgroups::detect("test-once").unwrap();
    let group = cgroups.create("one", &LIMITS, 0).unwrap();
    assert!(cgroups.create("one", &LIMITS, 0).unwrap_err().to_string().contains("mkdir"));
    let tiny = GroupLimits { cpu_millis_max: Some(1), ..LIMITS };
    assert!(cgroups.create("two", &tiny, 0).is_err(), "a quota the kernel refuses");
    assert_eq!(cgroups.tidy().unwrap(), ["one"], "a failed creation leaves nothing");
    drop(group);
    cgroups.remove_parents();
}
