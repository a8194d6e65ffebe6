//! G: from one session to another. `--role holder` prints what it holds, then waits until its
//! input ends or `--seconds` are over; `--role taker` runs in the other session meanwhile.

use crate::call;
use crate::files::{bind_path, current_uid, unix_address};
use crate::identity::{status_field, visible_processes};
use crate::report::Report;
use crate::sys::{self, Errno, Got, c, close, open};
use std::os::unix::fs::FileTypeExt;
use std::time::{Duration, Instant};

fn is_holder(report: &Report) -> bool {
    report.options.role.as_deref() == Some("holder")
}

/// Waits until the input ends, where it is a pipe that can, or the time is over.
pub fn hold(report: &Report) {
    report.holding();
    let input = std::fs::metadata("/proc/self/fd/0");
    let can_end = input.is_ok_and(|metadata| metadata.file_type().is_fifo());
    let mut poll = 0_i32.to_ne_bytes().to_vec();
    poll.extend(1_u32.to_ne_bytes());
    let end = Instant::now() + Duration::from_secs(report.options.seconds);
    while Instant::now() < end {
        let ready = call!(libc::SYS_poll, poll.as_mut_slice(), u64::from(can_end), 100);
        if ready == Ok(1) && call!(libc::SYS_read, 0, [0_u8; 64].as_mut_slice(), 64) == Ok(0) {
            return;
        }
    }
}

/// The largest process number of a 64-bit kernel.
const PID_MAX: i32 = 4_194_304;

/// P053: every process number there can be.
pub fn every_process(report: &Report) {
    let (mut reached, mut known) = (Vec::new(), Vec::new());
    let visible = visible_processes();
    for pid in 1..PID_MAX {
        match call!(libc::SYS_kill, pid, 0) {
            // Threads answer too; their number is no directory of /proc but can be looked up.
            Ok(_)
                if !visible.contains(&pid) && status_field(&pid.to_string(), "Tgid").is_none() =>
            {
                reached.push(pid.to_string());
            }
            Err(Errno(libc::EPERM)) if pid != 1 => known.push(pid.to_string()),
            _ => {}
        }
    }
    report.search("signal a hidden process", &reached);
    report.search("learn that a process of others exists", &known);
    if let Some(pid) = report.options.pid {
        given_process(report, pid);
    }
    if report.options.kill_all {
        report.attempt("kill(-1)", call!(libc::SYS_kill, -1, libc::SIGTERM));
    }
}

fn given_process(report: &Report, pid: i32) {
    report.attempt("signal the given process", call!(libc::SYS_kill, pid, 0));
    report.attempt("trace it", call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, pid, 0, 0));
    report.attempt("read its memory", {
        let mut bytes = [0_u8; 8];
        let local =
            [bytes.as_mut_ptr() as u64, 8].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        let remote = [0x40_0000_u64, 8].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
        call!(libc::SYS_process_vm_readv, pid, local.as_slice(), 1, remote.as_slice(), 1, 0)
    });
    report.attempt("open it by pidfd", call!(libc::SYS_pidfd_open, pid, 0));
    report.attempt("change its limits", {
        call!(libc::SYS_prlimit64, pid, libc::RLIMIT_CORE, 0, [0_u8; 16].as_mut_slice())
    });
    report.attempt("change its priority", call!(libc::SYS_setpriority, 0, pid, 19));
}

/// P054: the files of other processes through /proc.
pub fn roots_of_others(report: &Report) {
    let mut found = Vec::new();
    for pid in visible_processes() {
        let uid = status_field(&pid.to_string(), "Uid").unwrap_or_default();
        let own = uid.split_whitespace().next() == Some(current_uid().to_string().as_str());
        // init is no process of the session's user, whoever that is.
        if own && pid != 1 {
            continue;
        }
        for name in ["root", "cwd", "exe", "fd", "ns/mnt"] {
            let path = format!("/proc/{pid}/{name}");
            let readable = std::fs::read_link(&path).is_ok() || std::fs::read_dir(&path).is_ok();
            if readable {
                found.push(path);
            }
        }
    }
    report.search("files of other processes", &found);
}

/// P055 (inside): the id maps, for the host to compare between sessions.
pub fn id_ranges(report: &Report) {
    for name in ["uid_map", "gid_map"] {
        let map = std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        report.fact(name, &map.split_whitespace().collect::<Vec<_>>().join(" "));
    }
}

const SHARED_DIRECTORIES: [&str; 4] = ["/tmp", "/dev/shm", "/run", "/var/tmp"];

/// P056: names in temporary directories.
pub fn temporary_names(report: &Report) {
    for directory in SHARED_DIRECTORIES {
        let path = format!("{directory}/hangar-probe-planted");
        if is_holder(report) {
            report.attempt(&format!("plant in {directory}"), {
                std::fs::write(&path, b"x").map_err(|e| sys::errno(&e))
            });
        } else {
            report.attempt(&format!("find in {directory}"), open(&path, libc::O_RDONLY));
        }
    }
    if is_holder(report) {
        hold(report);
    }
}

