//! F: Landlock.

use crate::call;
use crate::report::Report;
use crate::sys::{self, Errno, Got, c, open};

/// `LANDLOCK_ACCESS_FS_MAKE_SYM`: a right that the probes themselves do not need.
const MAKE_SYM: u64 = 1 << 12;

/// Adds one Landlock domain to this process.
fn confine() -> Got<i64> {
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    let attributes = MAKE_SYM.to_ne_bytes();
    let ruleset = call!(libc::SYS_landlock_create_ruleset, &attributes[..], 8, 0)?;
    let restricted = call!(libc::SYS_landlock_restrict_self, ruleset, 0);
    sys::close(ruleset as i32);
    restricted
}

/// P042: files that only Landlock protects: the environment, once the host has left out what makes
/// it read-only, or a canary of the host's.
pub fn enforced(report: &Report) {
    report.attempt("write the environment", sys::write(&report.env("open/file"), b"p"));
    report.attempt("create in the environment", {
        open(&report.env("open/landlock"), libc::O_CREAT | libc::O_WRONLY)
    });
    if let Some(canary) = &report.options.canary {
        report.attempt("write the canary", sys::write(canary, b"x"));
    }
}

/// P043 (inside): the version of Landlock, for the host that pretended a lower one.
pub fn version(report: &Report) {
    report.attempt("Landlock version", call!(libc::SYS_landlock_create_ruleset, 0, 0, 1));
}

/// P044: moving files between directories with other rules.
pub fn refer(report: &Report) {
    let (a, b) = (report.work("refer-a"), report.work("refer-b"));
    let _ = (std::fs::create_dir(&a), std::fs::create_dir(&b));
    let _ = std::fs::write(format!("{a}/file"), b"x");
    let rename = |from: &str, to: &str| call!(libc::SYS_rename, &c(from), &c(to));
    report.attempt("rename between own directories", {
        rename(&format!("{a}/file"), &format!("{b}/file"))
    });
    report.attempt("link between own directories", {
        call!(
            libc::SYS_link,
            &c(&format!("{b}/file")),
            &c(&format!("{a}/link-{}", std::process::id()))
        )
    });
    report.attempt("rename to /tmp", rename(&format!("{b}/file"), "/tmp/refer-file"));
    report.attempt("link to /tmp", {
        call!(libc::SYS_link, &c(&format!("{b}/file")), &c("/tmp/refer-link"))
    });
    report.attempt("rename into /proc", rename(&format!("{b}/file"), "/proc/self/refer"));
}

/// P045: device ioctls.
pub fn devices(report: &Report) {
    report.attempt("ioctl of an own terminal", {
        open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)
            .and_then(|fd| call!(libc::SYS_ioctl, fd, libc::TCGETS, [0_u8; 64].as_mut_slice()))
    });
    for name in [
        "kvm",
        "fuse",
        "net/tun",
        "loop-control",
        "mapper/control",
        "vhost-net",
        "dri",
        "snd",
        "sda",
        "console",
    ] {
        report.attempt(&format!("open /dev/{name}"), open(&format!("/dev/{name}"), libc::O_RDWR));
    }
}

/// P045b: agents that confine themselves further, until the kernel's limit of layers.
pub fn nested_domains(report: &Report) {
    report.child("one more domain", sys::in_child(|| confine().map(|_| String::new())));
    report.child(
        "its rule holds",
        sys::in_child(|| {
            confine()?;
            let link = c(&report.work(&format!("refused-link-{}", std::process::id())));
            call!(libc::SYS_symlink, &c("/"), &link).map(|_| String::new())
        }),
    );
    report.child(
        "domains without end",
        sys::in_child(|| {
            for count in 1..=64 {
                match confine() {
                    Err(Errno(libc::E2BIG)) => return Err(Errno(libc::E2BIG)),
                    Err(errno) => return Err(errno),
                    Ok(_) if count == 64 => return Ok("64".to_owned()),
                    Ok(_) => {}
                }
            }
            Ok(String::new())
        }),
    );
}

/// P045c: signals and tracing within the session, and to init. `--role sender --pid PID` aims at
/// another command; without a role the target is a child.
pub fn one_domain(report: &Report) {
    if report.options.role.as_deref() == Some("target") {
        report.fact("pid", &std::process::id().to_string());
        crate::cross::hold(report);
        return;
    }
    let child = std::process::Command::new("/proc/self/exe")
        .args(["sleep", "60"])
        .stdout(std::process::Stdio::null())
        .spawn();
    let own = child.as_ref().map_or(0, std::process::Child::id) as i32;
    let target = report.options.pid.unwrap_or(own);
    report.attempt("trace another command", {
        call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, target, 0, 0)
    });
    report.attempt("signal another command", call!(libc::SYS_kill, target, libc::SIGTERM));
    report.attempt("signal init", call!(libc::SYS_kill, 1, libc::SIGTERM));
    report.attempt("kill init", call!(libc::SYS_kill, 1, libc::SIGKILL));
    report.attempt("trace init", call!(libc::SYS_ptrace, libc::PTRACE_SEIZE, 1, 0, 0));
    report.attempt("open init by pidfd and signal it", {
        call!(libc::SYS_pidfd_open, 1, 0)
            .and_then(|fd| call!(libc::SYS_pidfd_send_signal, fd, libc::SIGTERM, 0, 0))
    });
    if let Ok(mut child) = child {
        let _ = (child.kill(), child.wait());
    }
}
