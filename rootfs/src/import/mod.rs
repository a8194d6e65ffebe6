//! Import: an uploaded archive becomes files below a directory.
//!
//! Members are written as they come ([`materialise`]). Into an empty directory the upload is read
//! once, and what a wrapping directory holds is moved up at the end ([`unwrap`]); over something
//! that is there it is read twice, first to find that directory ([`wrapper`]).

mod blocks;
pub mod format;
mod materialise;
pub mod member;
mod parents;
pub mod pax;
mod place;
mod settle;
pub mod sparse;
mod stream;
mod tar;
mod unpack;
mod unwrap;
pub mod wrapper;
mod zip;

use crate::flush::while_flushing;
use crate::job::{ImportOptions, ImportOutcome, Progress, Refusal, Wrapper};
use crate::refusal::Attempt;
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
    let lands_alone = unwrap::is_empty(out)?;
    let wrapper = match options.wrapper {
        Wrapper::Strip if !lands_alone => wrapper::find_wrapper(upload, options)?,
        Wrapper::Strip | Wrapper::Keep => None,
    };
    let mut materialiser = Materialiser::new(out, &options.limits, wrapper);
    let (read, flushed) = while_flushing(out, || {
        read_members(upload, options, |member, data| {
            materialiser.land(member, data)?;
            progress(materialiser.progress())?;
            Ok(Next::Continue)
        })
    });
    read?;
    flushed.attempt(|| "the imported tree".to_owned(), "syncfs")?;
    if options.wrapper == Wrapper::Strip && lands_alone {
        materialiser.unwrap()?;
    }
    materialiser.settle()
}
