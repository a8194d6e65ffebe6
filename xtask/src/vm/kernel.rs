//! The kernels that hangar is tested on, as packages of Debian suites.

use super::apt::Apt;
use crate::failure::{Failure, Step};
use crate::program::{read, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel to test on.
pub struct Kernel {
    /// Names the machine.
    pub name: &'static str,
    /// The suite it comes from.
    suite: &'static str,
    /// The package that depends on the newest kernel of the suite.
    meta_package: &'static str,
    /// Words added to the kernel's command line: cheap variants of one kernel.
    pub command_line: &'static str,
}

/// Every machine of `cargo xtask vm`.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "6.1",
    suite: "bookworm",
    meta_package: "linux-image-cloud-amd64",
    command_line: "",
}];

/// Modules that the machine's disks and hangar's overlay view take, loaded before anything else.
const MODULES: &[&str] = &["virtio_pci", "virtio_blk", "ext4", "overlay"];

/// A kernel on this machine, ready to boot.
pub struct Files {
    /// The kernel.
    pub image: PathBuf,
    /// The modules, uncompressed, in the order in which they load.
    pub modules: Vec<PathBuf>,
}

impl Kernel {
    /// Fetches the kernel if it is not in the cache.
    ///
    /// The version is whatever the suite offers at that time; an upgrade takes an empty cache.
    ///
    /// # Errors
    /// When a package or a module is missing.
    pub fn files(&self, cache: &Path) -> Result<Files, Failure> {
        let folder = cache.join(format!("kernel-{}", self.name));
        if !folder.exists() {
            self.fetch(cache, &folder)?;
        }
        let version = only_entry(&folder.join("lib/modules"))?;
        let mut modules = Vec::new();
        for name in MODULES {
            for module in load_order(&folder, &version, name)? {
                if !modules.contains(&module) {
                    modules.push(module);
                }
            }
        }
        Ok(Files { image: folder.join(format!("boot/vmlinuz-{version}")), modules })
    }

    fn fetch(&self, cache: &Path, folder: &Path) -> Result<(), Failure> {
        let apt = Apt::with_suites(&cache.join(format!("apt-{}", self.suite)), &[self.suite])?;
        let package = apt.dependency(self.meta_package, "linux-image-")?;
        println!("fetching {package}");
        let partial = folder.with_extension("partial");
        if partial.exists() {
            std::fs::remove_dir_all(&partial).step(|| format!("removing {}", partial.display()))?;
        }
        apt.unpack(&package, &partial)?;
        let version = only_entry(&partial.join("lib/modules"))?;
        run(Command::new("depmod").arg("-b").arg(&partial).arg(&version))?;
        std::fs::rename(&partial, folder).step(|| format!("renaming {}", partial.display()))
    }
}

/// The files that loading a module takes, those it depends on first; none for a built-in one.
fn load_order(folder: &Path, version: &str, module: &str) -> Result<Vec<PathBuf>, Failure> {
    let said = read(Command::new("modprobe").arg("-d").arg(folder).args([
        "-S",
        version,
        "--show-depends",
        module,
    ]))?;
    said.lines()
        .filter_map(|line| line.strip_prefix("insmod "))
        .map(|path| uncompressed(Path::new(path.trim())))
        .collect()
}

/// busybox loads no compressed module.
fn uncompressed(path: &Path) -> Result<PathBuf, Failure> {
    if path.extension().is_none_or(|end| end != "xz") {
        return Ok(path.to_owned());
    }
    let plain = path.with_extension("");
    if !plain.exists() {
        run(Command::new("xz").args(["-d", "-k"]).arg(path))?;
    }
    Ok(plain)
}

fn only_entry(folder: &Path) -> Result<String, Failure> {
    let mut names = std::fs::read_dir(folder)
        .step(|| format!("listing {}", folder.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    match (names.next(), names.next()) {
        (Some(name), None) => Ok(name),
        _ => Err(Failure::new(format!("{} has not exactly one entry", folder.display()))),
    }
}
