//! The members of a tar, one after the other, with their extension headers applied.
//!
//! The `tar` crate finds the headers; the extension headers are read here, because a pax record or
//! a long name is as hostile as the rest and must stay small. What two readers of tar could
//! understand in two ways is refused instead of guessed.

use super::format::Stream;
use super::pax::{Extensions, header_time};
use crate::job::{ImportOptions, Refusal, RefusalCode};
use crate::names::{printable, quoted};
use crate::refusal::refusal_within;
use crate::tree::{Time, too_many_entries};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::rc::Rc;

/// The longest extension header that is taken. Names end at 4 KiB; the rest is attributes.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Extension headers before one member. There are five kinds, and repeating one says nothing.
const EXTENSIONS_MAX: u32 = 16;

/// Zeros behind the end of a tar that are read over. Writers pad to 10 KiB, tapes to a few MiB.
const PADDING_BYTES_MAX: u64 = 16 << 20;

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

impl Data<'_> {
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
    let stream = Stream::open(upload, &options.limits, options.ratio_max)?;
    let mut place = Place { ended: stream.ended(), at: At::Start };
    let mut archive = tar::Archive::new(stream);
    let entries = archive.entries().map_err(|error| place.fault(&error))?;
    let mut extensions = Extensions::default();
    let (mut members, mut in_a_row) = (0, 0);
    for entry in entries.raw(true) {
        let mut entry = entry.map_err(|error| place.fault(&error))?;
        let kind = entry.header().entry_type().as_byte();
        if matches!(kind, b'x' | b'X' | b'g' | b'L' | b'K') {
            in_a_row += 1;
            if in_a_row > EXTENSIONS_MAX {
                return Err(place.damaged("more than 16 extension headers belong to one member"));
            }
            let bytes = read_extension(&mut entry, &place)?;
            extensions.take(kind, &bytes).map_err(|cause| place.damaged(&cause))?;
            continue;
        }
        (members, in_a_row) = (members + 1, 0);
        if members > options.limits.entries_max {
            return Err(too_many_entries(&options.limits));
        }
        let extensions = std::mem::take(&mut extensions);
        let member = member_of(entry.header(), &extensions, &place)?;
        place.at = At::Member(member.name.clone());
        let (size, left) = (member.size, member.size);
        let mut data = Data { entry: &mut entry, size, left, place: &place };
        if each(&member, &mut data)? == Next::Stop {
            return Ok(());
        }
        place.at = At::After(member.name);
    }
    read_to_end(archive.into_inner(), &place)
}

/// Puts a member together from its header and what the extension headers before it say.
fn member_of(
    header: &tar::Header,
    extensions: &Extensions,
    place: &Place,
) -> Result<Member, Refusal> {
    let name = extensions.name(&header.path_bytes()).map_err(|cause| place.ambiguous(&cause))?;
    let written = header.link_name_bytes().unwrap_or_default();
    let link = extensions.link(&written).map_err(|cause| place.ambiguous(&cause))?;
    let size = header.entry_size().map_err(|error| place.fault(&error))?;
    if extensions.size.is_some_and(|other| other != size) {
        return Err(place.ambiguous(&format!("{} has two different sizes", quoted(&name))));
    }
    let kind = kind_of(header.entry_type().as_byte(), &name, extensions)?;
    let has_data = matches!(kind, Kind::File | Kind::Unknown);
    if size != 0 && !has_data {
        let cause = format!("{} has data and is of a kind that has none", quoted(&name));
        return Err(place.ambiguous(&cause));
    }
    Ok(Member {
        kind,
        link: if matches!(kind, Kind::Symlink | Kind::HardLink) { link } else { Vec::new() },
        size,
        executable: header.mode().is_ok_and(|mode| mode & 0o111 != 0),
        mtime: extensions.mtime.unwrap_or_else(|| header_time(&header.as_old().mtime)),
        name,
    })
}

fn kind_of(code: u8, name: &[u8], extensions: &Extensions) -> Result<Kind, Refusal> {
    if code == b'S' || extensions.sparse {
        let message = format!(
            "the member {} is stored as a sparse file, which is not read; pack without --sparse",
            quoted(name)
        );
        return Err(Refusal::new(RefusalCode::UnsupportedFormat, message));
    }
    if code == b'M' {
        let message = format!("the member {} goes on from another volume", quoted(name));
        return Err(Refusal::new(RefusalCode::UnsupportedFormat, message));
    }
    Ok(match code {
        // Before POSIX, a directory was a file whose name ends in a slash.
        b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' => Kind::File,
        b'5' => Kind::Directory,
        b'2' => Kind::Symlink,
        b'1' => Kind::HardLink,
        b'3' | b'4' => Kind::Device,
        b'6' => Kind::Fifo,
        _ => Kind::Unknown,
    })
}

fn read_extension(entry: &mut impl Read, place: &Place) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    let mut limited = entry.take(EXTENSION_BYTES_MAX + 1);
    limited.read_to_end(&mut bytes).map_err(|error| place.fault(&error))?;
    if place.ended.get() {
        return Err(place.cut_short(None));
    }
    if bytes.len() as u64 > EXTENSION_BYTES_MAX {
        return Err(place.damaged("an extension header is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Reads what follows the first zero block: only zeros may, and the checksum of the compression.
fn read_to_end(mut stream: Stream, place: &Place) -> Result<(), Refusal> {
    if place.ended.get() {
        return Err(place.cut_short(None));
    }
    let mut block = vec![0; 64 << 10];
    let mut padding = 0;
    loop {
        let count = stream.read(&mut block).map_err(|error| place.fault(&error))?;
        if count == 0 {
            return Ok(());
        }
        padding += count as u64;
        if block[..count].iter().any(|byte| *byte != 0) {
            return Err(place.damaged("more bytes follow the end of the archive"));
        }
        if padding > PADDING_BYTES_MAX {
            return Err(place.damaged("the padding at its end is longer than 16 MiB"));
        }
    }
}

/// How far the archive was read, for messages.
struct Place {
    ended: Rc<Cell<bool>>,
    at: At,
}

enum At {
    Start,
    Member(Vec<u8>),
    After(Vec<u8>),
}

impl Place {
    fn fault(&self, error: &io::Error) -> Refusal {
        if let Some(refusal) = refusal_within(error) {
            return refusal.clone();
        }
        if error.kind() == io::ErrorKind::UnexpectedEof || self.ended.get() {
            return self.cut_short(None).detail(error);
        }
        // The text can repeat bytes of a header.
        self.damaged(&printable(error.to_string().as_bytes()))
    }

    fn cut_short(&self, of: Option<(u64, u64)>) -> Refusal {
        let mut message = format!("the archive is cut short {self}");
        if let Some((there, size)) = of {
            message.push_str(&format!(" ({there} of its {size} bytes are there)"));
        }
        Refusal::new(RefusalCode::TruncatedArchive, message)
    }

    fn damaged(&self, cause: &str) -> Refusal {
        let message = format!("the archive is damaged {self}: {cause}");
        Refusal::new(RefusalCode::CorruptArchive, message)
    }

    fn ambiguous(&self, cause: &str) -> Refusal {
        let message = format!("the archive can be read in two ways {self}: {cause}");
        Refusal::new(RefusalCode::AmbiguousArchive, message)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.at {
            At::Start => f.write_str("before its first member"),
            At::Member(name) => write!(f, "inside the member {}", quoted(name)),
            At::After(name) => write!(f, "after the member {}", quoted(name)),
        }
    }
}
