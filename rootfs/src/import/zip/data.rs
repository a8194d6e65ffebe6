//! The data of a member: decompressed, and compared with its checksum and size.

use super::entry::Entry;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

/// Whether members of this method are read: stored, deflated, bzip2, zstd.
pub(super) fn is_readable(method: u16) -> bool {
    matches!(method, 0 | 8 | 12 | 93)
}

/// Opens the data of a member whose header was compared.
pub(super) fn open<'a>(upload: &'a File, entry: &Entry) -> io::Result<Checked<'a>> {
    let part = Part { upload, at: entry.data_at, left: entry.packed };
    let part = BufReader::with_capacity(64 << 10, part);
    let inner: Box<dyn Read + 'a> = match entry.method {
        0 => Box::new(part),
        8 => Box::new(flate2::bufread::DeflateDecoder::new(part)),
        12 => Box::new(bzip2::bufread::BzDecoder::new(part)),
        93 => Box::new(zstd::Decoder::with_buffer(part)?.single_frame()),
        other => return Err(io::Error::other(format!("method {other} is not read"))),
    };
    let checked =
        Checked { inner, left: entry.size, checksum: flate2::Crc::new(), expected: entry.checksum };
    if entry.size == 0 { checked.ended() } else { Ok(checked) }
}

/// Data that has to have this checksum at the end of its size.
pub(super) struct Checked<'a> {
    inner: Box<dyn Read + 'a>,
    left: u64,
    checksum: flate2::Crc,
    expected: u32,
}

impl Checked<'_> {
    /// What has to be true behind the last byte.
    fn ended(mut self) -> io::Result<Self> {
        self.check_end()?;
        Ok(self)
    }

    fn check_end(&mut self) -> io::Result<()> {
        // The last byte of a compressed stream is no sign that it is complete.
        if self.inner.read(&mut [0])? != 0 {
            return Err(io::Error::other("it has more bytes than its size says"));
        }
        if self.checksum.sum() != self.expected {
            return Err(io::Error::other("its checksum is wrong"));
        }
        Ok(())
    }
}

impl Read for Checked<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        if want == 0 {
            return Ok(0);
        }
        let count = self.inner.read(&mut into[..want])?;
        self.checksum.update(&into[..count]);
        self.left -= count as u64;
        if self.left == 0 {
            self.check_end()?;
        }
        Ok(count)
    }
}

/// A part of the upload.
struct Part<'a> {
    upload: &'a File,
    at: u64,
    left: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let count = self.upload.read_at(&mut into[..want], self.at)?;
        self.at += count as u64;
        self.left -= count as u64;
        Ok(count)
    }
}
