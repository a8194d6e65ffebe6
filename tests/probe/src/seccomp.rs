//! E: system calls.

use crate::call;
use crate::identity::status_field;
use crate::report::Report;
use crate::sys::{self, Ended, Errno, Got, c, number, open};
use std::os::fd::RawFd;

/// In the upper half of the sixth argument; the lower half is the call's.
const MARK: u32 = 0x7a7a_7a7a;
/// The answer of the listener: the call got through every other filter.
const THROUGH: i32 = 77;
const LAST_NUMBER: i64 = 600;

const SET_MODE_FILTER: i32 = 1;
const NEW_LISTENER: i32 = 8;

/// `struct sock_fprog` over instructions; the second value has to outlive the first.
fn filter_program(instructions: &[(u16, u8, u8, u32)]) -> (Vec<u8>, Vec<u8>) {
    let mut bytes = Vec::new();
    for (code, jt, jf, k) in instructions {
        bytes.extend(code.to_ne_bytes());
        bytes.extend([*jt, *jf]);
        bytes.extend(k.to_ne_bytes());
    }
    let mut program = (instructions.len() as u64).to_ne_bytes().to_vec();
    program.extend((bytes.as_ptr() as u64).to_ne_bytes());
    (program, bytes)
}

/// Adds a filter that reports marked calls to a descriptor.
fn listen_for_marked_calls() -> Got<RawFd> {
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    let (program, _instructions) = filter_program(&[
        (0x20, 0, 0, 60),
        (0x15, 0, 1, MARK),
        (0x06, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        (0x06, 0, 0, libc::SECCOMP_RET_ALLOW),
    ]);
    call!(libc::SYS_seccomp, SET_MODE_FILTER, NEW_LISTENER, program.as_slice())
        .map(|fd| fd as RawFd)
}

/// P036: what every number gives, carrying none of them out.
///
/// A refusal of the session's filter is stronger than a report to a listener, so what reaches the
/// listener was allowed. `uretprobe` and `uprobe` reach no filter and are left out.
pub fn sweep(report: &Report) {
    let results = std::thread::scope(|scope| {
        let (send, receive) = std::sync::mpsc::channel();
        let calls = scope.spawn(move || {
            let listener = listen_for_marked_calls();
            // The other thread waits for exactly this one message.
            let _ = send.send(listener);
            listener.map(|_| sweep_numbers())
        });
        if let Ok(Ok(listener)) = receive.recv() {
            answer_marked_calls(&calls, listener);
        }
        calls.join().unwrap_or(Err(Errno(libc::EIO)))
    });
    match results {
        Err(errno) => report.attempt::<()>("sweep", Err(errno)),
        Ok(results) => {
            report.fact("sweep", &results.len().to_string());
            for (number, got) in results {
                report.attempt(&format!("call {number}"), got);
            }
        }
    }
}

/// Answers reported calls with [`THROUGH`] until the sweep is done.
fn answer_marked_calls<T>(calls: &std::thread::ScopedJoinHandle<'_, T>, listener: RawFd) {
    while !calls.is_finished() {
        let mut poll = listener.to_ne_bytes().to_vec();
        poll.extend(1_u32.to_ne_bytes());
        if call!(libc::SYS_poll, poll.as_mut_slice(), 1, 50) == Ok(1) {
            if poll[6] & 1 == 0 {
                return;
            }
            answer_one(listener);
        }
    }
}

fn answer_one(listener: RawFd) {
    let mut notification = vec![0_u8; 80];
    if call!(libc::SYS_ioctl, listener, 0xc050_2100_u32, notification.as_mut_slice()).is_err() {
        return;
    }
    let mut response = notification[..8].to_vec();
    response.extend([0; 8]);
    response.extend((-THROUGH).to_ne_bytes());
    response.extend([0; 4]);
    let _ = call!(libc::SYS_ioctl, listener, 0xc018_2101_u32, response.as_mut_slice());
}

fn sweep_numbers() -> Vec<(i64, Got<()>)> {
    (0..=LAST_NUMBER)
        .filter(|number| ![number::URETPROBE, number::UPROBE].contains(number))
        .map(|number| {
            let marked = u64::from(MARK) << 32;
            let got = match call!(number, 0, 0, 0, 0, 0, marked) {
                Err(Errno(THROUGH)) | Ok(_) => Ok(()),
                Err(errno) => Err(errno),
            };
            (number, got)
        })
        .collect()
}

/// P037: the x32 way of calling.
pub fn x32(report: &Report) {
    for (name, number) in [("getpid", libc::SYS_getpid), ("mount", libc::SYS_mount)] {
        report.child(&format!("x32 {name}"), {
            sys::in_child(|| call!(0x4000_0000 | number).map(|value| value.to_string()))
        });
    }
}

/// P038: the 32-bit way of calling.
pub fn ia32(report: &Report) {
    report.child(
        "int 0x80 getpid",
        sys::in_child(|| {
            let result: i64;
            // SAFETY: number 20 of the 32-bit table is getpid, which touches no memory.
            unsafe { std::arch::asm!("int 0x80", inout("rax") 20_i64 => result) };
            if result < 0 { Err(Errno(-result as i32)) } else { Ok(result.to_string()) }
        }),
    );
    let path = report.work("elf32");
    let planted = std::fs::write(&path, EXIT_42_IN_32_BIT).and_then(|()| {
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
    });
    report.attempt("plant a 32-bit program", planted.map_err(|e| sys::errno(&e)));
    report.child("run it", run(&path));
}

fn run(path: &str) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    match std::process::Command::new(path).status() {
        Err(error) => Ended::Answer(Err(sys::errno(&error))),
        Ok(status) => match (status.signal(), status.code()) {
            (Some(signal), _) => Ended::Signal(signal),
            (_, Some(42)) => Ended::Answer(Ok("42".to_owned())),
            (_, code) => Ended::Exit(code.unwrap_or(-1)),
        },
    }
}