/// The key of what P057 makes, where no other is named.
pub const IPC_KEY: i32 = 0x0068_616e;

fn queue_name(key: i32) -> std::ffi::CString {
    c(&format!("hangar-probe-{key}"))
}

/// Removes what P057 left on a host whose namespace it shared.
pub fn forget_messages(key: i32) {
    // What is not there need not be removed.
    let _ =
        call!(libc::SYS_shmget, key, 0, 0).map(|id| call!(libc::SYS_shmctl, id, libc::IPC_RMID, 0));
    let _ = call!(libc::SYS_semget, key, 0, 0)
        .map(|id| call!(libc::SYS_semctl, id, 0, libc::IPC_RMID, 0));
    let _ =
        call!(libc::SYS_msgget, key, 0).map(|id| call!(libc::SYS_msgctl, id, libc::IPC_RMID, 0));
    let _ = call!(libc::SYS_mq_unlink, &queue_name(key));
}

/// P057: System V and POSIX messages.
pub fn messages(report: &Report) {
    let create = if is_holder(report) { libc::IPC_CREAT | 0o666 } else { 0o666 };
    report.attempt("shared memory", call!(libc::SYS_shmget, report.options.key, 4096, create));
    report.attempt("semaphores", call!(libc::SYS_semget, report.options.key, 1, create));
    report.attempt("messages", call!(libc::SYS_msgget, report.options.key, create));
    let open = libc::O_RDWR | if is_holder(report) { libc::O_CREAT } else { 0 };
    let queue = queue_name(report.options.key);
    report.attempt("message queue", call!(libc::SYS_mq_open, &queue, open, 0o666, 0));
    if is_holder(report) {
        hold(report);
    } else {
        let listed = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        report.effect("segments of others are listed", listed.lines().count() > 1, "");
    }
}

/// P058: limits that the kernel counts per user. The holder takes all it can get.
pub fn user_limits(report: &Report) {
    let many = if is_holder(report) { 4096 } else { 1 };
    let taken = |mut take: Box<dyn FnMut() -> Got<i64>>| -> Got<i64> {
        let mut count = 0;
        for _ in 0..many {
            match take() {
                Ok(_) => count += 1,
                Err(errno) if count == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(count)
    };
    report.attempt("inotify instances", taken(Box::new(|| call!(libc::SYS_inotify_init1, 0))));
    report.attempt(
        "large pipes",
        taken(Box::new(|| {
            let (_, writer) = sys::pipe()?;
            call!(libc::SYS_fcntl, writer, libc::F_SETPIPE_SZ, 1 << 20)
        })),
    );
    report.attempt("message queues", {
        let mut number = 0;
        taken(Box::new(move || {
            number += 1;
            let name = c(&format!("hangar-{}-{number}", std::process::id()));
            call!(libc::SYS_mq_open, &name, libc::O_RDWR | libc::O_CREAT, 0o600, 0)
        }))
    });
    report.attempt(
        "queued signals",
        taken(Box::new(|| {
            // Blocked, so that they stay queued: SIGRTMIN.
            let mask = (1_u64 << 33).to_ne_bytes();
            call!(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &mask[..], 0, 8)?;
            let mut info = vec![0_u8; 128];
            info[..4].copy_from_slice(&34_i32.to_ne_bytes());
            info[8..12].copy_from_slice(&(-1_i32).to_ne_bytes());
            call!(libc::SYS_rt_sigqueueinfo, std::process::id(), 34, info.as_slice())
        })),
    );
    report.attempt("locked memory", {
        call!(libc::SYS_mmap, 0, 65536, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
            .and_then(|at| call!(libc::SYS_mlock, at, 65536))
    });
    if is_holder(report) {
        hold(report);
    }
}

/// Sockets and pipes with a name, outside of /proc, not made by this user.
fn endpoints(kind: fn(&std::fs::FileType) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut pending = vec![std::path::PathBuf::from("/")];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(file_type) = entry.file_type() else { continue };
            let path = entry.path();
            if file_type.is_dir() && !path.starts_with("/proc") && !path.starts_with("/sys") {
                pending.push(path);
            } else if kind(&file_type) && !is_own(&path) {
                found.push(path.to_string_lossy().into_owned());
            }
        }
    }
    found
}

/// Made by this user, so no way to another.
fn is_own(path: &std::path::Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.uid() == current_uid())
}

/// P059: a place where descriptors could be handed over.
pub fn common_endpoints(report: &Report) {
    if is_holder(report) {
        for directory in SHARED_DIRECTORIES {
            let path = format!("{directory}/hangar-probe-socket");
            report.attempt(&format!("offer in {directory}"), bind_path(&path));
        }
        return hold(report);
    }
    report.search("pipes with a name", &endpoints(FileTypeExt::is_fifo));
    let table = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let sockets: Vec<String> = table
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().nth(7))
        .map(str::to_owned)
        .collect();
    report.search("sockets in the network namespace", &sockets);
}

/// The name of the abstract socket, without its leading NUL.
pub fn abstract_name(key: i32) -> String {
    format!("hangar-probe-{key}")
}

