//! Decompression on a thread of its own.

use crate::job::{Refusal, RefusalCode};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

/// Bytes that are handed over at once.
const BLOCK_BYTES: usize = 256 << 10;

/// Blocks that wait at most, so that memory stays the same however large an archive is.
const BLOCKS_MAX: usize = 8;

/// What a decoder makes, read from another thread than it works on.
///
/// The thread ends with the decoder's last byte, at its first error, or as soon as it has nobody
/// to hand a block to.
pub(super) struct Unpacked {
    blocks: Receiver<io::Result<Vec<u8>>>,
    /// Blocks that were read, to be filled again.
    emptied: SyncSender<Vec<u8>>,
    block: Vec<u8>,
    at: usize,
}

impl Unpacked {
    /// Starts the thread.
    ///
    /// # Errors
    /// When there is none to be had.
    pub(super) fn start(decoder: Box<dyn Read + Send>) -> Result<Self, Refusal> {
        let (filled, blocks) = sync_channel(BLOCKS_MAX);
        let (emptied, empty) = sync_channel(BLOCKS_MAX + 2);
        let builder = thread::Builder::new().name("unpack".to_owned());
        builder.spawn(move || unpack(decoder, &filled, &empty)).map_err(|error| {
            Refusal::new(RefusalCode::Failed, "the archive could not be unpacked").detail(error)
        })?;
        Ok(Self { blocks, emptied, block: Vec::new(), at: 0 })
    }
}

fn unpack(
    mut decoder: Box<dyn Read + Send>,
    filled: &SyncSender<io::Result<Vec<u8>>>,
    empty: &Receiver<Vec<u8>>,
) {
    loop {
        let mut block = empty.try_recv().unwrap_or_default();
        block.resize(BLOCK_BYTES, 0);
        let (have, end) = fill(&mut *decoder, &mut block);
        block.truncate(have);
        if have > 0 && filled.send(Ok(block)).is_err() {
            return;
        }
        match end {
            None => {}
            Some(Ok(())) => return,
            // Whoever reads no further does not need to know.
            Some(Err(error)) => return drop(filled.send(Err(error))),
        }
    }
}

/// Fills a block as far as it goes, and says whether and how the decoder ended before.
fn fill(decoder: &mut dyn Read, block: &mut [u8]) -> (usize, Option<io::Result<()>>) {
    let mut have = 0;
    while have < block.len() {
        match decoder.read(&mut block[have..]) {
            Ok(0) => return (have, Some(Ok(()))),
            Ok(count) => have += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (have, Some(Err(error))),
        }
    }
    (have, None)
}

impl Read for Unpacked {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.block.len() {
            let read = std::mem::take(&mut self.block);
            // A thread that has ended needs no more of them.
            let _ = self.emptied.try_send(read);
            self.at = 0;
            match self.blocks.recv() {
                Ok(block) => self.block = block?,
                Err(_) => return Ok(0),
            }
        }
        let count = into.len().min(self.block.len() - self.at);
        into[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_in_order_and_then_the_error() {
        let bytes: Vec<u8> =
            (0..3_000_000u32).map(|at| at.to_le_bytes()[at as usize % 3]).collect();
        let ends = io::Cursor::new(bytes.clone());
        let mut read = Vec::new();
        Unpacked::start(Box::new(ends)).unwrap().read_to_end(&mut read).unwrap();
        assert!(read == bytes);

        struct Fails;
        impl Read for Fails {
            fn read(&mut self, _into: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from(io::ErrorKind::InvalidData))
            }
        }
        let fails = io::Cursor::new(bytes.clone()).chain(Fails);
        let (mut unpacked, mut read) = (Unpacked::start(Box::new(fails)).unwrap(), Vec::new());
        let error = unpacked.read_to_end(&mut read).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(read == bytes);
    }
}