/// A 32-bit ELF of one segment: `mov eax, 1; mov ebx, 42; int 0x80`.
#[rustfmt::skip]
const EXIT_42_IN_32_BIT: [u8; 96] = [
    0x7f, b'E', b'L', b'F', 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    2, 0, 3, 0, 1, 0, 0, 0, 0x54, 0x80, 0x04, 0x08, 52, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    52, 0, 32, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    1, 0, 0, 0, 0, 0, 0, 0, 0x00, 0x80, 0x04, 0x08, 0x00, 0x80, 0x04, 0x08,
    96, 0, 0, 0, 96, 0, 0, 0, 5, 0, 0, 0, 0, 0x10, 0, 0,
    0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80,
];

const HIGH: u64 = 0xffff_ffff_0000_0000;

/// P039: garbage in the half of a register that the kernel does not look at.
pub fn truncation(report: &Report) {
    report.child("TIOCSTI into the own terminal", sys::in_child(|| type_into_terminal(0x5412)));
    report.child("TIOCSTI with garbage above", sys::in_child(|| type_into_terminal(HIGH | 0x5412)));
    report.child(
        "clone with garbage above",
        sys::in_child(|| {
            let flags = HIGH | libc::CLONE_NEWUSER as u64 | libc::SIGCHLD as u64;
            let child = call!(libc::SYS_clone, flags, 0, 0, 0, 0)?;
            if child == 0 {
                // SAFETY: leaves without running anything of the parent's.
                unsafe { libc::_exit(0) }
            }
            Ok(String::new())
        }),
    );
    report.attempt("AF_ALG with garbage above", {
        call!(libc::SYS_socket, HIGH | 38, libc::SOCK_SEQPACKET, 0)
    });
    report.attempt("AF_VSOCK with garbage above", {
        call!(libc::SYS_socket, HIGH | 40, libc::SOCK_STREAM, 0)
    });
}

/// Makes a terminal the controlling one and types a letter into it.
fn type_into_terminal(request: u64) -> Got<String> {
    let master = open("/dev/ptmx", libc::O_RDWR | libc::O_NOCTTY)?;
    let mut unlock = [0_u8; 4];
    call!(libc::SYS_ioctl, master, libc::TIOCSPTLCK, unlock.as_mut_slice())?;
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let terminal = call!(libc::SYS_ioctl, master, libc::TIOCGPTPEER, flags)?;
    call!(libc::SYS_setsid)?;
    call!(libc::SYS_ioctl, terminal, libc::TIOCSCTTY, 0)?;
    call!(libc::SYS_ioctl, terminal, request, &b"x"[..]).map(|_| String::new())
}

