//! Frozen trees: `versions/<environment>/<n>/{tree,manifest,record}`.
//!
//! A version is finished when it has its final name and a record in it. Both come by rename, in
//! this order; a version without a record is never mounted.

use super::state::{
    StateDir, exists, make_dir, names, open_below, publish, read_file, remove_dir, write_file,
};
use crate::error::{AtStep, Cause, SetupError};
use crate::ids::{DependencyKey, EnvironmentId, VersionNumber};
use rustix::fs::{Gid, Mode, Uid, fchmod, fchown, fsync};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The longest record of a version.
pub const RECORD_BYTES_MAX: usize = 64 << 10;
/// Ends the names of trees that are being frozen.
pub(super) const TEMPORARY: &str = ".tmp";
/// Ends the names of trees that are being removed.
pub(super) const REMOVING: &str = ".removing";

/// The directory of an environment's versions.
#[derive(Debug)]
pub struct EnvironmentDir {
    dir: OwnedFd,
}

/// A tree below an [`EnvironmentDir`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeName {
    /// A version.
    Version(VersionNumber),
    /// Installed dependencies.
    Dependencies(DependencyKey),
}

impl std::fmt::Display for TreeName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(number) => number.fmt(f),
            Self::Dependencies(key) => write!(f, "dependencies-{key}"),
        }
    }
}

impl EnvironmentDir {
    /// Opens the directory; nothing when the environment has no versions.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn open(state: &StateDir, id: &EnvironmentId) -> Result<Option<Self>, SetupError> {
        if !exists(&state.versions, id.as_str())? {
            return Ok(None);
        }
        Ok(Some(Self { dir: open_below(&state.versions, id.as_str())? }))
    }

    /// Opens the directory, made where it is missing.
    ///
    /// It belongs to root: the freezer, which runs as the store uid, writes into the one directory
    /// that is made for it. Its parent lets nobody else in.
    ///
    /// # Errors
    /// When a call fails.
    pub fn ensure(state: &StateDir, id: &EnvironmentId) -> Result<Self, SetupError> {
        if let Some(dir) = Self::open(state, id)? {
            return Ok(dir);
        }
        let temporary = format!("{id}{TEMPORARY}");
        remove_dir(&state.versions, &temporary)?;
        let dir = make_dir(&state.versions, &temporary, 0, 0o755)?;
        publish(state.versions.as_fd(), &temporary, id.as_str())?;
        Ok(Self { dir })
    }

    /// The directory itself.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }

    /// Whether the tree has its final name.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn has(&self, tree: &TreeName) -> Result<bool, SetupError> {
        exists(&self.dir, &tree.to_string())
    }

    /// Whether the version is finished.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn is_finished(&self, version: VersionNumber) -> Result<bool, SetupError> {
        exists(&self.dir, &format!("{version}/record"))
    }

    /// Opens the directory that holds `tree` and `manifest`.
    ///
    /// # Errors
    /// When it is not there.
    pub fn tree(&self, tree: &TreeName) -> Result<OwnedFd, SetupError> {
        open_below(&self.dir, &tree.to_string())
    }

    /// The name of the directory that is made for the freezer.
    #[must_use]
    pub fn temporary_name(tree: &TreeName) -> String {
        format!("{tree}{TEMPORARY}")
    }

    /// Makes the directory that the freezer fills.
    ///
    /// # Errors
    /// `EEXIST` while another freezer fills it.
    pub fn begin(&self, state: &StateDir, tree: &TreeName) -> Result<(), SetupError> {
        make_dir(&self.dir, &Self::temporary_name(tree), state.range().store(), 0o755)?;
        Ok(())
    }

    /// Gives a frozen tree its final name, durably.
    ///
    /// # Errors
    /// `EEXIST` when there is one.
    pub fn publish(&self, tree: &TreeName) -> Result<(), SetupError> {
        let temporary = Self::temporary_name(tree);
        let dir = open_below(&self.dir, &temporary)?;
        fsync(&dir).at("publish", || format!("fsync({temporary})"))?;
        publish(self.dir.as_fd(), &temporary, &tree.to_string())
    }

    /// Takes the name of a tree away and returns the name it has until it is gone.
    ///
    /// # Errors
    /// When it is not there.
    pub fn doom(&self, name: &str) -> Result<String, SetupError> {
        doom(self.dir.as_fd(), name)
    }

    /// Writes the record that finishes a version.
    ///
    /// # Errors
    /// `EEXIST` when it is finished already: a version never changes.
    pub fn write_record(&self, version: VersionNumber, record: &[u8]) -> Result<(), SetupError> {
        write_file(&self.tree(&TreeName::Version(version))?, "record", record)
    }

    /// The record of a finished version.
    ///
    /// # Errors
    /// When it is not there.
    pub fn read_record(&self, version: VersionNumber) -> Result<Vec<u8>, SetupError> {
        read_file(&self.tree(&TreeName::Version(version))?, "record", RECORD_BYTES_MAX)
    }

    /// The names of all trees, left-overs included.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn names(&self) -> Result<Vec<String>, SetupError> {
        names(self.dir.as_fd())
    }
}

/// Takes the name of a whole environment away and returns the name it has until it is gone.
///
/// # Errors
/// When it is not there.
pub(super) fn doom_environment(state: &StateDir, id: &EnvironmentId) -> Result<String, SetupError> {
    doom(state.versions.as_fd(), id.as_str())
}

/// Lets the worker, which runs as the store uid, delete from a directory that was root's.
///
/// # Errors
/// When a call fails.
pub(super) fn give_to_store(state: &StateDir, dir: BorrowedFd<'_>) -> Result<(), SetupError> {
    let store = state.range().store();
    fchown(dir, Some(Uid::from_raw(store)), Some(Gid::from_raw(store)))
        .at("doom-tree", || format!("fchown(directory, {store})"))?;
    fchmod(dir, Mode::from_raw_mode(0o700)).at("doom-tree", || "fchmod(directory, 700)")
}

/// Renames to a name that ends with [`REMOVING`] and that nothing has.
fn doom(parent: BorrowedFd<'_>, name: &str) -> Result<String, SetupError> {
    for attempt in 0..10_000 {
        let doomed = format!("{name}.{attempt}{REMOVING}");
        match publish(parent, name, &doomed) {
            Ok(()) => return Ok(doomed),
            Err(SetupError { cause: Cause::Errno(Errno::EXIST), .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(SetupError::other("doom-tree", format!("rename({name})"), "every name is taken"))
}
