//! Import: an uploaded archive becomes files below a directory.
//!
//! The upload is read twice: once to find a wrapping directory ([`wrapper`]), stopping as soon as
//! there is none, and once to write ([`materialise`]). So nothing has to be moved afterwards, and
//! a damaged archive is mostly refused before anything is written.

pub mod format;
mod materialise;
pub mod member;
mod parents;
pub mod pax;
mod settle;
pub mod wrapper;

use crate::job::{ImportOptions, ImportOutcome, Progress, Refusal, Wrapper};
use materialise::Materialiser;
use member::{Next, read_members};
use std::fs::File;
use std::os::fd::BorrowedFd;

/// Writes the members of `upload` below `out`, replacing what is there under the same names.
///
/// Files become 0644 or 0755, directories 0755, owned by the caller; times of modification and
/// names are kept. Whatever is not a file, a directory or a link within the root is dropped and
/// counted. When this returns, all is on disk.
///
/// # Errors
/// Damage, ambiguity and every passed limit refuse the archive as a whole; `out` then holds a part
/// of it. `progress` ends the import by an error of its own.
pub fn import(
    upload: &File,
    out: BorrowedFd<'_>,
    options: &ImportOptions,
    progress: &mut dyn FnMut(Progress) -> Result<(), Refusal>,
) -> Result<ImportOutcome, Refusal> {
    let wrapper = match options.wrapper {
        Wrapper::Strip => wrapper::find_wrapper(upload, options)?,
        Wrapper::Keep => None,
    };
    let mut materialiser = Materialiser::new(out, &options.limits, wrapper);
    read_members(upload, options, |member, data| {
        materialiser.land(member, data)?;
        progress(materialiser.progress())?;
        Ok(Next::Continue)
    })?;
    materialiser.settle()
}
