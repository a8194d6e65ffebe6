//! Kernel settings that decide how much a mistake elsewhere would cost.

use super::Finding;

struct Setting {
    name: &'static str,
    path: &'static str,
    safe: &'static [&'static str],
    remedy: &'static str,
}

const SETTINGS: [Setting; 9] = [
    Setting {
        name: "legacy TIOCSTI",
        path: "dev/tty/legacy_tiocsti",
        safe: &["0"],
        remedy: "sysctl dev.tty.legacy_tiocsti=0; sessions are held by the filter and own terminals",
    },
    Setting {
        name: "protected hard links",
        path: "fs/protected_hardlinks",
        safe: &["1"],
        remedy: "sysctl fs.protected_hardlinks=1",
    },
    Setting {
        name: "protected symbolic links",
        path: "fs/protected_symlinks",
        safe: &["1"],
        remedy: "sysctl fs.protected_symlinks=1",
    },
    Setting {
        name: "kernel pointers",
        path: "kernel/kptr_restrict",
        safe: &["1", "2"],
        remedy: "sysctl kernel.kptr_restrict=1",
    },
    Setting {
        name: "kernel log",
        path: "kernel/dmesg_restrict",
        safe: &["1"],
        remedy: "sysctl kernel.dmesg_restrict=1; sessions are held by the filter",
    },
    Setting {
        name: "unprivileged bpf",
        path: "kernel/unprivileged_bpf_disabled",
        safe: &["1", "2"],
        remedy: "sysctl kernel.unprivileged_bpf_disabled=2; sessions are held by the filter",
    },
    Setting {
        name: "io_uring",
        path: "kernel/io_uring_disabled",
        safe: &["1", "2"],
        remedy: "sysctl kernel.io_uring_disabled=2; sessions are held by the filter",
    },
    Setting {
        name: "userfaultfd",
        path: "vm/unprivileged_userfaultfd",
        safe: &["0"],
        remedy: "sysctl vm.unprivileged_userfaultfd=0; sessions are held by the filter",
    },
    Setting {
        name: "core dumps of setuid",
        path: "fs/suid_dumpable",
        safe: &["0"],
        remedy: "sysctl fs.suid_dumpable=0",
    },
];

pub(super) fn findings() -> Vec<Finding> {
    let mut findings: Vec<_> = SETTINGS.iter().filter_map(setting).collect();
    findings.push(core_pattern());
    findings.push(swap());
    findings
}

/// A setting this kernel does not have is not reported.
fn setting(setting: &Setting) -> Option<Finding> {
    let text = std::fs::read_to_string(format!("/proc/sys/{}", setting.path)).ok()?;
    let value = text.trim();
    let found = format!("{} = {value}", setting.path.replace('/', "."));
    Some(if setting.safe.contains(&value) {
        Finding::good(setting.name, found)
    } else {
        Finding::weaker(setting.name, found, setting.remedy)
    })
}

fn core_pattern() -> Finding {
    let name = "core dump handler";
    match std::fs::read_to_string("/proc/sys/kernel/core_pattern") {
        Ok(pattern) if pattern.starts_with('|') => Finding::weaker(
            name,
            format!("a program: {}", pattern.trim()),
            "it runs outside of sessions; hangar's core limit of 1 keeps it from being started",
        ),
        Ok(pattern) => Finding::good(name, format!("a file: {}", pattern.trim())),
        Err(error) => Finding::weaker(name, format!("core_pattern: {error}"), ""),
    }
}

fn swap() -> Finding {
    let name = "swap";
    match std::fs::read_to_string("/proc/swaps") {
        Ok(text) if text.lines().count() > 1 => Finding::weaker(
            name,
            "in use",
            "memory of sessions can reach the disk where cgroup v2 does not keep it from swapping",
        ),
        _ => Finding::good(name, "none"),
    }
}
