//! What a filter costs: installing it, and calls under it. Run with
//! `cargo run --release -p hangar-seccomp --example cost`.

use hangar_seccomp::{Profile, program};
use std::hint::black_box;
use std::time::{Duration, Instant};

const CALLS: u32 = 200_000;

fn nanoseconds_per_call(mut call: impl FnMut()) -> f64 {
    let best = (0..5).map(|_| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    });
    best.fold(f64::INFINITY, f64::min)
}

fn report(what: &str) {
    let getppid = nanoseconds_per_call(|| {
        black_box(std::os::unix::process::parent_id());
    });
    // The arguments of ioctl are looked at, so the kernel runs the filter each time.
    let isatty = nanoseconds_per_call(|| {
        black_box(std::io::IsTerminal::is_terminal(&std::io::stdin()));
    });
    println!("{what}: getppid {getppid:.0} ns, ioctl {isatty:.0} ns");
}

fn kernel_filter(profile: Profile) -> Vec<seccompiler::sock_filter> {
    let program = program(profile).expect("the tables compile");
    let kernel = |i: &hangar_seccomp::Instruction| seccompiler::sock_filter {
        code: i.code,
        jt: i.jt,
        jf: i.jf,
        k: i.k,
    };
    program.filters.iter().flatten().map(kernel).collect()
}

/// Times of `body`, each on a thread of its own, because a filter cannot be taken off.
fn median(body: impl Fn() -> Duration + Sync) -> Duration {
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            std::thread::scope(|scope| scope.spawn(&body).join().expect("the thread ends well"))
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn timed<T>(body: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    black_box(body());
    start.elapsed()
}

fn main() {
    report("no filter");
    for profile in Profile::ALL {
        let filter = kernel_filter(profile);
        let compiled = median(|| timed(|| program(profile).expect("the tables compile")));
        let installed = median(|| {
            timed(|| seccompiler::apply_filter(&filter).expect("the kernel takes the filter"))
        });
        println!(
            "{}: {} instructions, compiled in {compiled:?}, installed in {installed:?}",
            profile.name(),
            filter.len()
        );
    }
    for profile in [Profile::Init, Profile::Command] {
        seccompiler::apply_filter(&kernel_filter(profile)).expect("the kernel takes the filter");
        report(&format!("under {}", profile.name()));
    }
}
