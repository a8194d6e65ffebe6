//! The blocks of a tar: a header, and the data that it announces.

use super::place::Place;
use super::stream::Stream;
use crate::job::Refusal;
use std::io::{self, ErrorKind, Read};

const BLOCK: u64 = 512;

/// A tar, from one header to the next. What is read is the data of the last header.
pub(super) struct Blocks {
    stream: Stream,
    /// Bytes of data before the next header, and the padding behind them.
    left: u64,
    padding: u64,
}

impl Blocks {
    /// Before the first header.
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, left: 0, padding: 0 }
    }

    /// The next header; `None` where a block of zeros or nothing at all is in its place.
    ///
    /// # Errors
    /// When what is there is none, or is cut.
    pub(super) fn header(&mut self) -> io::Result<Option<::tar::Header>> {
        self.skip()?;
        let mut header = ::tar::Header::new_old();
        match self.stream.read(&mut header.as_mut_bytes()[..])? {
            0 => return Ok(None),
            count => self.stream.read_exact(&mut header.as_mut_bytes()[count..])?,
        }
        let bytes = header.as_bytes();
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum counts its own field as spaces.
        let field = 148..156;
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u32::from(*byte)).sum::<u32>();
        let expected = sum(bytes) - sum(&bytes[field]) + 8 * u32::from(b' ');
        if header.cksum()? != expected {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the checksum of a header is wrong",
            ));
        }
        self.left = header.entry_size()?;
        // A negative one, or one that no file has.
        if i64::try_from(self.left).is_err() {
            return Err(io::Error::new(ErrorKind::InvalidData, "the size of a member is none"));
        }
        self.padding = (BLOCK - self.left % BLOCK) % BLOCK;
        Ok(Some(header))
    }

    /// A block behind the header that its size does not count.
    ///
    /// # Errors
    /// When it is cut.
    pub(super) fn extension(&mut self, place: &Place) -> Result<[u8; BLOCK as usize], Refusal> {
        let mut block = [0; BLOCK as usize];
        self.stream.read_exact(&mut block).map_err(|error| place.fault(&error))?;
        Ok(block)
    }

    /// Counts bytes that a member has and its data has not.
    ///
    /// # Errors
    /// When that is more than an archive of its size may have.
    pub(super) fn count_hole(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.stream.count(bytes)
    }

    /// What follows the last header.
    pub(super) fn into_rest(self) -> Stream {
        self.stream
    }

    fn skip(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.left).saturating_add(std::mem::take(&mut self.padding));
        let skipped = io::copy(&mut (&mut self.stream).take(rest), &mut io::sink())?;
        if skipped < rest { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }
}

impl Read for Blocks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let count = self.stream.read(&mut into[..want])?;
        self.left -= count as u64;
        Ok(count)
    }
}
