//! Installs what is missing, and nothing else.
//!
//! Each need is tested by using it. Only a need whose test fails is installed, as Debian packages
//! by name: installing what is there already could replace it (Debian's npm conflicts with the
//! nodejs packages of others).

use crate::failure::Failure;
use crate::program::{run, succeeds};
use std::process::Command;

/// A thing that has to work, and the packages that bring it.
struct Need {
    /// Ends with status 0 when the thing works; run by `sh -c`.
    test: &'static str,
    packages: &'static [&'static str],
}

const fn need(test: &'static str, packages: &'static [&'static str]) -> Need {
    Need { test, packages }
}

/// What the toolchain `host` of sessions consists of.
const TOOLCHAIN: &[Need] = &[
    need("/usr/bin/python3 -c 'import venv, ensurepip'", &["python3", "python3-venv"]),
    need("/usr/bin/node --version", &["nodejs"]),
    need("/usr/bin/npm --version", &["npm"]),
    need("test -s /etc/ssl/certs/ca-certificates.crt", &["ca-certificates"]),
];

/// What the tests run inside sessions.
const INSIDE: &[Need] = &[
    need("/usr/bin/git --version", &["git"]),
    need("echo '#include <stdlib.h>' | /usr/bin/gcc -E -", &["gcc", "libc6-dev"]),
    need("/usr/bin/tmux -V", &["tmux"]),
    need("/usr/bin/strace --version", &["strace"]),
    need("/usr/bin/gdb --version", &["gdb"]),
];

/// What the tests of imports make archives and repositories with, and compare hangar with.
const ARCHIVERS: &[Need] = &[
    need("tar --version", &["tar"]),
    need("bsdtar --version", &["libarchive-tools"]),
    need("unzip -v", &["unzip"]),
    need("zip -v", &["zip"]),
    need("ip -V", &["iproute2"]),
    need("nsenter --version", &["util-linux"]),
];

/// What the tests ask the server with, as its clients do.
const CLIENTS: &[Need] =
    &[need("curl --version", &["curl"]), need("openssl version", &["openssl"])];

/// What the tests build projects with.
const INSTALLERS: &[Need] = &[
    // Older ones know registries by their whole history only.
    need(
        "/usr/bin/cargo --version | grep -qE ' 1\\.(6[89]|[7-9][0-9]|[0-9]{3})\\.'",
        &["cargo-web|cargo"],
    ),
    need("/usr/bin/go version", &["golang-go"]),
    need("/usr/bin/bundle --version", &["bundler"]),
    need("/usr/bin/poetry --version", &["python3-poetry"]),
];

/// What Debian does not have, put where sessions see it: a test, and what installs it.
const ELSEWHERE: &[(&str, &str)] = &[
    ("/usr/local/bin/pnpm --version", "npm install --global --silent --prefix /usr/local pnpm@10"),
    ("/usr/local/bin/yarn --version", "npm install --global --silent --prefix /usr/local yarn@1"),
    // Beside Yarn 1, under the name by which builds look for it.
    (
        "/usr/local/bin/yarn-berry --version",
        "npm install --global --silent --prefix /usr/local/lib/yarn-berry @yarnpkg/cli-dist@4 && \
         ln -sf ../lib/yarn-berry/bin/yarn /usr/local/bin/yarn-berry",
    ),
    (
        "/usr/local/bin/uv --version",
        "/usr/bin/python3 -m venv /usr/local/lib/uv && /usr/local/lib/uv/bin/pip install -q uv && \
         ln -sf /usr/local/lib/uv/bin/uv /usr/local/bin/uv",
    ),
];

/// The file system that test state lies on.
const FILE_SYSTEM: &[Need] =
    &[need("mkfs.ext4 -V", &["e2fsprogs"]), need("mount --version", &["mount"])];

/// What hangar is compared with.
const PEERS: &[Need] = &[
    need("bwrap --version", &["bubblewrap"]),
    need("igzip --version", &["isal"]),
    need("bsdtar --version", &["libarchive-tools"]),
    need("pgrep --version", &["procps"]),
];

/// What a virtual machine is made of.
const MACHINE: &[Need] = &[
    need("qemu-system-x86_64 --version", &["qemu-system-x86"]),
    need("test -x /bin/busybox && ! ldd /bin/busybox", &["busybox-static"]),
    need("cpio --version", &["cpio"]),
    need("modprobe --version && depmod --version", &["kmod"]),
    need("xz --version", &["xz-utils"]),
    need("mmdebstrap --version", &["mmdebstrap"]),
];

/// For whom something is set up.
#[derive(Clone, Copy)]
pub enum For {
    /// A run of hangar.
    Demo,
    /// The whole test.
    Test,
    /// Only the virtual machines.
    Vm,
    /// The benchmarks.
    Bench,
}

/// Installs what is missing.
///
/// # Errors
/// When apt fails, or something still does not work after its packages were installed.
pub fn set_up(purpose: For) -> Result<(), Failure> {
    let needs: &[&[Need]] = match purpose {
        For::Demo => &[TOOLCHAIN],
        For::Test => {
            &[TOOLCHAIN, INSIDE, ARCHIVERS, CLIENTS, INSTALLERS, FILE_SYSTEM, PEERS, MACHINE]
        }
        For::Vm => &[FILE_SYSTEM, MACHINE],
        For::Bench => &[TOOLCHAIN, FILE_SYSTEM, PEERS],
    };
    install_packages(needs)?;
    match purpose {
        For::Test => install_elsewhere(),
        _ => Ok(()),
    }
}

fn install_packages(needs: &[&[Need]]) -> Result<(), Failure> {
    let missing: Vec<&Need> = needs.iter().copied().flatten().filter(|need| !met(need)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    run(apt_get().args(["update", "-qq"]))?;
    let named = missing.iter().flat_map(|need| need.packages);
    let packages: Vec<&str> = named.map(|names| first_known(names)).collect();
    println!("installing {}", packages.join(" "));
    run(apt_get().args(["install", "-qq", "--no-install-recommends"]).args(&packages))?;
    match missing.into_iter().find(|need| !met(need)) {
        None => Ok(()),
        Some(need) => Err(Failure::new(format!(
            "'{}' still fails with {} installed",
            need.test,
            need.packages.join(" ")
        ))),
    }
}

/// The first of several names that this release of Debian knows.
fn first_known(names: &'static str) -> &'static str {
    let known = |name: &&str| succeeds(Command::new("apt-cache").args(["show", name]));
    names.split('|').find(known).unwrap_or(names)
}

fn install_elsewhere() -> Result<(), Failure> {
    let works = |test: &str| succeeds(Command::new("sh").args(["-c", test]));
    for (test, install) in ELSEWHERE.iter().filter(|(test, _)| !works(test)) {
        println!("{install}");
        run(Command::new("sh").args(["-c", install]))?;
        if !works(test) {
            return Err(Failure::new(format!("'{test}' still fails")));
        }
    }
    Ok(())
}

fn met(need: &Need) -> bool {
    succeeds(Command::new("sh").args(["-c", need.test]))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive").args(["-y", "-oDpkg::Use-Pty=0"]);
    command
}
