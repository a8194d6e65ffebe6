//! The members of an archive, one after the other, whatever its format.

use super::format::{self, Format};
use super::place::Place;
use super::{tar, zip};
use crate::job::{ImportOptions, Note, Refusal};
use crate::tree::Time;
use std::fs::File;
use std::io::Read;

/// What a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symlink.
    Symlink,
    /// One more name of a file.
    HardLink,
    /// A character or block device.
    Device,
    /// A named pipe.
    Fifo,
    /// Anything else.
    Unknown,
}

/// One member of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// As it is in the archive.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// What a symlink or hard link points to; empty for others.
    pub link: Vec<u8>,
    /// Bytes of data that follow.
    pub size: u64,
    /// Whether any of the execute bits is set.
    pub executable: bool,
    /// Within what file systems can store.
    pub mtime: Time,
    /// What the reader of the import is told about it.
    pub notes: Vec<Note>,
}

/// Whether more members are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Yes.
    Continue,
    /// No; the rest of the archive is not read.
    Stop,
}

/// The data of a member.
pub struct Data<'a> {
    entry: &'a mut dyn Read,
    size: u64,
    left: u64,
    place: &'a Place,
}

impl<'a> Data<'a> {
    pub(super) fn new(entry: &'a mut dyn Read, size: u64, place: &'a Place) -> Self {
        Self { entry, size, left: size, place }
    }

    /// Reads the next bytes; 0 only at the end of the member.
    ///
    /// # Errors
    /// When the archive ends before the member does, or is damaged.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Refusal> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if want == 0 {
            return Ok(0);
        }
        match self.entry.read(&mut into[..want]) {
            Ok(0) => Err(self.place.cut_short(Some((self.size - self.left, self.size)))),
            Ok(count) => {
                self.left -= count as u64;
                Ok(count)
            }
            Err(error) => Err(self.place.fault(&error)),
        }
    }
}

/// Gives every member and its data to `each`, in order, to the end of the archive.
///
/// # Errors
/// Those of `each`, and every fault of the archive, with the member it is at.
pub fn read_members(
    upload: &File,
    options: &ImportOptions,
    mut each: impl FnMut(&Member, &mut Data<'_>) -> Result<Next, Refusal>,
) -> Result<(), Refusal> {
    match format::of_upload(upload)? {
        Format::Zip => zip::read_members(upload, options, &mut each),
        format => tar::read_members(upload, format, options, &mut each),
    }
}
