//! Sparse members of a tar: where their data lies in the file, as GNU tar and bsdtar write it.
//!
//! There are four ways to say it. In the old one the map stands in the header and in blocks behind
//! it. In pax the map is a list of records (0.0), one record (0.1), or text in front of the data
//! (1.0). Other ways are refused by name: a reader who overlooks one takes holes for nothing.

use super::blocks::Blocks;
use super::member::Segment;
use super::place::Place;
use crate::job::{Refusal, RefusalCode};
use crate::names::quoted;
use std::io::Read;

/// The longest map, which is as long as an extension header can be.
const MAP_BYTES_MAX: usize = 1 << 20;
const BLOCK: usize = 512;
/// An entry of a map in or behind a header.
const ENTRY: usize = 24;
/// The longest line of a map in front of the data, with room.
const LINE: usize = 32;

/// What pax records say about the sparse member that follows.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Records {
    /// Its real name, where the header has one that is made up.
    pub name: Option<Vec<u8>>,
    size: Option<u64>,
    major: Option<u64>,
    minor: Option<u64>,
    segments: Vec<Segment>,
    /// An offset whose length has not come yet.
    begun: Option<u64>,
}

impl Records {
    /// Takes a record whose key begins with `GNU.sparse.`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        let number = || number(value).ok_or_else(|| format!("{} is no number", quoted(key)));
        match &key["GNU.sparse.".len()..] {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number()?),
            b"major" => self.major = Some(number()?),
            b"minor" => self.minor = Some(number()?),
            b"map" => self.segments = map(value).ok_or("the map of a sparse file is malformed")?,
            b"offset" if self.begun.is_none() => self.begun = Some(number()?),
            b"numbytes" => {
                let offset = self.begun.take().ok_or("a part of a sparse file has no offset")?;
                self.segments.push(Segment { offset, length: number()? });
            }
            b"offset" => return Err("a part of a sparse file has no length".to_owned()),
            b"numblocks" => {}
            _ => return Err(format!("{} is not known", quoted(key))),
        }
        Ok(())
    }

    /// The layout of the member whose data begins now, `stored` bytes of it.
    ///
    /// # Errors
    /// When the map cannot be that of the data.
    pub(super) fn layout(
        self,
        stored: u64,
        blocks: &mut Blocks,
        place: &Place,
    ) -> Result<Layout, Refusal> {
        let size = self.size.ok_or_else(|| place.damaged("a sparse file has no size"))?;
        if self.begun.is_some() {
            return Err(place.damaged("a part of a sparse file has no length"));
        }
        match (self.major.unwrap_or(0), self.minor.unwrap_or(0)) {
            (0, _) => Layout::new(self.segments, size, stored, place),
            (1, 0) => {
                let (segments, taken) = map_in_data(stored, blocks, place)?;
                Layout::new(segments, size, stored - taken, place)
            }
            (major, minor) => {
                let message = format!("a sparse file of version {major}.{minor} is not read");
                Err(Refusal::new(RefusalCode::UnsupportedFormat, message))
            }
        }
    }
}

/// Where the data of a sparse member goes.
#[derive(Debug)]
pub(super) struct Layout {
    /// In order, without the empty ones.
    pub(super) segments: Vec<Segment>,
    /// The size of the file with its holes.
    pub(super) size: u64,
    /// Bytes of data in the archive.
    pub(super) stored: u64,
}

impl Layout {
    /// Data that is larger or smaller than its map, or that lands twice in one place, is a member
    /// that two readers read in two ways.
    fn new(segments: Vec<Segment>, size: u64, stored: u64, place: &Place) -> Result<Self, Refusal> {
        let (mut end, mut mapped) = (0u64, 0u64);
        for Segment { offset, length } in &segments {
            let until = offset.checked_add(*length);
            let until = until.filter(|until| *offset >= end && *until <= size);
            end = until.ok_or_else(|| place.damaged("the map of a sparse file is out of order"))?;
            // Within the size, so it cannot overflow.
            mapped += length;
        }
        if mapped != stored {
            let cause = format!("a sparse file has {stored} bytes and a map of {mapped}");
            return Err(place.ambiguous(&cause));
        }
        let segments = segments.into_iter().filter(|segment| segment.length > 0).collect();
        Ok(Self { segments, size, stored })
    }