/// P040: large or dangerous parts of the kernel. Arguments are valid where that harms nobody.
pub fn surface(report: &Report) {
    let mut parameters = vec![0_u8; 120];
    report.attempt("io_uring_setup", {
        call!(libc::SYS_io_uring_setup, 4, parameters.as_mut_slice())
    });
    report.attempt("io_uring_enter", call!(libc::SYS_io_uring_enter, -1, 0, 0, 0, 0, 0));
    report.attempt("io_uring_register", call!(libc::SYS_io_uring_register, -1, 0, 0, 0));
    // 1: faults in user mode only, which needs no right.
    report.attempt("userfaultfd", call!(libc::SYS_userfaultfd, libc::O_CLOEXEC | 1));
    report.attempt("bpf", {
        // An array map of one element.
        let attributes = [2_u32, 4, 4, 1].iter().flat_map(|v| v.to_ne_bytes()).chain([0; 104]);
        call!(libc::SYS_bpf, 0, attributes.collect::<Vec<u8>>().as_slice(), 120)
    });
    report.attempt("perf_event_open", {
        // A software event (CPU clock) of this process, user mode only.
        let mut attributes = vec![0_u8; 128];
        attributes[0] = 1;
        attributes[4] = 128;
        attributes[40] = 0b0110_0000;
        call!(libc::SYS_perf_event_open, attributes.as_slice(), 0, -1, -1, 0)
    });
    report.attempt("kcmp", {
        let pid = std::process::id();
        call!(libc::SYS_kcmp, pid, pid, 2, 0, 0)
    });
    report.attempt("mbind", call!(libc::SYS_mbind, 0, 0, 0, 0, 0, 0));
    report.attempt("move_pages", call!(libc::SYS_move_pages, 0, 0, 0, 0, 0, 0));
    report.attempt("migrate_pages", call!(libc::SYS_migrate_pages, 0, 0, 0, 0));
    report.attempt("modify_ldt", call!(libc::SYS_modify_ldt, 0, [0_u8; 64].as_mut_slice(), 64));
    report.attempt("fanotify_init", {
        // A group that reports file ids, which needs no right.
        call!(libc::SYS_fanotify_init, 0x200, libc::O_RDONLY)
    });
    report.attempt("pidfd_getfd", {
        let me = call!(libc::SYS_pidfd_open, std::process::id(), 0).unwrap_or(-1);
        call!(libc::SYS_pidfd_getfd, me, 1, 0)
    });
    report.attempt("kexec_load", call!(libc::SYS_kexec_load, 0, 0, 0, u64::MAX));
    report.attempt("kexec_file_load", call!(libc::SYS_kexec_file_load, -1, -1, 0, 0, u64::MAX));
    report.attempt("init_module", call!(libc::SYS_init_module, 0, 0, 0));
    report.attempt("finit_module", call!(libc::SYS_finit_module, -1, &c(""), 0));
    report.attempt("delete_module", call!(libc::SYS_delete_module, &c("no-such-module"), 0));
    report.attempt("uselib", call!(libc::SYS_uselib, &c("/no/such/library")));
    report.attempt("nfsservctl", call!(libc::SYS_nfsservctl, 0, 0, 0));
    report.attempt("lookup_dcookie", call!(libc::SYS_lookup_dcookie, 0, 0, 0));
    report.attempt("quotactl", call!(libc::SYS_quotactl, 0, 0, 0, 0));
    report.attempt("acct", call!(libc::SYS_acct, &c("/no/such/file")));
    report.attempt("swapoff", call!(libc::SYS_swapoff, &c("/no/such/file")));
    report.attempt("iopl", call!(libc::SYS_iopl, 3));
    report.attempt("ioperm", call!(libc::SYS_ioperm, 0, 1, 1));
    report.attempt("chroot", call!(libc::SYS_chroot, &c(&report.options.workspace)));
    report.attempt("sethostname", call!(libc::SYS_sethostname, &c("probe"), 5));
}

/// P041b: what falls back when `clone3` is not there. These have to work.
pub fn clone3_fallback(report: &Report) {
    report.attempt("raw clone3", call!(libc::SYS_clone3, 0, 0));
    let threads = (0..4).map(|n| std::thread::Builder::new().spawn(move || n)).collect::<Vec<_>>();
    let joined: Got<i32> = threads
        .into_iter()
        .map(|thread| Ok(thread.map_err(|e| sys::errno(&e))?.join().unwrap_or(0)))
        .sum();
    report.attempt("threads", joined);
    let child = std::process::Command::new("/proc/self/exe").arg("show-identity").output();
    report.attempt("spawn a program", child.map(|o| o.status.code()).map_err(|e| sys::errno(&e)));
    report.child("fork", sys::in_child(|| Ok(String::new())));
}

/// P041c: filters can be added and never taken away.
pub fn more_filters(report: &Report) {
    let mode = status_field("self", "Seccomp").unwrap_or_default();
    report.effect("no filter is in force", mode != "2", &mode);
    report.fact("number of filters", &status_field("self", "Seccomp_filters").unwrap_or_default());
    report.child("switch filtering off", {
        sys::in_child(|| {
            call!(libc::SYS_prctl, libc::PR_SET_SECCOMP, 0, 0, 0, 0).map(|_| String::new())
        })
    });
    report.child("add a filter", sys::in_child(|| add_allowing_filter().map(|_| String::new())));
    report.child("add a filter with a listener", {
        sys::in_child(|| listen_for_marked_calls().map(|_| String::new()))
    });
    report.child("refused calls stay refused below an allowing filter", {
        sys::in_child(|| {
            add_allowing_filter()?;
            call!(libc::SYS_unshare, libc::CLONE_NEWUSER).map(|_| String::new())
        })
    });
}

/// Adds a filter that allows everything.
fn add_allowing_filter() -> Got<i64> {
    call!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)?;
    let (program, _instructions) = filter_program(&[(0x06, 0, 0, libc::SECCOMP_RET_ALLOW)]);
    call!(libc::SYS_seccomp, SET_MODE_FILTER, 0, program.as_slice())
}
