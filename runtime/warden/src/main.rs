//! `hangar-warden`: the only privileged process of hangar. `hangar serve` starts it.

#![forbid(unsafe_code)]

use hangar_runtime::doctor::{Images, Verdict};
use hangar_runtime::error::{AtStep, SetupError};
use hangar_runtime::ids::{DEFAULT_RANGE_BASE, Range};
use hangar_runtime::warden::{self, WardenConfig};
use rustix::fs::{CWD, Mode, OFlags, openat};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Static programs, built beside this one.
static INIT: &[u8] = include_bytes!(env!("HANGAR_INIT_IMAGE"));
static WORKER: &[u8] = include_bytes!(env!("HANGAR_WORKER_IMAGE"));

const USAGE: &str = "usage: hangar-warden --state-dir DIR [--range-base UID] \
                     [--orphan-timeout-ms MS] [--ready-fd FD] [--doctor]";

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("error: {why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let ended = if arguments.doctor { return doctor(&arguments) } else { start(arguments) };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: the warden ended\n  caused by: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line.
#[derive(Debug)]
struct Arguments {
    state_dir: PathBuf,
    range: Range,
    orphan_timeout: Duration,
    ready_fd: Option<i32>,
    /// Examine the host instead of serving.
    doctor: bool,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut state_dir, mut ready_fd) = (None, None);
        let (mut range_base, mut orphan_timeout_ms) = (DEFAULT_RANGE_BASE, 600_000);
        let mut doctor = false;
        while let Some(word) = words.next() {
            if word == "--doctor" {
                doctor = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} has no value"))?;
            let number =
                || value.parse::<u32>().map_err(|_| format!("{word} takes a number, not {value}"));
            match word.as_str() {
                "--state-dir" => state_dir = Some(PathBuf::from(&value)),
                "--range-base" => range_base = number()?,
                "--orphan-timeout-ms" => orphan_timeout_ms = number()?,
                "--ready-fd" => {
                    ready_fd = Some(i32::try_from(number()?).map_err(|error| error.to_string())?);
                }
                _ => return Err(format!("{word} is no option")),
            }
        }
        Ok(Self {
            state_dir: state_dir.ok_or("--state-dir is missing")?,
            range: Range::checked(range_base).map_err(|why| format!("--range-base: {why}"))?,
            orphan_timeout: Duration::from_millis(orphan_timeout_ms.into()),
            ready_fd,
            doctor,
        })
    }
}

/// Prints what this host enforces and lacks; fails when sessions cannot run here.
fn doctor(arguments: &Arguments) -> ExitCode {
    let image = match warden::seal("hangar-init", INIT) {
        Ok(image) => image,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let images = Images { init: image.as_fd() };
    let findings = hangar_runtime::doctor::examine(&arguments.state_dir, images);
    for finding in &findings {
        println!("{finding}");
    }
    match findings.iter().any(|finding| finding.verdict == Verdict::Lacking) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn start(arguments: Arguments) -> Result<(), SetupError> {
    let step = "start-warden";
    // First of all, while nothing else can have the number.
    let ready = match arguments.ready_fd {
        Some(number) => Some(
            hangar_runtime_sys::adopt_descriptor(number)
                .at(step, || format!("fcntl(ready-fd {number})"))?,
        ),
        None => None,
    };
    // Away from the caller's terminal and process group; the leader of one already is away.
    let _ = rustix::process::setsid();
    std::fs::create_dir_all(&arguments.state_dir)
        .at(step, || format!("mkdir({})", arguments.state_dir.display()))?;
    warden::run(WardenConfig {
        state_dir: arguments.state_dir,
        range: arguments.range,
        orphan_timeout: arguments.orphan_timeout,
        init_image: warden::seal("hangar-init", INIT)?,
        init_arguments: Vec::new(),
        worker_image: warden::seal("hangar-worker", WORKER)?,
        hangar: program_beside("hangar")?,
        steps: hangar_runtime::steps::LAUNCH,
        ready,
    })
}

/// Opens a program in the directory of this one; nothing where there is none.
fn program_beside(name: &str) -> Result<Option<OwnedFd>, SetupError> {
    let step = "start-warden";
    let own = std::env::current_exe().at(step, || "readlink(/proc/self/exe)")?;
    let path = own.with_file_name(name);
    match openat(CWD, &path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => Ok(Some(file)),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno).at(step, || format!("open({})", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn the_command_line_is_checked() {
        let arguments = parse(&["--state-dir", "/var/lib/hangar", "--ready-fd", "5"]).unwrap();
        assert_eq!(arguments.range.base, DEFAULT_RANGE_BASE);
        assert_eq!(arguments.ready_fd, Some(5));
        assert_eq!(arguments.orphan_timeout, Duration::from_secs(600));
        for bad in [
            &[][..],
            &["--state-dir"],
            &["--state-dir", "/x", "--range-base", "0"],
            &["--state-dir", "/x", "--range-base", "1000"],
            &["--state-dir", "/x", "--range-base", "2147418112"],
            &["--state-dir", "/x", "--ready-fd", "-1"],
            &["--state-dir", "/x", "--other", "1"],
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn embedded_programs_have_no_interpreter() {
        for image in [INIT, WORKER] {
            assert_eq!(image[..4], *b"\x7fELF");
            let word = |at: usize| u16::from_le_bytes([image[at], image[at + 1]]);
            let offset = u64::from_le_bytes(image[32..40].try_into().unwrap());
            let (size, count) = (usize::from(word(54)), usize::from(word(56)));
            let start = usize::try_from(offset).unwrap();
            let kinds: Vec<u32> = (0..count)
                .map(|index| start + index * size)
                .map(|at| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()))
                .collect();
            const PT_LOAD: u32 = 1;
            const PT_INTERP: u32 = 3;
            assert!(kinds.contains(&PT_LOAD));
            assert!(!kinds.contains(&PT_INTERP), "it would need a loader of the session");
        }
    }
}
