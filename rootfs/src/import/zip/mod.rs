//! The members of a zip, driven by its central directory.
//!
//! A zip says everything twice: in the directory at its end and in a header before each member's
//! data. Readers that follow one see other files than readers that follow the other, so both are
//! compared before anything is written, and what differs is refused. The reader is our own because
//! one that keys members by name cannot see a name that is there twice.

mod data;
mod directory;
mod end;
mod entry;
mod fields;
mod local;
mod names;
mod survey;

use super::member::{Data, Kind, Member, Next};
use super::place::{At, Place};
use crate::job::{ImportOptions, Note, Refusal};
use entry::Entry;
use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::rc::Rc;

/// The longest target of a symlink; the kernel takes none that is longer.
const TARGET_BYTES_MAX: u64 = 4095;

/// Gives every member and its data to `each`, in the order of the directory.
///
/// # Errors
/// As [`survey::survey`], before the first member; then damage of the data.
pub(super) fn read_members(
    upload: &File,
    options: &ImportOptions,
    each: &mut dyn FnMut(&Member, &mut Data<'_>) -> Result<Next, Refusal>,
) -> Result<(), Refusal> {
    let mut place = Place { ended: Rc::new(Cell::new(false)), at: At::Start };
    for entry in survey::survey(upload, options)? {
        place.at = At::Member(entry.name.clone());
        let mut reader = data::open(upload, &entry).map_err(|error| place.fault(&error))?;
        let member = member_of(entry, &mut reader, &place)?;
        let mut data = Data::new(&mut reader, member.size, &place);
        if each(&member, &mut data)? == Next::Stop {
            return Ok(());
        }
    }
    Ok(())
}

fn member_of(entry: Entry, reader: &mut dyn Read, place: &Place) -> Result<Member, Refusal> {
    let kind = entry.kind();
    let mut member = Member {
        kind,
        link: Vec::new(),
        size: entry.size,
        executable: entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0),
        mtime: entry.mtime,
        notes: entry.notes(),
        name: entry.name,
    };
    match kind {
        Kind::Symlink => {
            member.link = read_target(reader, member.size, place)?;
            member.size = 0;
        }
        Kind::Directory if member.size != 0 => {
            return Err(place.ambiguous("it is a directory and has data"));
        }
        _ => {}
    }
    Ok(member)
}

fn read_target(reader: &mut dyn Read, size: u64, place: &Place) -> Result<Vec<u8>, Refusal> {
    if size > TARGET_BYTES_MAX {
        return Err(place.damaged(&format!("it is a symlink whose target has {size} bytes")));
    }
    let mut target = Vec::new();
    let mut data = Data::new(reader, size, place);
    let mut part = [0; 512];
    loop {
        match data.read(&mut part)? {
            0 => return Ok(target),
            count => target.extend_from_slice(&part[..count]),
        }
    }
}

impl Entry {
    /// What whoever asked for the import is told.
    fn notes(&self) -> Vec<Note> {
        let mut notes: Vec<Note> = self.name_rule.note().into_iter().collect();
        if self.backslashes {
            notes.push(Note::BackslashesConverted);
        }
        if self.unix_mode().is_none() && self.kind() == Kind::File {
            notes.push(Note::ModesAbsent);
        }
        notes
    }
}
