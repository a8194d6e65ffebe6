//! Which blocks of uids are in use.
//!
//! Nothing is written down: the owner of a session's directories is the record, made before the
//! session exists and gone when its last file is. So a crash can neither lose a block nor give
//! one to two sessions.

use crate::ids::{BLOCK_SIZE, Block, Range};
use std::collections::BTreeSet;
use std::num::NonZeroU16;

/// Blocks that a range of uids has for sessions; the last uid stays below 2^31.
pub const BLOCKS_MAX: u16 = 4095;

/// The blocks of a range.
#[derive(Debug)]
pub struct Blocks {
    range: Range,
    used: BTreeSet<u16>,
}

impl Blocks {
    /// All free but these.
    #[must_use]
    pub fn new(range: Range, used: impl IntoIterator<Item = Block>) -> Self {
        let used = used.into_iter().filter_map(|block| index(range, block)).collect();
        Self { range, used }
    }

    /// Takes the lowest free block; nothing when all are in use.
    pub fn allocate(&mut self) -> Option<Block> {
        let free = (1..=self.last()).find(|index| !self.used.contains(index))?;
        self.used.insert(free);
        NonZeroU16::new(free).map(|index| self.range.block(index))
    }

    /// Gives a block back. Only for a block of which no file and no process is left.
    pub fn give_back(&mut self, block: Block) {
        if let Some(index) = index(self.range, block) {
            self.used.remove(&index);
        }
    }

    /// How many are in use.
    #[must_use]
    pub fn in_use(&self) -> usize {
        self.used.len()
    }

    /// The last block that lies below 2^31 whole.
    fn last(&self) -> u16 {
        let room = ((1u32 << 31) - self.range.base.min(1 << 31)) / BLOCK_SIZE;
        u16::try_from(room.saturating_sub(1)).unwrap_or(BLOCKS_MAX).min(BLOCKS_MAX)
    }
}

/// The block that a host uid lies in; nothing for uids that are no session's.
#[must_use]
pub fn block_of(range: Range, uid: u32) -> Option<Block> {
    let index = u16::try_from(uid.checked_sub(range.base)? / BLOCK_SIZE).ok()?;
    NonZeroU16::new(index).filter(|index| index.get() <= BLOCKS_MAX).map(|index| range.block(index))
}

fn index(range: Range, block: Block) -> Option<u16> {
    u16::try_from(block.base.checked_sub(range.base)? / BLOCK_SIZE).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_block_is_taken_and_no_block_twice() {
        let range = Range::default();
        let second = range.block(NonZeroU16::new(2).unwrap());
        let mut blocks = Blocks::new(range, [second]);
        let first = blocks.allocate().unwrap();
        assert_eq!(first.base, range.base + BLOCK_SIZE);
        assert_eq!(blocks.allocate().unwrap().base, range.base + 3 * BLOCK_SIZE);
        blocks.give_back(first);
        assert_eq!(blocks.allocate(), Some(first));
        assert_eq!(blocks.in_use(), 3);
    }

    #[test]
    fn blocks_run_out_and_stay_below_two_to_the_31() {
        let mut blocks = Blocks::new(Range::default(), []);
        let all: BTreeSet<u32> = std::iter::from_fn(|| blocks.allocate()).map(|b| b.base).collect();
        assert_eq!(all.len(), usize::from(BLOCKS_MAX));
        assert!(all.last().unwrap() + (BLOCK_SIZE - 1) < 1 << 31);
        let mut high = Blocks::new(Range { base: (1 << 31) - 2 * BLOCK_SIZE }, []);
        assert!(high.allocate().is_some());
        assert!(high.allocate().is_none());
    }

    #[test]
    fn uids_belong_to_blocks() {
        let range = Range::default();
        assert_eq!(block_of(range, 0), None);
        assert_eq!(block_of(range, range.api()), None, "block 0 is hangar's own");
        let block = range.block(NonZeroU16::new(7).unwrap());
        assert_eq!(block_of(range, block.agent()), Some(block));
        assert_eq!(block_of(range, u32::MAX), None);
    }
}
