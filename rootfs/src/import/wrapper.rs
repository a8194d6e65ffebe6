//! Finds the single directory that wraps everything in an archive, as in one of a repository.

use super::member::{Data, Kind, Member, Next, read_members};
use crate::job::{ImportOptions, Refusal};
use crate::names::{NameFault, parts_of};
use std::fs::File;

/// The first bytes of an AppleDouble file, in which macOS keeps attributes beside a file.
pub const APPLE_DOUBLE: [u8; 4] = [0x00, 0x05, 0x16, 0x07];

/// What is at the top level of an archive that is landing.
#[derive(Debug, Default)]
pub(super) struct Roots {
    first: Option<Vec<u8>>,
    is_several: bool,
}

impl Roots {
    /// Takes a member into account by the path it lands at.
    pub(super) fn see(&mut self, path: &[u8], kind: Kind) {
        let slash = path.iter().position(|byte| *byte == b'/');
        let name = &path[..slash.unwrap_or(path.len())];
        let below = slash.is_some() || kind == Kind::Directory;
        let first = self.first.get_or_insert_with(|| name.to_vec());
        self.is_several |= !below || first != name;
    }

    /// The directory that everything is in.
    pub(super) fn wrapper(&self) -> Option<&[u8]> {
        self.first.as_deref().filter(|_| !self.is_several)
    }
}

/// Reads the archive as far as needed, and to its end when there is such a directory.
///
/// What archivers add beside it does not count, nor do members that never land.
///
/// # Errors
/// As [`read_members`].
pub fn find_wrapper(upload: &File, options: &ImportOptions) -> Result<Option<Vec<u8>>, Refusal> {
    let mut wrapper: Option<Vec<u8>> = None;
    let mut is_single = true;
    read_members(upload, options, |member, data| {
        let parts = match parts_of(&member.name, &options.limits) {
            Ok(parts) => parts,
            Err(NameFault::Skip(_)) => return Ok(Next::Continue),
            Err(NameFault::Refuse(refusal)) => return Err(refusal),
        };
        let Some(&first) = parts.first() else { return Ok(Next::Continue) };
        if never_lands(member.kind) || is_metadata(&parts, member, data)? {
            return Ok(Next::Continue);
        }
        let below = parts.len() > 1 || member.kind == Kind::Directory;
        is_single = below && wrapper.as_deref().is_none_or(|wrapper| wrapper == first);
        wrapper.get_or_insert_with(|| first.to_vec());
        Ok(if is_single { Next::Continue } else { Next::Stop })
    })?;
    Ok(wrapper.filter(|_| is_single))
}

fn never_lands(kind: Kind) -> bool {
    matches!(kind, Kind::Device | Kind::Fifo | Kind::Unknown)
}

/// Whether archivers put this beside a project: the directory `__MACOSX`, and at the top level
/// `.DS_Store`, AppleDouble files and a `pax_global_header` that was once unpacked as a file.
fn is_metadata(parts: &[&[u8]], member: &Member, data: &mut Data<'_>) -> Result<bool, Refusal> {
    if is_known_metadata(parts, member.kind) {
        return Ok(true);
    }
    let is_side_file = parts.len() == 1 && member.kind == Kind::File && parts[0].starts_with(b"._");
    Ok(is_side_file && begins_as_apple_double(data)?)
}

/// What is metadata by its name alone.
#[must_use]
pub fn is_known_metadata(parts: &[&[u8]], kind: Kind) -> bool {
    match parts {
        [b".DS_Store" | b"pax_global_header"] => kind == Kind::File,
        [b"__MACOSX", ..] => true,
        _ => false,
    }
}

fn begins_as_apple_double(data: &mut Data<'_>) -> Result<bool, Refusal> {
    let mut magic = [0; 4];
    let mut have = 0;
    while have < magic.len() {
        if data.pass_hole() > 0 {
            return Ok(false);
        }
        match data.read(&mut magic[have..])? {
            0 => return Ok(false),
            count => have += count,
        }
    }
    Ok(magic == APPLE_DOUBLE)
}
