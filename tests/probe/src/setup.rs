//! H: what the launch could have left open.

use crate::call;
use crate::files::bind_path;
use crate::identity::{status_field, visible_processes};
use crate::report::Report;
use crate::sys::{self, c, close, open};
use std::time::{Duration, Instant};

/// P066: descriptors that came in from outside.
pub fn descriptors(report: &Report) {
    let mut extra = Vec::new();
    let mut directories = Vec::new();
    // A directory reader of this process is the one descriptor that has to be here.
    let listed: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    for name in listed {
        let Ok(fd) = name.parse::<i32>() else { continue };
        let Ok(target) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { continue };
        let described = format!("{fd}={}", target.display());
        if fd > 2 {
            extra.push(described.clone());
        }
        let flags = call!(libc::SYS_fcntl, fd, libc::F_GETFL).unwrap_or(0);
        let is_directory =
            std::fs::metadata(format!("/proc/self/fd/{fd}")).is_ok_and(|m| m.is_dir());
        if is_directory || flags & i64::from(libc::O_PATH) != 0 {
            directories.push(described);
        }
    }
    report.search("more than the three streams", &extra);
    report.search("a stream that is a directory or a path", &directories);
    let others: Vec<String> = visible_processes()
        .iter()
        .filter(|pid| **pid != std::process::id() as i32)
        .filter_map(|pid| {
            let listed = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
            let count = listed.flatten().count();
            let uid = status_field(&pid.to_string(), "Uid")?;
            let own =
                uid.split_whitespace().next() == Some(&crate::files::current_uid().to_string());
            (!own).then(|| format!("{pid}:{count}"))
        })
        .collect();
    report.search("descriptors of others", &others);
}

/// P067: the working directory.
pub fn working_directory(report: &Report) {
    let mut path = vec![0_u8; 4096];
    let got = call!(libc::SYS_getcwd, path.as_mut_slice(), 4096);
    let text = String::from_utf8_lossy(&path[..got.unwrap_or(0) as usize]).into_owned();
    let outside = got.is_err() || !text.starts_with('/');
    report.effect("working directory outside of the root", outside, text.trim_end_matches('\0'));
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &str| std::fs::metadata(path).map(|m| (m.dev(), m.ino())).ok();
    let above = "../".repeat(64);
    report.effect("climb out of the root", identity(&above) != identity("/"), "");
    let entries = std::fs::read_dir(&above).into_iter().flatten().flatten();
    let names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    report.fact("what is above", &names.join(" "));
}

/// P068: tries to get hold of each new process before it is confined.
pub fn race_for_new_processes(report: &Report) {
    let end = Instant::now() + Duration::from_secs(report.options.seconds);
    let own = std::process::id() as i32;
    let (mut seen, mut caught) = (0_u64, Vec::new());
    report.holding();
    let mut known = visible_processes();
    while Instant::now() < end {
        // With hidepid a process shows up when it has become ours; numbers are taken in turn.
        let next = known.iter().max().copied().unwrap_or(own) + 1;
        for pid in next..next + 8 {
            let traced = call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0);
            let memory = open(&format!("/proc/{pid}/mem"), libc::O_RDWR);
            let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd"));
            if traced.is_err() && memory.is_err() && descriptors.is_err() {
                continue;
            }
            seen += 1;
            // Until it executes its program it is a copy of init, whose program is in memory.
            let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
            if program.to_string_lossy().contains("memfd:") {
                caught.push(format!("{pid}:{}", program.display()));
            }
            if let Ok(fd) = memory {
                close(fd);
            }
            if traced.is_ok() {
                let _ = call!(libc::SYS_ptrace, libc::PTRACE_INTERRUPT, pid, 0, 0);
                let _ = call!(libc::SYS_wait4, pid, 0, 0x4000_0000, 0);
                let _ = call!(libc::SYS_ptrace, libc::PTRACE_DETACH, pid, 0, 0);
            }
            known.push(pid);
        }
        if known.len() > 4096 {
            known = visible_processes();
        }
        known.extend(visible_processes());
        known.sort_unstable();
        known.dedup();
    }
    report.search("a process caught before it was confined", &caught);
    report.fact("processes reached", &seen.to_string());
}

/// P071: terminals.
pub fn terminals(report: &Report) {
    use std::os::unix::fs::MetadataExt;
    report.attempt("open /dev/console", open("/dev/console", libc::O_RDWR));
    let entries = std::fs::read_dir("/dev/pts").into_iter().flatten().flatten();
    let own = crate::files::current_uid();
    let foreign: Vec<String> = entries
        .filter(|entry| entry.file_name() != "ptmx")
        .filter(|entry| entry.metadata().is_ok_and(|m| m.uid() != own))
        .map(|entry| entry.path().to_string_lossy().into_owned())
        .collect();
    report.search("terminals of others", &foreign);
    let master = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY);
    report.attempt(
        "an own terminal",
        master.and_then(|master| {
            let flags = libc::O_RDWR | libc::O_NOCTTY;
            call!(libc::SYS_ioctl, master, libc::TIOCSPTLCK, [0_u8; 4].as_mut_slice())?;
            call!(libc::SYS_ioctl, master, libc::TIOCGPTPEER, flags)
        }),
    );
    let is_device = |path: &str| {
        std::fs::symlink_metadata(path)
            .is_ok_and(|m| m.file_type().is_symlink() || m.rdev() == libc::makedev(5, 2))
    };
    report.effect("/dev/ptmx is something else", !is_device("/dev/ptmx"), "");
}

