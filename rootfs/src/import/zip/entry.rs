//! One entry of the central directory.

use super::fields::{extra, u32_at, u64_at};
use super::names::NameRule;
use crate::import::member::Kind;
use crate::tree::Time;

/// Systems an entry can be made on.
pub(super) mod made_on {
    pub const DOS: u8 = 0;
    pub const UNIX: u8 = 3;
    pub const OS2: u8 = 6;
    pub const NTFS: u8 = 10;
    pub const VFAT: u8 = 14;
    pub const MACOS: u8 = 19;
}

/// A member, as the directory describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// As it was decoded; what it is compared with is [`Self::raw_name`].
    pub(super) name: Vec<u8>,
    pub(super) raw_name: Vec<u8>,
    pub(super) name_rule: NameRule,
    /// Whether backslashes of the name became slashes.
    pub(super) backslashes: bool,
    pub(super) system: u8,
    pub(super) attributes: u32,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) checksum: u32,
    pub(super) packed: u64,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) header_at: u64,
    /// Where the data begins; known once the local header was read.
    pub(super) data_at: u64,
}

impl Entry {
    /// The mode, where the member was packed on a system that has modes and one was written.
    pub(super) fn unix_mode(&self) -> Option<u32> {
        let mode = self.attributes >> 16;
        let has_modes = matches!(self.system, made_on::UNIX | made_on::MACOS);
        (has_modes && mode != 0).then_some(mode)
    }

    pub(super) fn kind(&self) -> Kind {
        match self.unix_mode().map(|mode| mode & 0o170_000) {
            Some(0o120_000) => Kind::Symlink,
            Some(0o020_000 | 0o060_000) => Kind::Device,
            Some(0o010_000) => Kind::Fifo,
            Some(0o140_000) => Kind::Unknown,
            Some(0o040_000) => Kind::Directory,
            _ if self.name.ends_with(b"/") => Kind::Directory,
            _ => Kind::File,
        }
    }

    pub(super) fn is_encrypted(&self) -> bool {
        // Plain and strong encryption, and a directory that is encrypted itself.
        self.flags & (1 | 1 << 6 | 1 << 13) != 0
    }
}

/// Between 1601, where NTFS counts from, and 1970.
const NTFS_EPOCH_S: i64 = 11_644_473_600;

/// The time of last modification: the extended time stamp, else NTFS's, else that of DOS, which
/// has no zone and is taken for UTC. Nothing of it is a reason to refuse a member.
pub(super) fn mtime(date: u16, time: u16, extra_fields: &[u8]) -> Time {
    if let Some(field) = extra(extra_fields, 0x5455)
        && field.len() >= 5
        && field[0] & 1 != 0
    {
        return Time { seconds: i64::from(u32_at(field, 1).cast_signed()), nanoseconds: 0 };
    }
    if let Some(field) = extra(extra_fields, 0x000a)
        && field.len() >= 16
        && field[4..8] == *b"\x01\0\x18\0"
    {
        let ticks = u64_at(field, 8);
        let seconds = i64::try_from(ticks / 10_000_000).unwrap_or(i64::MAX) - NTFS_EPOCH_S;
        let nanoseconds = u32::try_from(ticks % 10_000_000).unwrap_or(0) * 100;
        return crate::import::pax::clamp(i128::from(seconds), nanoseconds);
    }
    Time { seconds: dos_seconds(date, time), nanoseconds: 0 }
}

/// Fields that are out of range, also the zeros of a date that was not set, become the nearest.
fn dos_seconds(date: u16, time: u16) -> i64 {
    let year = 1980 + i64::from(date >> 9);
    let month = i64::from(date >> 5 & 15).clamp(1, 12);
    let day = i64::from(date & 31).max(1);
    let hour = i64::from(time >> 11).min(23);
    let minute = i64::from(time >> 5 & 63).min(59);
    let second = i64::from(time & 31).min(29) * 2;
    (days_since_1970(year, month, day) * 24 + hour) * 3600 + minute * 60 + second
}

/// In the calendar whose years begin in March, so that the leap day is the last one.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_dos_are_read_and_impossible_ones_are_moved() {
        assert_eq!(dos_seconds(0x21, 0), 315_532_800);
        assert_eq!(dos_seconds(0, 0), 315_532_800, "0/0/0 is the first day of 1980");
        assert_eq!(
            dos_seconds((44 << 9) | (2 << 5) | 29, (12 << 11) | (30 << 5) | 7),
            1_709_209_814
        );
        assert!(dos_seconds(u16::MAX, u16::MAX) > dos_seconds(0, 0));
    }

    #[test]
    fn extended_time_stamps_win() {
        let unix = b"\x55\x54\x05\0\x01\x01\0\0\0";
        assert_eq!(mtime(0, 0, unix), Time { seconds: 1, nanoseconds: 0 });
        let before = b"\x55\x54\x05\0\x01\xff\xff\xff\xff";
        assert_eq!(mtime(0, 0, before).seconds, -1);
        let mut ntfs = b"\x0a\0\x10\0\0\0\0\0\x01\0\x18\0".to_vec();
        ntfs.extend_from_slice(&((11_644_473_600 * 10_000_000) + 15u64).to_le_bytes());
        ntfs[2] = 0x10;
        assert_eq!(mtime(0, 0, &ntfs), Time { seconds: 0, nanoseconds: 1500 });
    }
}
