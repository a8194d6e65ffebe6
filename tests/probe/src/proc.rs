//! D: /proc, keys, core dumps.

use crate::call;
use crate::identity::{status_field, visible_processes};
use crate::mounts::mount_targets;
use crate::report::Report;
use crate::sys::{self, Got, c, close, open};
use std::path::Path;

/// Opens for writing and writes back what stands there, so that success changes nothing.
fn write_back(path: &str) -> Got<i64> {
    let fd = open(path, libc::O_WRONLY)?;
    close(fd);
    match sys::read(path, 4096) {
        Ok(text) if !text.is_empty() => sys::write(path, &text),
        // A file that cannot be read or is empty was opened for writing, which is enough.
        _ => Ok(0),
    }
}

/// P029: kernel settings.
pub fn kernel_settings(report: &Report) {
    for name in [
        "kernel/core_pattern",
        "kernel/modprobe",
        "vm/overcommit_memory",
        "net/ipv4/ip_forward",
        "net/ipv4/ping_group_range",
        "fs/binfmt_misc/register",
        "user/max_user_namespaces",
        "kernel/ns_last_pid",
    ] {
        report.attempt(name, write_back(&format!("/proc/sys/{name}")));
    }
    let mut writable = Vec::new();
    let mut pending = vec!["/proc/sys".to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let path = entry.path().to_string_lossy().into_owned();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(path);
            } else if let Ok(fd) = open(&path, libc::O_WRONLY) {
                close(fd);
                writable.push(path);
            }
        }
    }
    report.search("anything that opens for writing", &writable);
}

const KEYCTL_GET_KEYRING_ID: i32 = 0;
const KEYCTL_JOIN_SESSION_KEYRING: i32 = 1;
const KEYCTL_SEARCH: i32 = 10;
const KEYCTL_READ: i32 = 11;
/// Description of a key of type `user` that the host plants.
pub const CANARY_KEY: &str = "hangar-canary";

/// Gives this process a session keyring with the canary in it, as the host of P030 has.
///
/// # Errors
/// What `keyctl(2)` and `add_key(2)` say.
pub fn join_keyring_with_canary() -> Got<i64> {
    call!(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0)?;
    call!(libc::SYS_add_key, &c("user"), &c(CANARY_KEY), &b"secret"[..], 6, -3)
}

/// P030: keyrings.
pub fn keys(report: &Report) {
    for (name, keyring) in [("session", -3), ("user", -4), ("user session", -5)] {
        report.attempt(&format!("id of the {name} keyring"), {
            call!(libc::SYS_keyctl, KEYCTL_GET_KEYRING_ID, keyring, 0)
        });
        let key = call!(libc::SYS_keyctl, KEYCTL_SEARCH, keyring, &c("user"), &c(CANARY_KEY), 0);
        report.attempt(
            &format!("canary key in the {name} keyring"),
            key.and_then(|key| {
                call!(libc::SYS_keyctl, KEYCTL_READ, key, [0_u8; 64].as_mut_slice(), 64)
            }),
        );
    }
    report.attempt("add_key", {
        call!(libc::SYS_add_key, &c("user"), &c("probe"), &b"x"[..], 1, -3)
    });
    report.attempt("request_key", {
        call!(libc::SYS_request_key, &c("user"), &c(CANARY_KEY), &c(""), -3)
    });
    let text = std::fs::read_to_string("/proc/keys").unwrap_or_default();
    report.effect("keys listed in /proc/keys", text.contains(CANARY_KEY), &text);
}

/// P031: files that tell about the kernel and the host. Zeros and empty files tell nothing.
pub fn kernel_secrets(report: &Report) {
    for path in [
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/vmallocinfo",
        "/proc/slabinfo",
        "/proc/pagetypeinfo",
        "/proc/acpi",
        "/proc/scsi/scsi",
        "/sys/firmware/memmap",
        "/sys/kernel/notes",
        "/sys/kernel/debug",
        "/sys/kernel/security/lsm",
    ] {
        match tells(path) {
            Ok(tells) => report.effect(path, tells, ""),
            Err(errno) => report.attempt::<()>(path, Err(errno)),
        }
    }
    for (path, zero) in [("kallsyms", "0000000000000000 "), ("iomem", "00000000-00000000 ")] {
        let text = std::fs::read_to_string(format!("/proc/{path}")).unwrap_or_default();
        let addresses = text.lines().filter(|line| !line.trim_start().starts_with(zero)).count();
        let attempt = format!("addresses in /proc/{path}");
        report.effect(&attempt, addresses > 0, &addresses.to_string());
    }
    report.search("frame numbers in /proc/self/pagemap", &frame_number());
}

