//! What an upload is, told by its first bytes.

use crate::job::{Refusal, RefusalCode};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A tar as it is.
    Tar,
    /// A tar in one or more gzip members.
    Gzip,
    /// A tar in one or more zstd frames.
    Zstd,
    /// A tar in one or more xz streams.
    Xz,
    /// A tar in one or more bzip2 streams.
    Bzip2,
    /// A zip.
    Zip,
}

/// The bytes at the beginning of an upload that tell its format.
const HEAD_BYTES: usize = 512;

/// Formats that are known and not read: where their magic is, what it is, their name.
const UNREAD: &[(usize, &[u8], &str)] = &[
    (0, b"PK\x07\x08", "a part of a zip archive in several volumes"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"\x04\x22\x4d\x18", "lz4-compressed"),
    (0, b"LZIP", "lzip-compressed"),
    (0, b"\x5d\0\0", "compressed by the old lzma"),
    (0, b"\x1f\x9d", "compressed by compress(1)"),
    (0, b"!<arch>\n", "an ar archive"),
    (0, b"070701", "a cpio archive"),
    (0, b"070707", "a cpio archive"),
];

/// Tells the format of an upload.
///
/// # Errors
/// As [`detect`]; [`RefusalCode::Failed`] when the upload is not a file that can be read anywhere.
pub fn of_upload(upload: &File) -> Result<Format, Refusal> {
    let mut head = [0; HEAD_BYTES];
    let mut have = 0;
    while have < head.len() {
        match upload.read_at(&mut head[have..], have as u64) {
            Ok(0) => break,
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(&error)),
        }
    }
    detect(&head[..have])
}

/// Tells the format from the first 512 bytes.
///
/// # Errors
/// [`RefusalCode::UnsupportedFormat`] names a format that is known and not read;
/// [`RefusalCode::CorruptArchive`] is for everything else that is no tar.
pub fn detect(head: &[u8]) -> Result<Format, Refusal> {
    if head.is_empty() {
        return Err(Refusal::new(RefusalCode::CorruptArchive, "the upload is empty"));
    }
    let begins = |magic: &[u8]| head.starts_with(magic);
    let skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == *b"\x2a\x4d\x18";
    if begins(b"\x1f\x8b") {
        return Ok(Format::Gzip);
    }
    if begins(b"\x28\xb5\x2f\xfd") || skippable {
        return Ok(Format::Zstd);
    }
    if begins(b"\xfd7zXZ\0") {
        return Ok(Format::Xz);
    }
    if is_tar(head) {
        return Ok(Format::Tar);
    }
    // After tar: a member can be called anything.
    if begins(b"BZh") {
        return Ok(Format::Bzip2);
    }
    // A member, or the end of one without members, in its plain and its zip64 form.
    if begins(b"PK\x03\x04") || begins(b"PK\x05\x06") || begins(b"PK\x06\x06") {
        return Ok(Format::Zip);
    }
    let known =
        UNREAD.iter().find(|(at, magic, _)| head[(*at).min(head.len())..].starts_with(magic));
    Err(match known {
        Some((_, _, name)) => Refusal::new(
            RefusalCode::UnsupportedFormat,
            format!(
                "the upload is {name}; zip, and tar as it is or with gzip, zstd, xz or bzip2 are read"
            ),
        ),
        None => Refusal::new(
            RefusalCode::CorruptArchive,
            "the upload is no archive: it begins neither as zip or tar nor as gzip, zstd, xz or \
             bzip2",
        ),
    })
}

/// Whether a block is the first of a tar: a header whose checksum is right, or the zeros at the
/// end of an empty one. A tar has no magic that all its writers agree on.
pub(super) fn is_tar(block: &[u8]) -> bool {
    let Some(block) = block.get(..512) else { return false };
    if block.iter().all(|byte| *byte == 0) {
        return true;
    }
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let field: u32 = block[148..156].iter().map(|byte| u32::from(*byte)).sum();
    let header = ::tar::Header::from_byte_slice(block);
    header.cksum().is_ok_and(|written| written == sum - field + 8 * u32::from(b' '))
}

pub(super) fn unreadable(error: &io::Error) -> Refusal {
    Refusal::new(RefusalCode::Failed, "the upload could not be read").detail(error)
}
