//! A disk that is soon full.

use crate::run::Place;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system, mounted where the state directory will be; unmounted with the value.
#[derive(Debug)]
pub struct Disk {
    at: PathBuf,
}

impl Disk {
    /// One with so much room and so many inodes.
    ///
    /// # Panics
    /// When it cannot be made or mounted.
    #[must_use]
    pub fn mount(place: &Place, bytes: u64, inodes: u32) -> Self {
        let (at, image) = (place.state(), place.path("disk.img"));
        fs::create_dir(&at).expect("mkdir");
        fs::File::create(&image).expect("an image").set_len(bytes).expect("a size");
        run("mkfs.ext4", &["-q", "-m", "0", "-N", &inodes.to_string()], &image, None);
        run("mount", &["-o", "loop"], &image, Some(&at));
        Self { at }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // The last process of the server can hold the file system for a moment.
        for _ in 0..100 {
            let unmounted = Command::new("umount").arg(&self.at).status();
            if unmounted.is_ok_and(|status| status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

fn run(program: &str, arguments: &[&str], image: &Path, more: Option<&Path>) {
    let mut command = Command::new(program);
    let status = command.args(arguments).arg(image).args(more).status().expect("it starts");
    assert!(status.success(), "{program}: {status}");
}