/// There is something other than zeros.
fn tells(path: &str) -> Got<bool> {
    if Path::new(path).is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| sys::errno(&error))?;
        return Ok(entries.count() > 0);
    }
    let fd = open(path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    let mut bytes = vec![0_u8; 4096];
    let got = call!(libc::SYS_read, fd, bytes.as_mut_slice(), 4096);
    close(fd);
    Ok(bytes[..got? as usize].iter().any(|byte| *byte != 0))
}

/// The physical frame of a page of ours.
fn frame_number() -> Vec<String> {
    let page = vec![1_u8; 8192];
    let mut entry = [0_u8; 8];
    let offset = page.as_ptr() as u64 / 4096 * 8;
    let got = open("/proc/self/pagemap", libc::O_RDONLY)
        .and_then(|fd| call!(libc::SYS_pread64, fd, entry.as_mut_slice(), 8, offset));
    let frame = u64::from_ne_bytes(entry) & ((1 << 55) - 1);
    if got == Ok(8) && frame != 0 { vec![frame.to_string()] } else { Vec::new() }
}

/// P032: the kernel log and the emergency keys. Opening is enough; nothing is pressed.
pub fn kernel_log(report: &Report) {
    report.attempt("/proc/sysrq-trigger", open("/proc/sysrq-trigger", libc::O_WRONLY));
    report.attempt("syslog read", call!(libc::SYS_syslog, 3, [0_u8; 4096].as_mut_slice(), 4096));
    report.attempt("/dev/kmsg", open("/dev/kmsg", libc::O_RDONLY));
    report.attempt("/dev/mem", open("/dev/mem", libc::O_RDONLY));
}

/// P033: cgroups.
pub fn cgroups(report: &Report) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounted: Vec<String> = table
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .map(|line| line.split(' ').nth(4).unwrap_or_default().to_owned())
        .collect();
    report.search("mounted cgroup file systems", &mounted);
    for kind in ["cgroup", "cgroup2"] {
        let target = c(&report.options.workspace);
        report.attempt(&format!("mount {kind}"), {
            call!(libc::SYS_mount, &c("none"), &target, &c(kind), 0, 0)
        });
    }
    let roots = mounted.iter().map(String::as_str).chain(["/sys/fs/cgroup"]);
    let writable = roots
        .flat_map(|root| {
            ["release_agent", "cgroup.procs", "devices.allow"].map(|f| format!("{root}/{f}"))
        })
        .map(|path| (path.clone(), open(&path, libc::O_WRONLY).map(i64::from)))
        .collect::<Vec<_>>();
    report.all("write to a cgroup", &writable);
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let paths: Vec<String> = own
        .lines()
        .filter_map(|line| line.splitn(3, ':').nth(2))
        // Below the root of its namespace a command has a group of its own, and no more.
        .filter(|path| path.contains("..") || path.matches('/').count() > 1)
        .map(str::to_owned)
        .collect();
    report.search("path of the own cgroup on the host", &paths);
}

/// P034: other processes in /proc.
pub fn other_processes(report: &Report) {
    let own_uid = crate::files::current_uid().to_string();
    let foreign: Vec<String> = visible_processes()
        .iter()
        .filter(|pid| {
            let uids = status_field(&pid.to_string(), "Uid").unwrap_or_default();
            uids.split_whitespace().next() != Some(own_uid.as_str())
        })
        .map(ToString::to_string)
        .collect();
    report.search("processes of others", &foreign);
    for name in ["environ", "maps", "mem", "cmdline", "stat"] {
        report.attempt(&format!("read {name} of init"), {
            sys::read(&format!("/proc/1/{name}"), 64).map(|bytes| bytes.len())
        });
    }
    for name in ["exe", "root", "cwd", "ns/user"] {
        let link = std::fs::read_link(format!("/proc/1/{name}"));
        report.attempt(&format!("follow {name} of init"), link.map_err(|e| sys::errno(&e)));
    }
    let listed = std::fs::read_dir("/proc/1/fd").map(Iterator::count);
    report.attempt("list descriptors of init", listed.map_err(|e| sys::errno(&e)));
    if let Some(pid) = report.options.pid {
        let stat = sys::read(&format!("/proc/{pid}/stat"), 64).map(|b| b.len());
        report.attempt("read stat of the given process", stat);
    }
}

