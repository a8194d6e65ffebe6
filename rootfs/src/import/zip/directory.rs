//! The central directory.

use super::end::{self, End, damaged};
use super::entry::{Entry, mtime};
use super::fields::{u16_at, u32_at, widen};
use super::names::{convert_backslashes, decode};
use crate::import::format::unreadable;
use crate::job::{Limits, Refusal};
use crate::names::quoted;
use crate::tree::too_many_entries;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// The longest directory that is read: it is in memory while members are written.
const DIRECTORY_BYTES_MAX: u64 = 256 << 20;

const HEADER_BYTES: usize = 46;

/// Reads all entries, in their order.
///
/// # Errors
/// When there are more than the limit, or other ones than the end of the zip says.
pub(super) fn read(upload: &File, limits: &Limits) -> Result<(Vec<Entry>, End), Refusal> {
    let end = end::find(upload)?;
    if end.entries > limits.entries_max {
        return Err(too_many_entries(limits));
    }
    if end.directory_bytes > DIRECTORY_BYTES_MAX {
        return Err(damaged("its directory is larger than 256 MiB"));
    }
    let mut file = upload.try_clone().map_err(|error| unreadable(&error))?;
    file.seek(SeekFrom::Start(end.directory_at)).map_err(|error| unreadable(&error))?;
    let mut reader = Directory { reader: BufReader::new(file), left: end.directory_bytes };
    let mut entries = Vec::new();
    while let Some(entry) = reader.next(entries.last())? {
        entries.push(entry);
        if entries.len() as u64 > limits.entries_max {
            return Err(too_many_entries(limits));
        }
    }
    let found = entries.len() as u64;
    if found != end.entries && !(end.wraps && found % 65_536 == end.entries) {
        let cause = format!("its directory has {found} entries, and its end says {}", end.entries);
        return Err(damaged(&cause));
    }
    Ok((entries, end))
}

struct Directory {
    reader: BufReader<File>,
    left: u64,
}

impl Directory {
    fn next(&mut self, last: Option<&Entry>) -> Result<Option<Entry>, Refusal> {
        if self.left == 0 {
            return Ok(None);
        }
        let after = || match last {
            Some(last) => format!("after {}", quoted(&last.name)),
            None => "at its beginning".to_owned(),
        };
        let header = self.take(HEADER_BYTES, &after)?;
        if header.starts_with(b"PK\x05\x05") {
            // A digital signature, which nobody checks, is the last thing there can be.
            self.left = 0;
            return Ok(None);
        }
        if !header.starts_with(b"PK\x01\x02") {
            return Err(damaged(&format!("its directory makes no sense {}", after())));
        }
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(&header, at)));
        let name = self.take(lengths[0], &after)?;
        let extra_fields = self.take(lengths[1], &after)?;
        self.take(lengths[2], &after)?;
        entry(&header, name, &extra_fields).map(Some)
    }

    fn take(&mut self, count: usize, after: &dyn Fn() -> String) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; count];
        let short = || damaged(&format!("its directory ends too early, {}", after()));
        self.left = self.left.checked_sub(count as u64).ok_or_else(short)?;
        self.reader.read_exact(&mut bytes).map_err(|error| short().detail(error))?;
        Ok(bytes)
    }
}

fn entry(header: &[u8], raw_name: Vec<u8>, extra_fields: &[u8]) -> Result<Entry, Refusal> {
    let flags = u16_at(header, 8);
    let system = header[5];
    let (mut name, name_rule) = decode(&raw_name, flags & 1 << 11 != 0, extra_fields);
    let backslashes = convert_backslashes(&mut name, system);
    let wide = |at| u64::from(u32_at(header, at));
    let (mut size, mut packed, mut header_at) = (wide(24), wide(20), wide(42));
    widen(extra_fields, &mut [&mut size, &mut packed, &mut header_at])
        .ok_or_else(|| damaged(&format!("the size of {} is missing", quoted(&name))))?;
    Ok(Entry {
        name,
        raw_name,
        name_rule,
        backslashes,
        system,
        attributes: u32_at(header, 38),
        flags,
        method: u16_at(header, 10),
        checksum: u32_at(header, 16),
        packed,
        size,
        mtime: mtime(u16_at(header, 14), u16_at(header, 12), extra_fields),
        header_at,
        data_at: 0,
    })
}
