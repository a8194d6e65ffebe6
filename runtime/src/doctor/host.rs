//! The kernel and the programs of the toolchain `host`.

use super::Finding;
use crate::init::landlock;
use std::path::Path;
use std::process::{Command, Stdio};

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![kernel(), landlock(), capabilities()];
    findings.extend(PROGRAMS.iter().map(program));
    findings.push(certificates());
    findings
}

fn kernel() -> Finding {
    let name = "kernel";
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version >= (6, 1) {
        return Finding::good(name, release);
    }
    Finding::lacking(
        name,
        release,
        "run Linux 6.1 or newer; older ones have no overlay over id-mapped mounts or no Landlock \
         that lets files be renamed",
    )
}

fn landlock() -> Finding {
    let name = "landlock";
    let abi = hangar_runtime_sys::landlock_abi();
    if abi == 0 {
        return Finding::lacking(
            name,
            "not there",
            "boot with `lsm=landlock,…` and a kernel built with CONFIG_SECURITY_LANDLOCK",
        );
    }
    let absent = landlock::facts(abi, &[]).absent;
    if abi < landlock::ABI_MIN {
        return Finding::lacking(name, format!("ABI {abi}"), "run Linux 6.1 or newer");
    }
    if absent.is_empty() {
        return Finding::good(name, format!("ABI {abi}"));
    }
    Finding::weaker(
        name,
        format!("ABI {abi}; held by other barriers: {}", absent.join("; ")),
        "Linux 6.12 or newer has all of it",
    )
}

fn capabilities() -> Finding {
    let name = "privileges";
    if !rustix::process::geteuid().is_root() {
        return Finding::weaker(
            name,
            "not root",
            "run `sudo hangar doctor`: what needs root could not be tried",
        );
    }
    let missing: Vec<_> = [
        caps::Capability::CAP_SYS_ADMIN,
        caps::Capability::CAP_SETUID,
        caps::Capability::CAP_SETGID,
        caps::Capability::CAP_CHOWN,
        caps::Capability::CAP_DAC_OVERRIDE,
        caps::Capability::CAP_KILL,
    ]
    .into_iter()
    .filter(|cap| !caps::has_cap(None, caps::CapSet::Effective, *cap).unwrap_or(false))
    .map(|cap| cap.to_string())
    .collect();
    if missing.is_empty() {
        return Finding::good(name, "root");
    }
    Finding::lacking(
        name,
        format!("root without {}", missing.join(", ")),
        "run outside of a container, or give these capabilities",
    )
}

struct Wanted {
    name: &'static str,
    path: &'static str,
    arguments: &'static [&'static str],
    remedy: &'static str,
}

/// Programs that builds of the manifests need; each is run, not only looked for.
const PROGRAMS: [Wanted; 6] = [
    Wanted {
        name: "python3 with venv",
        path: "/usr/bin/python3",
        arguments: &["-c", "import venv, ensurepip, sys; print(sys.version.split()[0])"],
        remedy: "apt-get install python3 python3-venv; an interpreter below a home directory is \
                 not seen by sessions",
    },
    Wanted {
        name: "node",
        path: "/usr/bin/node",
        arguments: &["--version"],
        remedy: "apt-get install nodejs; needed by projects with a package.json",
    },
    Wanted {
        name: "npm",
        path: "/usr/bin/npm",
        arguments: &["--version"],
        remedy: "apt-get install npm; needed by projects with a package.json",
    },
    Wanted {
        name: "git",
        path: "/usr/bin/git",
        arguments: &["--version"],
        remedy: "apt-get install git; agents expect it",
    },
    Wanted {
        name: "gcc",
        path: "/usr/bin/gcc",
        arguments: &["--version"],
        remedy: "apt-get install build-essential; needed by packages without a wheel",
    },
    Wanted {
        name: "bash",
        path: "/usr/bin/bash",
        arguments: &["--version"],
        remedy: "apt-get install bash; setup.sh is run by it",
    },
];

fn program(wanted: &Wanted) -> Finding {
    let output = Command::new(wanted.path)
        .args(wanted.arguments)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stdout);
            Finding::good(wanted.name, text.lines().next().unwrap_or("").trim())
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let last = text.lines().last().unwrap_or("it failed").trim().to_owned();
            Finding::weaker(wanted.name, last, wanted.remedy)
        }
        Err(error) => {
            Finding::weaker(wanted.name, format!("{}: {error}", wanted.path), wanted.remedy)
        }
    }
}

fn certificates() -> Finding {
    let path = Path::new("/etc/ssl/certs/ca-certificates.crt");
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() > 0 => {
            Finding::good("certificates", format!("{}", path.display()))
        }
        _ => Finding::weaker(
            "certificates",
            format!("{} is missing", path.display()),
            "apt-get install ca-certificates; without it builds reach no package index",
        ),
    }
}