/// P035: core dumps.
pub fn core_dump(report: &Report) {
    let unlimited = [u64::MAX, u64::MAX].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>();
    report.attempt("raise the limit of core files", {
        call!(libc::SYS_setrlimit, libc::RLIMIT_CORE, unlimited.as_slice())
    });
    report.effect("a crash dumps core", crash_dumps_core(), "");
}

fn crash_dumps_core() -> bool {
    // SAFETY: the probe has one thread, so the child has a whole copy of its state.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends this process by its default action.
        unsafe {
            libc::signal(libc::SIGSEGV, libc::SIG_DFL);
            libc::raise(libc::SIGSEGV);
            libc::_exit(0)
        }
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    libc::WIFSIGNALED(status) && libc::WCOREDUMP(status)
}

/// Names below /proc that a session finds masked or gone.
const MASKED: [&str; 14] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
];

/// P069: what lies over masked names: nothing that can be written, and never /proc again.
pub fn masks(report: &Report) {
    let writable: Vec<_> = MASKED
        .iter()
        .map(|path| {
            let flags = if Path::new(path).is_dir() {
                libc::O_TMPFILE | libc::O_RDWR
            } else {
                libc::O_WRONLY
            };
            ((*path).to_owned(), open(path, flags).map(i64::from))
        })
        // The null device may be written to; nothing comes of it.
        .filter(|(path, got)| got.is_err() || !is_null_device(path))
        .collect();
    report.all("write to a masked name", &writable);
    let telling: Vec<String> = MASKED[..9]
        .iter()
        .filter(|path| tells(path).unwrap_or(false))
        .map(|path| (*path).to_owned())
        .collect();
    report.search("a masked name that tells something", &telling);
}

fn is_null_device(path: &str) -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.rdev() == libc::makedev(1, 3))
}

/// P070: the program file of init (CVE-2019-5736).
pub fn program_of_init(report: &Report) {
    report.attempt("read the program of init", open("/proc/1/exe", libc::O_RDONLY));
    report.attempt("write the program of init", open("/proc/1/exe", libc::O_WRONLY));
    let script = report.work("self-script");
    let planted = std::fs::write(&script, "#!/proc/self/exe\n").and_then(|()| {
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    });
    report.attempt("plant #!/proc/self/exe", planted.map_err(|e| sys::errno(&e)));
    // The interpreter is then this probe, which knows no such command and exits with 2.
    let status = std::process::Command::new(&script).stderr(std::process::Stdio::null()).status();
    report.fact("run it", &format!("{:?}", status.map(|status| status.code())));
    let mapped = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let foreign: Vec<String> = mapped
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains("memfd:") || path.contains("hangar-init"))
        .map(str::to_owned)
        .collect();
    report.search("init's program in this process", &foreign);
}

/// P064 (inside): the mounts are the session's own, whatever the trees contain.
pub fn own_mounts(report: &Report) {
    let kinds = [("/proc", 0x9fa0_i64), ("/dev", 0x0102_1994), ("/tmp", 0x0102_1994)];
    for (path, expected) in kinds {
        let mut buffer = vec![0_u8; 120];
        let got = call!(libc::SYS_statfs, &c(path), buffer.as_mut_slice());
        let kind = i64::from_ne_bytes(buffer[..8].try_into().unwrap_or_default());
        let foreign = got.is_err() || kind != expected;
        report.effect(&format!("{path} is something else"), foreign, &format!("{kind:#x}"));
    }
    report.effect("/dev/null is something else", !is_null_device("/dev/null"), "");
    let outside = ["/etc/shadow", "/root", "/boot", "/var/lib", "/srv", "/sys"];
    let seen: Vec<String> = outside
        .iter()
        .filter(|path| tells(path).unwrap_or(false))
        .map(|path| (*path).to_owned())
        .collect();
    report.search("directories of the host", &seen);
    report.fact("mount targets", &mount_targets().join(" "));
}

/// P065 (inside): what the environment is, for the host that exchanged its source meanwhile.
pub fn what_was_mounted(report: &Report) {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(&report.options.environment);
    let facts = metadata.map(|m| format!("dev={} ino={} uid={}", m.dev(), m.ino(), m.uid()));
    report.attempt("identity of the environment", facts.map_err(|e| sys::errno(&e)));
    let marker = std::fs::read_to_string(report.env("marker")).unwrap_or_default();
    report.fact("marker in the environment", marker.trim());
}

/// P041: the userfaultfd device.
pub fn userfault_device(report: &Report) {
    let device = open("/dev/userfaultfd", libc::O_RDWR);
    report.attempt("open /dev/userfaultfd", device);
}
