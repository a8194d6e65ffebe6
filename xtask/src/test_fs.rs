//! The file system that the state of tests and benchmarks lies on.
//!
//! An ext4 with a journal in a sparse image, as users have it. The root file system of a test
//! host need not be one: without a journal, creating files after big deletions is many times
//! slower, and a tmpfs cannot be idmapped before Linux 6.3.

use crate::failure::{Failure, Step};
use crate::program::{run, succeeds};
use crate::tree;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Sparse, so this is a bound and not a cost.
const IMAGE_SIZE: &str = "24G";

/// A mounted file system of its own; unmounted and removed when dropped.
pub struct TestFs {
    image: PathBuf,
    mount_point: PathBuf,
}

impl TestFs {
    /// Makes and mounts the file system, after unmounting what a killed run left.
    ///
    /// # Errors
    /// When a program fails, or a left mount is still in use.
    pub fn mount(name: &str) -> Result<Self, Failure> {
        let target = tree::target()?;
        let this =
            Self { image: target.join(format!("{name}.img")), mount_point: target.join(name) };
        this.unmount()?;
        std::fs::create_dir_all(&this.mount_point)
            .step(|| format!("making {}", this.mount_point.display()))?;
        run(Command::new("truncate").args(["-s", IMAGE_SIZE]).arg(&this.image))?;
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&this.image))?;
        run(Command::new("mount").args(["-o", "loop"]).arg(&this.image).arg(&this.mount_point))?;
        Ok(this)
    }

    /// Where the file system is mounted.
    pub fn path(&self) -> &Path {
        &self.mount_point
    }

    /// Unmounts and removes the image. A process that just ended can hold the mount for a moment.
    fn unmount(&self) -> Result<(), Failure> {
        let mounted = || succeeds(Command::new("mountpoint").arg("-q").arg(&self.mount_point));
        for _ in 0..50 {
            if !mounted() {
                break;
            }
            if !succeeds(Command::new("umount").arg(&self.mount_point)) {
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if mounted() {
            return Err(Failure::new(format!(
                "{} is still in use; end the processes that hold it and unmount it",
                self.mount_point.display()
            )));
        }
        match std::fs::remove_file(&self.image) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).step(|| format!("removing {}", self.image.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for TestFs {
    fn drop(&mut self) {
        if let Err(failure) = self.unmount() {
            eprintln!("{}", failure.chain());
        }
    }
}
