//! The disks of a machine.
//!
//! | disk | what | lives |
//! |---|---|---|
//! | root | a Debian root file system, read-only | in the cache |
//! | payload | binaries, scripts and projects, read-only | one boot |
//! | state | an empty ext4 for hangar's state | one boot |

use super::apt::source_lines;
use super::kernel::Files;
use crate::failure::{Failure, Step};
use crate::program::run;
use crate::tree;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The suite of the root file system, whatever the kernel.
const SUITE: &str = "bookworm";
/// What it has beyond Debian's smallest set.
const PACKAGES: &str = "python3,python3-venv,ca-certificates";
/// Built programs that go into the machine.
const BINARIES: &[&str] = &["hangar", "hangar-warden"];

/// Makes the root disk if it is not in the cache.
///
/// # Errors
/// When a program fails.
pub fn root(cache: &Path) -> Result<PathBuf, Failure> {
    // Another set of packages is another image.
    let mut content = DefaultHasher::new();
    (SUITE, PACKAGES).hash(&mut content);
    let image = cache.join(format!("root-{:016x}.img", content.finish()));
    if image.exists() {
        return Ok(image);
    }
    println!("making a root file system of {SUITE}");
    let folder = cache.join("root.partial");
    let mut command = Command::new("mmdebstrap");
    command.args(["--quiet", "--mode=root", "--variant=minbase"]);
    command.arg(format!("--include={PACKAGES}")).arg(SUITE).arg(&folder);
    remove(&folder)?;
    run(command.args(source_lines(SUITE)?))?;
    for point in ["payload", "state"] {
        let path = folder.join(point);
        std::fs::create_dir_all(&path).step(|| format!("making {}", path.display()))?;
    }
    let partial = cache.join("root.img.partial");
    file_system(&folder, &partial, "1G")?;
    remove(&folder)?;
    std::fs::rename(&partial, &image).step(|| format!("renaming {}", partial.display()))?;
    Ok(image)
}

/// Makes the payload disk: `bin/` and everything of `vm-tests/`.
///
/// # Errors
/// When a binary was not built, or a program fails.
pub fn payload(cache: &Path) -> Result<PathBuf, Failure> {
    let folder = cache.join("payload");
    remove(&folder)?;
    run(Command::new("cp").arg("-a").arg(tree::root().join("vm-tests")).arg(&folder))?;
    let bin = folder.join("bin");
    std::fs::create_dir(&bin).step(|| format!("making {}", bin.display()))?;
    for name in BINARIES {
        let built = tree::binary(name)?;
        // Without debug information they load faster from an emulated disk.
        run(Command::new("strip").arg("-o").arg(bin.join(name)).arg(&built))?;
    }
    let image = cache.join("payload.img");
    file_system(&folder, &image, "128M")?;
    Ok(image)
}

/// Makes the state disk.
///
/// # Errors
/// When a program fails.
pub fn state(cache: &Path) -> Result<PathBuf, Failure> {
    let folder = cache.join("empty");
    std::fs::create_dir_all(&folder).step(|| format!("making {}", folder.display()))?;
    let image = cache.join("state.img");
    file_system(&folder, &image, "4G")?;
    Ok(image)
}

/// Makes the first file system: busybox, the kernel's modules and the script that loads them.
///
/// # Errors
/// When a program fails.
pub fn initramfs(cache: &Path, kernel: &Files) -> Result<PathBuf, Failure> {
    let folder = cache.join("initramfs");
    remove(&folder)?;
    for inner in ["bin", "modules", "root", "dev", "proc"] {
        let path = folder.join(inner);
        std::fs::create_dir_all(&path).step(|| format!("making {}", path.display()))?;
    }
    let copy = |from: &Path, to: PathBuf| {
        std::fs::copy(from, &to).map(drop).step(|| format!("copying {}", from.display()))
    };
    copy(Path::new("/bin/busybox"), folder.join("bin/busybox"))?;
    copy(&tree::root().join("vm-tests/initramfs-init"), folder.join("init"))?;
    for (position, module) in kernel.modules.iter().enumerate() {
        copy(module, folder.join(format!("modules/{position:02}.ko")))?;
    }
    let image = cache.join("initramfs.cpio.gz");
    let pack = "find . | cpio --quiet -o -H newc | gzip -1 > \"$0\"";
    run(Command::new("sh").args(["-ec", pack]).arg(&image).current_dir(&folder))?;
    Ok(image)
}

/// Makes an ext4 with a copy of a directory.
fn file_system(folder: &Path, image: &Path, size: &str) -> Result<(), Failure> {
    remove(image)?;
    run(Command::new("truncate").args(["-s", size]).arg(image))?;
    let mut command = Command::new("mkfs.ext4");
    run(command.args(["-q", "-m", "0", "-d"]).arg(folder).arg(image))
}

fn remove(path: &Path) -> Result<(), Failure> {
    let removed = match path.symlink_metadata() {
        Err(_) => return Ok(()),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
    };
    removed.step(|| format!("removing {}", path.display()))
}