    /// The layout of a member of the old form, whose data or further map begins now.
    ///
    /// # Errors
    /// When the map is damaged, or the header is that of another tar than GNU's.
    pub(super) fn of_header(
        header: &::tar::Header,
        stored: u64,
        blocks: &mut Blocks,
        place: &Place,
    ) -> Result<Self, Refusal> {
        let Some(gnu) = header.as_gnu() else {
            let message = "a sparse file is stored in a way that is not GNU tar's".to_owned();
            return Err(Refusal::new(RefusalCode::UnsupportedFormat, message));
        };
        let mut segments = Vec::new();
        take_entries(&gnu.sparse, &mut segments, place)?;
        let mut goes_on = gnu.is_extended();
        while goes_on {
            let mut more = ::tar::GnuExtSparseHeader::new();
            more.as_mut_bytes().copy_from_slice(&blocks.extension(place)?);
            take_entries(more.sparse(), &mut segments, place)?;
            goes_on = more.is_extended();
            if segments.len() * ENTRY > MAP_BYTES_MAX {
                return Err(place.damaged(MAP_TOO_LARGE));
            }
        }
        let size = gnu.real_size().map_err(|error| place.fault(&error))?;
        Self::new(segments, size, stored, place)
    }
}

const MAP_TOO_LARGE: &str = "the map of a sparse file is larger than 1 MiB";

fn take_entries(
    entries: &[::tar::GnuSparseHeader],
    segments: &mut Vec<Segment>,
    place: &Place,
) -> Result<(), Refusal> {
    for entry in entries.iter().filter(|entry| !entry.is_empty()) {
        let offset = entry.offset().map_err(|error| place.fault(&error))?;
        let length = entry.length().map_err(|error| place.fault(&error))?;
        segments.push(Segment { offset, length });
    }
    Ok(())
}

/// `offset,length,offset,length…`.
fn map(text: &[u8]) -> Option<Vec<Segment>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let numbers: Vec<u64> = text.split(|byte| *byte == b',').map(number).collect::<Option<_>>()?;
    let pairs = numbers.chunks(2).map(|pair| match pair {
        [offset, length] => Some(Segment { offset: *offset, length: *length }),
        _ => None,
    });
    pairs.collect()
}

/// A map in front of the data: numbers on a line each, the first of them how many pairs follow, in
/// whole blocks. Returns the bytes it took, too.
fn map_in_data(
    stored: u64,
    blocks: &mut Blocks,
    place: &Place,
) -> Result<(Vec<Segment>, u64), Refusal> {
    let malformed = || place.damaged("the map of a sparse file is malformed");
    let (mut text, mut at) = (Vec::new(), 0);
    let mut next = |blocks: &mut Blocks| loop {
        if let Some(end) = text[at..].iter().position(|byte: &u8| *byte == b'\n') {
            let found = number(&text[at..at + end]).ok_or_else(malformed);
            at += end + 1;
            return found.map(|number| (number, text.len() as u64));
        }
        let begin = text.len();
        if begin + BLOCK > MAP_BYTES_MAX {
            return Err(place.damaged(MAP_TOO_LARGE));
        }
        if begin - at > LINE || (begin + BLOCK) as u64 > stored {
            return Err(malformed());
        }
        text.resize(begin + BLOCK, 0);
        blocks.read_exact(&mut text[begin..]).map_err(|error| place.fault(&error))?;
    };
    let (count, mut taken) = next(blocks)?;
    let mut segments = Vec::new();
    for _ in 0..count {
        let (offset, _) = next(blocks)?;
        let (length, until) = next(blocks)?;
        segments.push(Segment { offset, length });
        taken = until;
    }
    Ok((segments, taken))
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(offset: u64, length: u64) -> Segment {
        Segment { offset, length }
    }

    #[test]
    fn maps_are_pairs_of_numbers() {
        assert_eq!(map(b"0,5,1024,7"), Some(vec![segment(0, 5), segment(1024, 7)]));
        assert_eq!(map(b""), Some(Vec::new()));
        for bad in [&b"0"[..], b"0,", b"0,1,2", b"a,1", b"-1,1", b"0,99999999999999999999"] {
            assert_eq!(map(bad), None, "{}", quoted(bad));
        }
    }

    #[test]
    fn records_are_taken_in_pairs_and_strange_ones_are_not() {
        let mut records = Records::default();
        for (key, value) in [("size", "9"), ("offset", "1"), ("numbytes", "2")] {
            records.take(format!("GNU.sparse.{key}").as_bytes(), value.as_bytes()).unwrap();
        }
        assert_eq!((records.size, &records.segments), (Some(9), &vec![segment(1, 2)]));
        assert!(records.take(b"GNU.sparse.numbytes", b"2").is_err(), "without an offset");
        records.take(b"GNU.sparse.offset", b"5").unwrap();
        assert!(records.take(b"GNU.sparse.offset", b"6").is_err(), "without a length");
        assert!(records.take(b"GNU.sparse.size", b"many").is_err());
        assert!(records.take(b"GNU.sparse.other", b"").is_err());
    }
}
