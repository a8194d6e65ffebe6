//! The header before a member's data, which has to say what the directory says.

use super::entry::Entry;
use super::fields::{read_at, u16_at, u32_at, widen};
use super::names::unicode_field;
use crate::job::{Refusal, RefusalCode};
use crate::names::quoted;
use std::fs::File;

const HEADER_BYTES: usize = 30;

/// The flag of members whose sizes follow the data, because they were not known before.
const STREAMED: u16 = 1 << 3;

/// Reads the header of an entry, compares both, and returns where the data begins.
///
/// # Errors
/// When there is no header, or it describes another member.
pub(super) fn compare(upload: &File, entry: &Entry) -> Result<u64, Refusal> {
    let missing = |error| {
        let message =
            format!("the zip is damaged: there is no member {} in it", quoted(&entry.name));
        Refusal::new(RefusalCode::CorruptArchive, message).detail(error)
    };
    let header = read_at(upload, entry.header_at, HEADER_BYTES).map_err(missing)?;
    if !header.starts_with(b"PK\x03\x04") {
        return Err(missing(std::io::Error::other("no signature")));
    }
    let (name_bytes, extra_bytes) = (u16_at(&header, 26), u16_at(&header, 28));
    let behind = usize::from(name_bytes) + usize::from(extra_bytes);
    let name_at = entry.header_at.saturating_add(HEADER_BYTES as u64);
    let names = read_at(upload, name_at, behind).map_err(missing)?;
    let (name, extra_fields) = names.split_at(usize::from(name_bytes));
    if name != entry.raw_name {
        return Err(differs(entry, &format!("before its data it is called {}", quoted(name))));
    }
    if let Some(unicode) = unicode_field(name, extra_fields)
        && !is_called(entry, unicode)
    {
        return Err(differs(entry, &format!("before its data it is called {}", quoted(unicode))));
    }
    if u16_at(&header, 8) != entry.method || (u16_at(&header, 6) ^ entry.flags) & 1 != 0 {
        return Err(differs(entry, "before its data another compression or encryption is named"));
    }
    if u16_at(&header, 6) & STREAMED == 0 {
        compare_sizes(entry, &header, extra_fields)?;
    }
    Ok(name_at + behind as u64)
}

/// The name in the Unicode field is that of the directory, but for the direction of slashes.
fn is_called(entry: &Entry, unicode: &[u8]) -> bool {
    let slashes = |byte: &u8| if entry.backslashes && *byte == b'\\' { b'/' } else { *byte };
    unicode.iter().map(slashes).eq(entry.name.iter().copied())
}

fn compare_sizes(entry: &Entry, header: &[u8], extra_fields: &[u8]) -> Result<(), Refusal> {
    let (mut size, mut packed) = (u64::from(u32_at(header, 22)), u64::from(u32_at(header, 18)));
    let known = widen(extra_fields, &mut [&mut size, &mut packed]);
    let same = u32_at(header, 14) == entry.checksum && size == entry.size && packed == entry.packed;
    if known.is_none() || !same {
        return Err(differs(entry, "before its data it has another size or checksum"));
    }
    Ok(())
}

fn differs(entry: &Entry, how: &str) -> Refusal {
    let message = format!(
        "the zip can be read in two ways: its directory has a member {}, and {how}",
        quoted(&entry.name)
    );
    Refusal::new(RefusalCode::AmbiguousArchive, message)
}
