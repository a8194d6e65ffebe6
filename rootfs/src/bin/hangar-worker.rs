//! The worker: one job on hostile bytes, then it exits.
//!
//! The warden has set up its root, ids, capabilities and filter before it starts. Its arguments
//! are the verb and, for some, one name; its directories are `/in`, `/out` and `/store`; it talks
//! on descriptor 3 as [`hangar_rootfs::job`] tells, and reads an upload from descriptor 4 or writes
//! what is too long for a message there.

#![forbid(unsafe_code)]

use hangar_rootfs::job::{self, Progress, Refusal, RefusalCode};
use hangar_rootfs::{compare, freeze, import, measure, remove, tree, verify};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};
use serde::{Serialize, de::DeserializeOwned};
use std::fs::File;
use std::io::BufWriter;
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The socket to the warden.
const CHANNEL: i32 = 3;
/// The uploaded file, for `import`; the file that is written, for `compare`.
const UPLOAD: i32 = 4;
/// Between two datagrams about progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

fn main() -> ExitCode {
    // What is made must have the modes it is made with; the warden's mask is not ours.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let channel = match inherited(CHANNEL) {
        Ok(channel) => channel,
        Err(errno) => {
            eprintln!("hangar-worker: descriptor 3 is no socket to the warden: {errno}");
            return ExitCode::from(2);
        }
    };
    let (first, answer) = match run(&channel) {
        Ok(outcome) => (job::DONE, outcome),
        Err(refusal) => (job::REFUSED, serde_json::to_vec(&refusal).unwrap_or_default()),
    };
    match send(&channel, first, &answer, SendFlags::NOSIGNAL) {
        Ok(()) if first == job::DONE => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(errno) => {
            eprintln!("hangar-worker: the answer could not be sent: {errno}");
            ExitCode::from(2)
        }
    }
}

/// Takes over a descriptor that the warden left open.
///
/// Asking the kernel for a duplicate of one's own descriptor is the way that needs no unsafe code.
fn inherited(number: i32) -> Result<OwnedFd, Errno> {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
    rustix::process::pidfd_getfd(own, number, PidfdGetfdFlags::empty())
}

/// Does what the arguments say; returns the outcome as JSON.
fn run(channel: &OwnedFd) -> Result<Vec<u8>, Refusal> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = receive(channel)?;
    let mut reporter = Reporter { channel, last: Instant::now() };
    let progress = &mut |progress| reporter.report(progress);
    match arguments[..] {
        ["import"] => {
            let upload = inherited(UPLOAD).map_err(|errno| failed("descriptor 4", errno))?;
            let out = open("/out")?;
            let options = parse(&options)?;
            encode(&import::import(&File::from(upload), out.as_fd(), &options, progress)?)
        }
        ["freeze", destination] => {
            let (input, store) = (open("/in")?, open("/store")?);
            let destination = tree::open_directory(store.as_fd(), destination.as_bytes())
                .map_err(|errno| failed("the destination", errno))?;
            let (store, destination) = (store.as_fd(), destination.as_fd());
            let options = parse(&options)?;
            encode(&freeze::freeze(input.as_fd(), store, destination, &options, progress)?)
        }
        ["verify"] => {
            let job::VerifyOptions {} = parse(&options)?;
            encode(&verify::verify(open("/in")?.as_fd(), progress)?)
        }
        ["compare"] => {
            let out = inherited(UPLOAD).map_err(|errno| failed("descriptor 4", errno))?;
            let (from, to) = (open("/in/from")?, open("/in/to")?);
            let mut out = BufWriter::new(File::from(out));
            let options = parse(&options)?;
            encode(&compare::compare(from.as_fd(), to.as_fd(), &mut out, &options)?)
        }
        ["measure"] => {
            let job::MeasureOptions {} = parse(&options)?;
            encode(&measure::measure(open("/in")?.as_fd(), progress)?)
        }
        ["remove", name] => {
            let job::RemoveOptions {} = parse(&options)?;
            encode(&remove::remove_named(open("/out")?.as_fd(), name, progress)?)
        }
        _ => {
            let message = format!("there is no job {:?}", arguments.join(" "));
            Err(Refusal::new(RefusalCode::InvalidOptions, message))
        }
    }
}

fn open(path: &str) -> Result<OwnedFd, Refusal> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(path, errno))
}

fn failed(what: &str, errno: Errno) -> Refusal {
    Refusal::new(RefusalCode::Failed, "the worker was not set up as it should be")
        .detail(format!("opening {what} failed: {errno} (errno {})", errno.raw_os_error()))
}

fn parse<T: DeserializeOwned>(options: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(options).map_err(|error| {
        Refusal::new(RefusalCode::InvalidOptions, "the options of the job do not decode")
            .detail(error)
    })
}

fn encode<T: Serialize>(outcome: &T) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(outcome).map_err(|error| {
        Refusal::new(RefusalCode::Failed, "the outcome could not be written").detail(error)
    })
}

fn receive(channel: &OwnedFd) -> Result<Vec<u8>, Refusal> {
    let mut options = vec![0; job::DATAGRAM_BYTES_MAX + 1];
    let (_, length) = rustix::net::recv(channel, &mut options[..], RecvFlags::empty())
        .map_err(|errno| failed("the options", errno))?;
    if length == 0 || length > job::DATAGRAM_BYTES_MAX {
        return Err(Refusal::new(
            RefusalCode::InvalidOptions,
            format!("the options of the job have {length} bytes"),
        ));
    }
    options.truncate(length);
    Ok(options)
}

fn send(channel: &OwnedFd, first: u8, json: &[u8], flags: SendFlags) -> Result<(), Errno> {
    let mut datagram = Vec::with_capacity(json.len() + 1);
    datagram.push(first);
    datagram.extend_from_slice(json);
    rustix::net::send(channel, &datagram, flags).map(drop)
}

/// Tells the warden now and then how far the job is.
struct Reporter<'a> {
    channel: &'a OwnedFd,
    last: Instant,
}

impl Reporter<'_> {
    fn report(&mut self, progress: Progress) -> Result<(), Refusal> {
        if self.last.elapsed() < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.last = Instant::now();
        let json = encode(&progress)?;
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(self.channel, job::PROGRESS, &json, flags) {
            // Nobody reads fast enough; the next one will tell more.
            Ok(()) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => {
                let message = "the job was given up, because nobody waits for it any more";
                Err(Refusal::new(RefusalCode::Failed, message).detail(errno))
            }
        }
    }
}
