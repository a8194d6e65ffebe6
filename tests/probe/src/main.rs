//! `hangar-probe ID [--role ROLE] [--pid PID] [--canary PATH] [--key N] [--seconds N] [--kill-all]`,
//! `hangar-probe list`, `hangar-probe catalogue`,
//! `hangar-probe prepare DIRECTORY [OWNER [ROOT]]`,
//! `hangar-probe with-canary-key PROGRAM [ARGUMENT…]`, `hangar-probe forget-messages KEY`.

use hangar_probe::catalogue::{probe, probes};
use hangar_probe::report::{Options, Report};
use hangar_probe::{cross, mounts, proc, tree};
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list"] => {
            for probe in probes() {
                println!("{} {}", probe.id, probe.title);
            }
        }
        ["catalogue"] => {
            for probe in probes() {
                let attempts = probe.attempts.iter();
                let attempts: Vec<_> = attempts.map(|a| [a.name, a.expected]).collect();
                let line = serde_json::json!({
                    "id": probe.id, "title": probe.title, "attempts": attempts,
                    "steps": probe.steps, "needed": probe.needed, "beyond": probe.beyond,
                });
                println!("{line}");
            }
        }
        ["prepare", directory, owners @ ..] => {
            let owner = |at: usize| owners.get(at).and_then(|owner: &&str| owner.parse().ok());
            if let Err(error) = tree::prepare(directory, owner(0), owner(1)) {
                eprintln!("hangar-probe: {directory} was not prepared: {error}");
                return ExitCode::from(1);
            }
        }
        ["with-canary-key", program, rest @ ..] => {
            let error = match proc::join_keyring_with_canary() {
                Ok(_) => std::process::Command::new(program).args(rest).exec(),
                Err(errno) => std::io::Error::from_raw_os_error(errno.0),
            };
            eprintln!("hangar-probe: {program} was not run: {error}");
            return ExitCode::from(1);
        }
        ["forget-messages", key] => cross::forget_messages(key.parse().unwrap_or(0)),
        ["show-identity"] => mounts::show_identity(),
        ["sleep", seconds] => {
            let seconds = seconds.parse().unwrap_or(60);
            std::thread::sleep(std::time::Duration::from_secs(seconds));
        }
        [id, rest @ ..] => {
            let (Some(probe), Some(options)) = (probe(id), options(rest)) else {
                eprintln!("hangar-probe: no such probe or option; `hangar-probe list` has the ids");
                return ExitCode::from(2);
            };
            (probe.run)(&Report::new(probe.id, options));
        }
        [] => {
            eprintln!("usage: hangar-probe ID | list | prepare DIRECTORY");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn options(arguments: &[&str]) -> Option<Options> {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let mut options = Options {
        environment: variable("PROBE_ENV", "/env/probe"),
        workspace: variable("PROBE_WORKSPACE", "/workspace"),
        role: None,
        pid: None,
        canary: None,
        key: cross::IPC_KEY,
        seconds: 2,
        kill_all: false,
    };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        match *name {
            "--role" => options.role = Some((*rest.next()?).to_owned()),
            "--pid" => options.pid = Some(rest.next()?.parse().ok()?),
            "--canary" => options.canary = Some((*rest.next()?).to_owned()),
            "--key" => options.key = rest.next()?.parse().ok()?,
            "--seconds" => options.seconds = rest.next()?.parse().ok()?,
            "--kill-all" => options.kill_all = true,
            _ => return None,
        }
    }
    Some(options)
}
