//! Compression, and files as uploads arrive.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};

/// The bytes as one gzip member.
///
/// # Panics
/// Never: memory takes everything.
#[must_use]
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// The bytes as one zstd frame with a checksum.
///
/// # Panics
/// Never: memory takes everything.
#[must_use]
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("a level");
    encoder.include_checksum(true).expect("a frame");
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// The bytes as one xz stream.
///
/// # Panics
/// Never: memory takes everything.
#[must_use]
pub fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// The bytes as one bzip2 stream.
///
/// # Panics
/// Never: memory takes everything.
#[must_use]
pub fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).expect("memory takes everything");
    encoder.finish().expect("memory takes everything")
}

/// A file with these bytes, as the upload arrives.
///
/// # Panics
/// When it cannot be written.
#[must_use]
pub fn upload(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile_in("/var/tmp").expect("a file");
    file.write_all(bytes).expect("write");
    file.seek(SeekFrom::End(0)).expect("seek");
    file
}
