//! Little-endian numbers and extra fields.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The number at an offset of bytes that are known to be long enough.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// The same with four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

/// The same with eight bytes.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Reads bytes at an offset of the upload; `UnexpectedEof` when it is too short.
pub(super) fn read_at(upload: &File, at: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    upload.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// The extra field with this number. Fields behind one that is cut off are not there: extra fields
/// are padded with all sorts of bytes.
pub(super) fn extra(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    while rest.len() >= 4 {
        let (number, length) = (u16_at(rest, 0), usize::from(u16_at(rest, 2)));
        let field = rest.get(4..4 + length)?;
        if number == wanted {
            return Some(field);
        }
        rest = &rest[4 + length..];
    }
    None
}

/// Replaces numbers that did not fit by those of the zip64 field, which holds only these, in the
/// order of the header; `None` when one is missing.
pub(super) fn widen(extra_fields: &[u8], numbers: &mut [&mut u64]) -> Option<()> {
    let mut wide = extra(extra_fields, 0x0001).unwrap_or_default();
    for number in numbers.iter_mut().filter(|number| ***number == u64::from(u32::MAX)) {
        let (first, rest) = wide.split_at_checked(8)?;
        **number = u64_at(first, 0);
        wide = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_fields_are_found_and_padding_is_none() {
        let fields = b"\x55\x54\x01\0a\x01\0\x08\0\x01\x02\x03\x04\x05\x06\x07\x08\0\0";
        assert_eq!(extra(fields, 0x5455), Some(&b"a"[..]));
        assert_eq!(extra(fields, 1).map(<[u8]>::len), Some(8));
        assert_eq!(extra(fields, 7), None);
        assert_eq!(extra(b"\x55\x54\xff\0a", 0x5455), None);
    }

    #[test]
    fn only_numbers_that_did_not_fit_are_in_the_wide_field() {
        let fields = b"\x01\0\x08\0\x01\0\0\0\x01\0\0\0";
        let (mut size, mut packed) = (7, u64::from(u32::MAX));
        widen(fields, &mut [&mut size, &mut packed]).unwrap();
        assert_eq!((size, packed), (7, 0x1_0000_0001));
        let (mut one, mut other) = (u64::from(u32::MAX), u64::from(u32::MAX));
        assert_eq!(widen(fields, &mut [&mut one, &mut other]), None);
    }
}
