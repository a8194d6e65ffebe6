//! The filters on the running kernel.
//!
//! The sweep carries nothing out: a first filter of the test answers every marked call with an
//! error number of its own. An allow of ours then gives that number, and a refusal of ours its
//! own, because of equal verdicts the kernel takes that of the filter installed last.

use crate::examples::EXAMPLES;
use crate::interpreter::{Call, X32, verdict};
use crate::programs::filtered;
use hangar_seccomp::{Instruction, Profile, Program, program};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// In the upper half of the sixth argument; the lower half is the call's.
const MARK: u64 = 0x7a7a_7a7a_0000_0000;
/// An error number no filter of ours gives.
const CAUGHT: i32 = 77;

fn install(filter: &[Instruction]) {
    let filter: Vec<seccompiler::sock_filter> = filter
        .iter()
        .map(|i| seccompiler::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    seccompiler::apply_filter(&filter).expect("the kernel takes the filter");
}

fn catch_marked_calls() {
    let statement = |code, k| Instruction { code, jt: 0, jf: 0, k };
    install(&[
        statement(0x20, 60), // the upper half of the sixth argument
        Instruction { code: 0x15, jt: 0, jf: 1, k: (MARK >> 32) as u32 },
        statement(0x06, 0x0005_0000 | CAUGHT as u32),
        statement(0x06, 0x7fff_0000),
    ]);
}

fn marked_call(call: &Call) -> &'static str {
    let [a, b, c, d, e, f] = call.arguments;
    // SAFETY: the first filter refuses every call with this mark before the kernel looks at the
    // arguments, so nothing is carried out and no memory is read or written.
    let result = unsafe { libc::syscall(call.number as i32 as i64, a, b, c, d, e, MARK | f) };
    assert_eq!(result, -1, "{call:?} was carried out");
    match std::io::Error::last_os_error().raw_os_error() {
        Some(CAUGHT) => "allow",
        Some(libc::EPERM) => "EPERM",
        Some(libc::ENOSYS) => "ENOSYS",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EAFNOSUPPORT) => "EAFNOSUPPORT",
        other => panic!("{call:?} gave {other:?}"),
    }
}

/// Runs `body` on a thread of its own: a filter belongs to a thread and cannot be taken off.
fn confined<T: Send>(programs: &[&Program], body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            catch_marked_calls();
            for filter in programs.iter().flat_map(|program| &program.filters) {
                install(filter);
            }
            body()
        });
        thread.join().expect("the confined thread ends well")
    })
}

/// `uretprobe` and `uprobe`: newer kernels carry them out without asking any filter, and raise
/// `SIGILL` when they do not come from a trampoline.
const PAST_FILTERS: [u32; 2] = [335, 336];

fn calls() -> Vec<Call> {
    let numbers = (0..=600).filter(|number| !PAST_FILTERS.contains(number));
    let numbers = numbers.chain([1000, 0x3fff_ffff, u32::MAX]);
    numbers
        .map(|number| Call::new(number, [0; 6]))
        .chain(EXAMPLES.iter().map(|example| Call::new(example.number(), example.arguments)))
        .collect()
}

#[test]
fn the_kernel_reads_each_filter_as_the_interpreter_does() {
    for profile in Profile::ALL {
        let program = program(profile).unwrap();
        let calls = calls();
        let seen = confined(&[&program], || calls.iter().map(marked_call).collect::<Vec<_>>());
        for (call, seen) in calls.iter().zip(seen) {
            assert_eq!(seen, verdict(&program, call), "{}: {call:?}", profile.name());
        }
    }
}

/// A command inherits init's filter and adds its own; together they are the command's alone.
#[test]
fn a_commands_filter_on_top_of_inits_is_the_commands() {
    let (init, command) = (program(Profile::Init).unwrap(), program(Profile::Command).unwrap());
    let calls = calls();
    let seen = confined(&[&init, &command], || calls.iter().map(marked_call).collect::<Vec<_>>());
    for (call, seen) in calls.iter().zip(seen) {
        assert_eq!(seen, verdict(&command, call), "{call:?}");
    }
}

const AS_32_BIT: &str = "HANGAR_TEST_CALL_32_BIT";
const AS_X32: &str = "HANGAR_TEST_CALL_X32";

/// Not a claim of its own: the other end of `foreign_calls_kill`, in a process that may die.
#[test]
fn foreign_call_in_a_child() {
    if std::env::var_os(AS_32_BIT).is_some() {
        let result: i64;
        // SAFETY: number 20 of the 32-bit table is getpid, which touches no memory.
        unsafe { std::arch::asm!("int 0x80", inout("rax") 20_i64 => result) };
        println!("getpid said {result}");
    }
    if std::env::var_os(AS_X32).is_some() {
        // SAFETY: getpid touches no memory.
        let result = unsafe { libc::syscall(i64::from(X32) | libc::SYS_getpid) };
        println!("getpid said {result}");
    }
}

#[test]
fn foreign_calls_kill() {
    let this = std::env::current_exe().unwrap();
    for kind in [AS_32_BIT, AS_X32] {
        let arguments = [this.to_str().unwrap(), "--exact", "kernel::foreign_call_in_a_child"];
        let status = filtered(&arguments).env(kind, "1").stdout(Stdio::null()).status().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{kind}: {status}");
        let status = Command::new(&this)
            .args(&arguments[1..])
            .env(kind, "1")
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{kind} without the filter: {status}");
    }
}
