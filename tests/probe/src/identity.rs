//! C: users, groups, capabilities.

use crate::call;
use crate::files::{CAPABILITY, current_uid};
use crate::mounts::run_planted;
use crate::report::Report;
use crate::sys::{self, c};

/// Lines of `/proc/<pid>/status`.
pub fn status_field(pid: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line =
        text.lines().find(|line| line.strip_prefix(name).is_some_and(|l| l.starts_with(':')))?;
    Some(line[name.len() + 1..].trim().to_owned())
}

/// Numbers below `/proc`.
pub fn visible_processes() -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// P022: capabilities of this process and of every visible one.
pub fn capabilities(report: &Report) {
    const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
    let of = |pid: &str| -> Vec<String> {
        SETS.iter()
            .filter_map(|set| Some((set, status_field(pid, set)?)))
            .filter(|(_, value)| value.bytes().any(|digit| digit != b'0'))
            .map(|(set, value)| format!("{pid}:{set}={value}"))
            .collect()
    };
    report.search("own capabilities", &of("self"));
    let others: Vec<String> =
        visible_processes().iter().flat_map(|pid| of(&pid.to_string())).collect();
    report.search("capabilities of visible processes", &others);
}

/// P023: `no_new_privs` and the securebits.
pub fn privilege_locks(report: &Report) {
    let prctl = |option: i32, value: u64| call!(libc::SYS_prctl, option, value, 0, 0, 0);
    let no_new_privs = prctl(libc::PR_GET_NO_NEW_PRIVS, 0);
    report.effect("no_new_privs is off", no_new_privs != Ok(1), &format!("{no_new_privs:?}"));
    report.attempt("clear no_new_privs", prctl(libc::PR_SET_NO_NEW_PRIVS, 0));
    let bits = prctl(libc::PR_GET_SECUREBITS, 0);
    // Locked: NOROOT, NO_SETUID_FIXUP, KEEP_CAPS, NO_CAP_AMBIENT_RAISE.
    let locks = bits.map_or(0, |bits| bits & 0b1010_1010);
    report.effect("securebits are open", locks != 0b1010_1010, &format!("{bits:?}"));
    report.attempt("PR_SET_KEEPCAPS", prctl(libc::PR_SET_KEEPCAPS, 1));
    report.attempt("PR_SET_SECUREBITS", prctl(libc::PR_SET_SECUREBITS, 0));
}

/// P024: other users and groups.
pub fn other_users(report: &Report) {
    let mut list = vec![0_u8; 4 * 1024];
    let count = call!(libc::SYS_getgroups, 1024, list.as_mut_slice());
    report.effect(
        "supplementary groups",
        count.is_ok_and(|count| count > 0),
        &format!("{count:?}"),
    );
    report.attempt("setgroups", call!(libc::SYS_setgroups, 1, &[0_u8; 4][..]));
    report.attempt("setgid", call!(libc::SYS_setgid, 0));
    report.attempt("setuid", call!(libc::SYS_setuid, 0));
    report.attempt("setresuid", call!(libc::SYS_setresuid, 0, 0, 0));
    report.attempt("setresgid", call!(libc::SYS_setresgid, 0, 0, 0));
    let _ = call!(libc::SYS_setfsuid, 0);
    // setfsuid has no error; asking for an impossible uid tells the one in force.
    let now = call!(libc::SYS_setfsuid, -1);
    report.effect("setfsuid", now == Ok(0), &format!("{now:?}"));
    let _ = call!(libc::SYS_setfsuid, current_uid());
}

/// P025: files whose owner the host looks at.
pub fn owner_of_new_files(report: &Report) {
    let path = report.work("owned");
    report.attempt("create a file", std::fs::write(&path, b"").map_err(|e| sys::errno(&e)));
    report.fact("own uid", &current_uid().to_string());
}

/// P026: id maps.
pub fn id_maps(report: &Report) {
    for pid in ["self", "1"] {
        for (file, text) in [("uid_map", "0 0 1"), ("gid_map", "0 0 1"), ("setgroups", "deny")] {
            let who = if pid == "self" { "own" } else { "init's" };
            report.attempt(&format!("write {who} {file}"), {
                sys::write(&format!("/proc/{pid}/{file}"), text.as_bytes())
            });
        }
    }
}

/// P027: capabilities from a file.
pub fn file_capabilities(report: &Report) {
    run_planted(report, "file capability in the environment", &report.env("filecap"));
    let mine = report.work("filecap");
    let copied = std::fs::copy("/proc/self/exe", &mine).map_err(|e| sys::errno(&e));
    report.attempt(
        "give a file a capability",
        copied.and_then(|_| {
            let (file, name) = (c(&mine), c("security.capability"));
            call!(libc::SYS_setxattr, &file, &name, &CAPABILITY[..], 20, 0)
        }),
    );
    run_planted(report, "run it", &mine);
}

/// P028: personalities.
pub fn personalities(report: &Report) {
    let set = |persona: u64| {
        sys::in_child(|| call!(libc::SYS_personality, persona).map(|before| before.to_string()))
    };
    report.child("ask", set(0xffff_ffff));
    report.child("ADDR_NO_RANDOMIZE", set(0x4_0000));
    report.child("READ_IMPLIES_EXEC", set(0x40_0000));
    report.child("PER_LINUX32", set(8));
}
