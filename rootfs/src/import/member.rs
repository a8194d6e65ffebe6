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

/// A part of a file with holes that has data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it has.
    pub length: u64,
}

/// The data of a member.
pub struct Data<'a> {
    entry: &'a mut dyn Read,
    size: u64,
    left: u64,
    place: &'a Place,
    holes: Option<Holes>,
}

/// How far a file with holes was read.
struct Holes {
    /// The segments that were not read yet, the next one last.
    segments: Vec<Segment>,
    at: u64,
    size: u64,
}

impl<'a> Data<'a> {
    pub(super) fn new(entry: &'a mut dyn Read, size: u64, place: &'a Place) -> Self {
        Self { entry, size, left: size, place, holes: None }
    }

    /// The same for a file of which only these segments are there.
    pub(super) fn with_holes(mut self, mut segments: Vec<Segment>, size: u64) -> Self {
        segments.reverse();
        self.holes = Some(Holes { segments, at: 0, size });
        self
    }

    /// Passes over a hole; how many zeros stand for it. 0 where data come next, and at the end.
    pub fn pass_hole(&mut self) -> u64 {
        let Some(holes) = &mut self.holes else { return 0 };
        let until = holes.segments.last().map_or(holes.size, |segment| segment.offset);
        let hole = until.saturating_sub(holes.at);
        holes.at += hole;
        hole
    }

    /// Reads the next bytes; 0 only at the end of the member. A hole that is not passed over is
    /// left out.
    ///
    /// # Errors
    /// When the archive ends before the member does, or is damaged.
    pub fn read(&mut self, into: &mut [u8]) -> Result<usize, Refusal> {
        let next = match &mut self.holes {
            None => self.left,
            Some(holes) => holes.next(),
        };
        let want = usize::try_from(next).unwrap_or(usize::MAX).min(into.len());
        if want == 0 {
            return Ok(0);
        }
        match self.entry.read(&mut into[..want]) {
            Ok(0) => Err(self.place.cut_short(Some((self.size - self.left, self.size)))),
            Ok(count) => {
                self.left -= count as u64;
                if let Some(holes) = &mut self.holes {
                    holes.advance(count as u64);
                }
                Ok(count)
            }
            Err(error) => Err(self.place.fault(&error)),
        }
    }
}

impl Holes {
    /// How many bytes of data come before the next hole.
    fn next(&mut self) -> u64 {
        let Some(segment) = self.segments.last() else { return 0 };
        self.at = self.at.max(segment.offset);
        segment.offset + segment.length - self.at
    }

    fn advance(&mut self, count: u64) {
        self.at += count;
        self.segments.pop_if(|segment| segment.offset + segment.length == self.at);
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
