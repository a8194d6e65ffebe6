//! Where things are in the checkout.

use crate::failure::{Failure, Step};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the checkout")
}

/// Cargo's target directory, made when it is missing.
///
/// # Errors
/// When the directory cannot be made.
pub fn target() -> Result<PathBuf, Failure> {
    let path = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(path) => root().join(path),
        None => root().join("target"),
    };
    std::fs::create_dir_all(&path).step(|| format!("making {}", path.display()))?;
    Ok(path)
}

/// Where `cargo build --release` puts a binary.
///
/// # Errors
/// As [`target`].
pub fn binary(name: &str) -> Result<PathBuf, Failure> {
    Ok(target()?.join("release").join(name))
}

/// A command of the cargo that runs this program, in the root of the checkout.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// True for root. The owner of `/proc/self` is the effective user.
pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}