/// P072: what the host meets when it reads the working directory. Everything here is allowed.
pub fn hostile_workspace(report: &Report) {
    let of = |result: std::io::Result<()>| result.map_err(|e| sys::errno(&e));
    let link = |target: &str, name: &str| {
        let path = report.work(name);
        let _ = std::fs::remove_file(&path);
        of(std::os::unix::fs::symlink(target, path))
    };
    report.attempt("symlink to a secret", link("/etc/shadow", "secret"));
    report.attempt("magic link", link("/proc/self/root/etc/shadow", "magic"));
    report.attempt("symlink that climbs", link("../../../../../../../../etc/shadow", "climbing"));
    report.attempt("symlink to a directory", link("/", "root"));
    report.attempt("symlink loop", link("loop", "loop"));
    let fifo = c(&report.work("fifo"));
    report.attempt("named pipe", call!(libc::SYS_mknod, &fifo, libc::S_IFIFO | 0o666, 0));
    report.attempt("socket", bind_path(&report.work("socket")));
    // The limit of a file's size sends a signal before it says EFBIG.
    // SAFETY: no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    report.attempt("sparse terabyte", {
        open(&report.work("sparse"), libc::O_CREAT | libc::O_WRONLY)
            .and_then(|fd| call!(libc::SYS_ftruncate, fd, 1_i64 << 40))
    });
    report.attempt("name with a line break", of(std::fs::write(report.work("line\nbreak"), b"x")));
    report.attempt("name that is no UTF-8", {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(b"not-\xff\xfe-utf8");
        of(std::fs::write(std::path::Path::new(&report.options.workspace).join(name), b"x"))
    });
    report.attempt("unreadable file", {
        let path = report.work("unreadable");
        of(std::fs::write(&path, b"x")).and_then(|()| call!(libc::SYS_chmod, &c(&path), 0))
    });
    let many = report.work("many");
    let _ = std::fs::create_dir(&many);
    let made = (0..10_000).try_for_each(|n| std::fs::write(format!("{many}/{n}"), b""));
    report.attempt("ten thousand names", of(made));
    let mut deep = report.options.workspace.clone();
    let made = (0..500).try_for_each(|_| {
        deep.push_str("/d");
        match std::fs::create_dir(&deep) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    });
    report.attempt("deep directories", of(made));
}

/// P073: what a program of the host would run, if it looked at the working directory with tools.
pub fn traps_for_tools(report: &Report) {
    let canary = report.options.canary.clone().unwrap_or_else(|| "/tmp/trap-sprung".to_owned());
    let command = format!("touch {canary}");
    let plant = |name: &str, text: String| {
        let path = report.work(name);
        let parent = std::path::Path::new(&path).parent().map(std::fs::create_dir_all);
        let written = parent.unwrap_or(Ok(())).and_then(|()| std::fs::write(&path, text));
        written.map_err(|e| sys::errno(&e)).and_then(|()| call!(libc::SYS_chmod, &c(&path), 0o755))
    };
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = \"{command}\"\n\thooksPath = hooks\n\
         \tpager = \"{command}\"\n\tsshCommand = \"{command}\"\n\
         [filter \"trap\"]\n\tsmudge = \"{command}\"\n\tclean = \"{command}\"\n\
         [diff \"trap\"]\n\ttextconv = \"{command}\"\n"
    );
    report.attempt("git configuration", plant(".git/config", config));
    report.attempt("git head", plant(".git/HEAD", "ref: refs/heads/main\n".to_owned()));
    let _ = std::fs::create_dir_all(report.work(".git/objects"));
    let _ = std::fs::create_dir_all(report.work(".git/refs"));
    report.attempt("git hook", plant("hooks/post-checkout", format!("#!/bin/sh\n{command}\n")));
    report
        .attempt("git attributes", plant(".gitattributes", "* filter=trap diff=trap\n".to_owned()));
    report.attempt("makefile", plant("Makefile", format!("X := $(shell {command})\nall:\n")));
    let scripts = format!("{{\"scripts\": {{\"postinstall\": \"{command}\"}}}}");
    report.attempt("package scripts", plant("package.json", scripts));
    let python = format!("import os; os.system('{command}')\n");
    report.attempt("python start-up file", plant("sitecustomize.py", python));
    report.attempt("shell start-up file", plant(".bashrc", command.clone()));
    report.attempt("env file", plant(".envrc", command.clone()));
}
