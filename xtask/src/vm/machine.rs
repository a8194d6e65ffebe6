//! One boot of one machine.

use super::kernel::Kernel;
use super::serial::{Checks, Watch};
use super::{images, serial};
use crate::failure::{Failure, Step};
use crate::program::shown;
use crate::tally::Tally;
use crate::tree;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The longest a machine may run. Emulated processes are 10 to 25 times slower than real ones.
const BOOT_TIME_MAX: Duration = Duration::from_secs(600);

/// Boots the machine and counts its checks.
///
/// # Errors
/// When the machine cannot be made or started.
pub fn boot(kernel: &Kernel, check: Option<&str>) -> Result<Tally, Failure> {
    let start = Instant::now();
    let cache = tree::target()?.join("vm-cache");
    std::fs::create_dir_all(&cache).step(|| format!("making {}", cache.display()))?;
    let files = kernel.files(&cache)?;
    let root = images::root(&cache)?;
    let payload = images::payload(&cache)?;
    let state = images::state(&cache)?;
    let initramfs = images::initramfs(&cache, &files)?;

    let mut command = emulator();
    command.arg("-kernel").arg(&files.image).arg("-initrd").arg(&initramfs);
    command.args(["-append", &command_line(kernel, check)]);
    drive(&mut command, &root, Access::ReadOnly);
    drive(&mut command, &payload, Access::ReadOnly);
    drive(&mut command, &state, Access::ReadWrite);
    println!("vm {}: prepared in {:.1} s", kernel.name, start.elapsed().as_secs_f64());
    let checks = watch(kernel.name, command)?;
    println!("vm {}: ended after {:.1} s", kernel.name, start.elapsed().as_secs_f64());
    Ok(checks.tally(kernel.name))
}

fn emulator() -> Command {
    let mut command = Command::new("qemu-system-x86_64");
    command.args(["-accel", "tcg,thread=multi", "-M", "pc", "-cpu", "max", "-smp", "2"]);
    command.args(["-m", "1024", "-nographic", "-nodefaults", "-no-user-config", "-no-reboot"]);
    command.args(["-serial", "stdio"]);
    command
}

fn command_line(kernel: &Kernel, check: Option<&str>) -> String {
    let mut line = "console=ttyS0 quiet panic=-1 tsc=unstable mitigations=off \
                    random.trust_cpu=on"
        .to_owned();
    if let Some(check) = check {
        line.push_str(&format!(" hangar.check={check}"));
    }
    format!("{line} {}", kernel.command_line)
}

enum Access {
    ReadOnly,
    ReadWrite,
}

fn drive(command: &mut Command, image: &Path, access: Access) {
    let access = match access {
        Access::ReadOnly => "readonly=on",
        Access::ReadWrite => "readonly=off",
    };
    let image = image.display();
    // What is written need not survive the machine.
    command.arg("-drive").arg(format!("file={image},if=virtio,format=raw,cache=unsafe,{access}"));
}

/// Runs the emulator, shows its serial line and ends it when its time is over.
fn watch(name: &str, mut command: Command) -> Result<Checks, Failure> {
    let line = shown(&command);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut emulator = command.spawn().step(|| line.clone())?;
    let output = emulator.stdout.take().expect("standard output is a pipe");
    let watchdog = Watch::over(emulator, BOOT_TIME_MAX);
    let mut checks = Checks::default();
    for said in BufReader::new(output).split(b'\n') {
        let said = said.step(|| format!("reading the serial line of {name}"))?;
        let said = serial::plain(&said);
        println!("vm {name}| {said}");
        checks.read_line(&said);
    }
    watchdog.end()?;
    Ok(checks)
}