/// P060: abstract sockets.
pub fn abstract_socket(report: &Report) {
    let address = unix_address(format!("\0{}", abstract_name(report.options.key)).as_bytes());
    let socket = call!(libc::SYS_socket, libc::AF_UNIX, libc::SOCK_STREAM, 0).unwrap_or(-1);
    if is_holder(report) {
        let length = address.len() as u64;
        report.attempt("bind", call!(libc::SYS_bind, socket, address.as_slice(), length));
        report.attempt("listen", call!(libc::SYS_listen, socket, 8));
        return hold(report);
    }
    let length = address.len() as u64;
    report.attempt("connect", call!(libc::SYS_connect, socket, address.as_slice(), length));
}

/// P061: sockets with a name.
pub fn visible_sockets(report: &Report) {
    let sockets = endpoints(FileTypeExt::is_socket);
    report.search("sockets with a name", &sockets);
    let connected: Vec<String> = sockets
        .iter()
        .chain(&WELL_KNOWN.map(str::to_owned))
        .filter(|path| {
            let address = unix_address(path.as_bytes());
            [libc::SOCK_STREAM, libc::SOCK_SEQPACKET, libc::SOCK_DGRAM].iter().any(|kind| {
                let socket = call!(libc::SYS_socket, libc::AF_UNIX, *kind, 0).unwrap_or(-1);
                let length = address.len() as u64;
                let got = call!(libc::SYS_connect, socket, address.as_slice(), length);
                close(socket as i32);
                got.is_ok()
            })
        })
        .cloned()
        .collect();
    report.search("sockets that answer", &connected);
}

/// Where hosts have sockets that give rights away.
const WELL_KNOWN: [&str; 5] = [
    "/run/docker.sock",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/nscd/socket",
    "/var/lib/hangar/run/warden.sock",
];

/// P062: locks on files that both sessions see.
pub fn file_locks(report: &Report) {
    let fd = open(&report.env("lockfile"), libc::O_RDONLY);
    report.attempt("open the lock file", fd);
    let fd = fd.unwrap_or(-1);
    let exclusive = libc::LOCK_EX | libc::LOCK_NB;
    report.attempt("flock", call!(libc::SYS_flock, fd, exclusive));
    // struct flock: type, whence, start, length, pid. A read lock needs no right to write.
    let mut lock = vec![0_u8; 32];
    lock[..2].copy_from_slice(&(libc::F_RDLCK as u16).to_ne_bytes());
    report.attempt("read lock", call!(libc::SYS_fcntl, fd, libc::F_SETLK, lock.as_slice()));
    if is_holder(report) {
        return hold(report);
    }
    lock[..2].copy_from_slice(&(libc::F_WRLCK as u16).to_ne_bytes());
    let asked = call!(libc::SYS_fcntl, fd, libc::F_GETLK, lock.as_mut_slice());
    let kind = u16::from_ne_bytes([lock[0], lock[1]]);
    let seen = asked.is_ok() && kind != libc::F_UNLCK as u16;
    report.effect("see a lock of the other session", seen, "");
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let foreign = locks.lines().filter(|line| !line.contains(&format!(" {} ", std::process::id())));
    report.search("foreign locks in /proc/locks", &foreign.map(str::to_owned).collect::<Vec<_>>());
}

/// P063: the holder reads the environment, the taker watches it.
pub fn watch(report: &Report) {
    if is_holder(report) {
        report.holding();
        let end = Instant::now() + Duration::from_secs(report.options.seconds);
        let mut rounds = 0_u64;
        while Instant::now() < end {
            let _ = sys::read(&report.env("file"), 16);
            let _ = std::fs::read_dir(&report.options.environment).map(Iterator::count);
            rounds += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        return report.fact("read the environment", &rounds.to_string());
    }
    let fd = call!(libc::SYS_inotify_init1, libc::IN_NONBLOCK);
    report.attempt("inotify", fd);
    let fd = fd.unwrap_or(-1);
    let watch = c(&report.options.environment);
    report.attempt("watch", call!(libc::SYS_inotify_add_watch, fd, &watch, 0xfff));
    std::thread::sleep(Duration::from_secs(report.options.seconds));
    let mut events = vec![0_u8; 65536];
    let got = call!(libc::SYS_read, fd, events.as_mut_slice(), 65536);
    report.effect("events of the other session", got.is_ok_and(|n| n > 0), &format!("{got:?}"));
}

/// P063b: leases, which stall whoever opens the file.
pub fn leases(report: &Report) {
    let fd = open(&report.env("file"), libc::O_RDONLY).unwrap_or(-1);
    for (name, kind) in [("write lease", libc::F_WRLCK), ("read lease", libc::F_RDLCK)] {
        report.attempt(name, call!(libc::SYS_fcntl, fd, libc::F_SETLEASE, kind));
        let _ = call!(libc::SYS_fcntl, fd, libc::F_SETLEASE, libc::F_UNLCK);
    }
    if is_holder(report) {
        hold(report);
    }
}
