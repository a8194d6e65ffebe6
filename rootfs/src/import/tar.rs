//! The members of a tar, with their extension headers applied.
//!
//! The `tar` crate takes headers apart; the extension headers are read here, because a pax record or
//! a long name is as hostile as the rest and must stay small. What two readers of tar could
//! understand in two ways is refused instead of guessed.

use super::blocks::Blocks;
use super::format::Format;
use super::member::{Data, Kind, Member, Next};
use super::pax::{Extensions, header_time};
use super::place::{At, Place};
use super::sparse::{Layout, Records};
use super::stream::Stream;
use crate::job::{ImportOptions, Refusal, RefusalCode};
use crate::names::quoted;
use crate::tree::too_many_entries;
use std::fs::File;
use std::io::Read;

/// The longest extension header that is taken. Names end at 4 KiB; the rest is attributes.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// The largest size that eleven octal digits can say.
const HEADER_SIZE_MAX: u64 = (1 << 33) - 1;

/// Extension headers before one member. There are five kinds, and repeating one says nothing.
const EXTENSIONS_MAX: u32 = 16;

/// Zeros behind the end of a tar that are read over. Writers pad to 10 KiB, tapes to a few MiB.
const PADDING_BYTES_MAX: u64 = 16 << 20;

/// Gives every member and its data to `each`, in order, to the end of the archive.
pub(super) fn read_members(
    upload: &File,
    format: Format,
    options: &ImportOptions,
    each: &mut dyn FnMut(&Member, &mut Data<'_>) -> Result<Next, Refusal>,
) -> Result<(), Refusal> {
    let stream = Stream::open(upload, format, &options.limits, options.ratio_max)?;
    let mut place = Place { ended: stream.ended(), at: At::Start };
    let mut blocks = Blocks::new(stream);
    let mut extensions = Extensions::default();
    let (mut members, mut in_a_row) = (0, 0);
    while let Some(header) = blocks.header().map_err(|error| place.fault(&error))? {
        let kind = header.entry_type().as_byte();
        if matches!(kind, b'x' | b'X' | b'g' | b'L' | b'K') {
            in_a_row += 1;
            if in_a_row > EXTENSIONS_MAX {
                return Err(place.damaged("more than 16 extension headers belong to one member"));
            }
            let bytes = read_extension(&mut blocks, &place)?;
            extensions.take(kind, &bytes).map_err(|cause| place.damaged(&cause))?;
            continue;
        }
        (members, in_a_row) = (members + 1, 0);
        if members > options.limits.entries_max {
            return Err(too_many_entries(&options.limits));
        }
        let mut extensions = std::mem::take(&mut extensions);
        let mut member = member_of(&header, &extensions, &place)?;
        place.at = At::Member(member.name.clone());
        let layout = layout_of(&header, &member, extensions.sparse.take(), &mut blocks, &place)?;
        let next = match layout {
            None => each(&member, &mut Data::new(&mut blocks, member.size, &place))?,
            Some(Layout { segments, size, stored }) => {
                member.size = size;
                let data = Data::new(&mut blocks, stored, &place);
                let next = each(&member, &mut data.with_holes(segments, size))?;
                blocks.count_hole(size - stored)?;
                next
            }
        };
        if next == Next::Stop {
            return Ok(());
        }
        place.at = At::After(member.name);
    }
    read_to_end(blocks.into_rest(), &place)
}

/// Where the data of a sparse member goes; `None` for all others.
fn layout_of(
    header: &::tar::Header,
    member: &Member,
    records: Option<Records>,
    blocks: &mut Blocks,
    place: &Place,
) -> Result<Option<Layout>, Refusal> {
    let is_old = header.entry_type().as_byte() == b'S';
    match records {
        Some(_) if is_old || member.kind != Kind::File => {
            Err(place.ambiguous("it is sparse, and of a kind that is not"))
        }
        Some(records) => records.layout(member.size, blocks, place).map(Some),
        None if is_old => Layout::of_header(header, member.size, blocks, place).map(Some),
        None => Ok(None),
    }
}

/// Puts a member together from its header and what the extension headers before it say.
fn member_of(
    header: &::tar::Header,
    extensions: &Extensions,
    place: &Place,
) -> Result<Member, Refusal> {
    let name = extensions.name(&header.path_bytes()).map_err(|cause| place.ambiguous(&cause))?;
    let written = header.link_name_bytes().unwrap_or_default();
    let link = extensions.link(&written).map_err(|cause| place.ambiguous(&cause))?;
    let size = header.entry_size().map_err(|error| place.fault(&error))?;
    // The field of a header ends there; what is larger stands in the extension alone.
    if let Some(large) = extensions.size.filter(|other| *other > HEADER_SIZE_MAX) {
        let message = format!("the member {} has {large} bytes", quoted(&name));
        return Err(Refusal::new(RefusalCode::FileTooLarge, message).limit(HEADER_SIZE_MAX));
    }
    if extensions.size.is_some_and(|other| other != size) {
        return Err(place.ambiguous(&format!("{} has two different sizes", quoted(&name))));
    }
    let kind = kind_of(header.entry_type().as_byte(), &name)?;
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
        notes: Vec::new(),
        name,
    })
}

fn kind_of(code: u8, name: &[u8]) -> Result<Kind, Refusal> {
    if code == b'M' {
        let message = format!("the member {} goes on from another volume", quoted(name));
        return Err(Refusal::new(RefusalCode::UnsupportedFormat, message));
    }
    Ok(match code {
        // Before POSIX, a directory was a file whose name ends in a slash.
        b'0' | 0 | b'7' if name.ends_with(b"/") => Kind::Directory,
        b'0' | 0 | b'7' | b'S' => Kind::File,
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
