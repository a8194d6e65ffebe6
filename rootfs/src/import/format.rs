//! What an upload is, told by its first bytes, and the tar stream inside it.

use crate::job::{Limits, Refusal, RefusalCode};
use crate::refusal::into_io;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;

/// The formats that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A tar as it is.
    Tar,
    /// A tar in one or more gzip members.
    Gzip,
    /// A tar in one or more zstd frames.
    Zstd,
}

/// The largest window of a zstd frame, as a power of two: 128 MiB, what `zstd -d` takes unasked.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Unpacked bytes before the ratio to the upload is looked at.
const RATIO_FREE_BYTES: u64 = 64 << 20;

/// Formats that are known and not read: where their magic is, what it is, their name.
const UNREAD: &[(usize, &[u8], &str)] = &[
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"PK\x05\x06", "an empty zip archive"),
    (0, b"\xfd7zXZ\0", "xz-compressed"),
    (0, b"BZh", "bzip2-compressed"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (0, b"\x04\x22\x4d\x18", "lz4-compressed"),
    (0, b"LZIP", "lzip-compressed"),
    (0, b"\x1f\x9d", "compressed by compress(1)"),
    (0, b"!<arch>\n", "an ar archive"),
    (0, b"070701", "a cpio archive"),
    (0, b"070707", "a cpio archive"),
];

/// Tells the format from the first 512 bytes.
///
/// # Errors
/// [`RefusalCode::UnsupportedFormat`] names a format that is known and not read;
/// [`RefusalCode::CorruptArchive`] is for everything else that is no tar.
pub fn detect(head: &[u8]) -> Result<Format, Refusal> {
    if head.is_empty() {
        return Err(Refusal::new(RefusalCode::CorruptArchive, "the upload is empty"));
    }
    if head.starts_with(b"\x1f\x8b") {
        return Ok(Format::Gzip);
    }
    let skippable = head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == *b"\x2a\x4d\x18";
    if head.starts_with(b"\x28\xb5\x2f\xfd") || skippable {
        return Ok(Format::Zstd);
    }
    if is_tar(head) {
        return Ok(Format::Tar);
    }
    let known =
        UNREAD.iter().find(|(at, magic, _)| head[(*at).min(head.len())..].starts_with(magic));
    Err(match known {
        Some((_, _, name)) => Refusal::new(
            RefusalCode::UnsupportedFormat,
            format!("the upload is {name}; tar, tar.gz and tar.zst are read"),
        ),
        None => Refusal::new(
            RefusalCode::CorruptArchive,
            "the upload is no archive: it begins neither as tar nor as gzip or zstd",
        ),
    })
}

/// Whether a block is the first of a tar: a header whose checksum is right, or the zeros at the
/// end of an empty one. A tar has no magic that all its writers agree on.
fn is_tar(block: &[u8]) -> bool {
    let Some(block) = block.get(..512) else { return false };
    if block.iter().all(|byte| *byte == 0) {
        return true;
    }
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    let field: u32 = block[148..156].iter().map(|byte| u32::from(*byte)).sum();
    let header = tar::Header::from_byte_slice(block);
    header.cksum().is_ok_and(|written| written == sum - field + 8 * u32::from(b' '))
}

/// The unpacked bytes of an upload, within the budgets.
pub struct Stream {
    inner: Box<dyn Read>,
    upload: Rc<Cell<u64>>,
    unpacked: u64,
    unpacked_max: u64,
    ratio_max: u64,
    ended: Rc<Cell<bool>>,
}

impl Stream {
    /// Begins at the first byte of the upload.
    ///
    /// # Errors
    /// As [`detect`], also for what is inside the compression; [`RefusalCode::Failed`] when the
    /// upload is not a file that can be read twice.
    pub fn open(upload: &File, limits: &Limits, ratio_max: u32) -> Result<Self, Refusal> {
        let mut file = upload.try_clone().map_err(|error| unreadable(&error))?;
        let mut head = Vec::new();
        file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(&error))?;
        let mut first = (&mut file).take(512);
        first.read_to_end(&mut head).map_err(|error| unreadable(&error))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(&error))?;

        let format = detect(&head)?;
        let count = Rc::new(Cell::new(0));
        let counted = BufReader::with_capacity(64 << 10, Counted { file, count: count.clone() });
        let inner: Box<dyn Read> = match format {
            Format::Tar => Box::new(counted),
            Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(counted)),
            Format::Zstd => Box::new(open_zstd(counted).map_err(|error| unreadable(&error))?),
        };
        let inner = expect_tar(inner, format)?;
        Ok(Self {
            inner,
            upload: count,
            unpacked: 0,
            // A member takes its header and padding; long names and pax records a few blocks more.
            unpacked_max: limits.bytes_max.saturating_add(limits.entries_max.saturating_mul(4096)),
            ratio_max: u64::from(ratio_max),
            ended: Rc::new(Cell::new(false)),
        })
    }

    /// Becomes true when the last byte was read.
    #[must_use]
    pub fn ended(&self) -> Rc<Cell<bool>> {
        self.ended.clone()
    }

    fn check_budget(&self) -> Result<(), Refusal> {
        if self.unpacked > self.unpacked_max {
            let message = format!("the archive unpacks to more than {} bytes", self.unpacked_max);
            return Err(Refusal::new(RefusalCode::TreeTooLarge, message).limit(self.unpacked_max));
        }
        let allowed = self.upload.get().max(1).saturating_mul(self.ratio_max);
        if self.unpacked > RATIO_FREE_BYTES && self.unpacked > allowed {
            let message = format!(
                "the archive unpacks to more than {} times its size; it is taken for a bomb",
                self.ratio_max
            );
            return Err(Refusal::new(RefusalCode::RatioTooHigh, message).limit(self.ratio_max));
        }
        Ok(())
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        if count == 0 && !into.is_empty() {
            self.ended.set(true);
        }
        self.unpacked += count as u64;
        self.check_budget().map_err(into_io)?;
        Ok(count)
    }
}

/// Looks whether a tar is inside the compression, which says more than a checksum that is wrong.
fn expect_tar(mut inner: Box<dyn Read>, format: Format) -> Result<Box<dyn Read>, Refusal> {
    let mut head = Vec::new();
    (&mut inner).take(512).read_to_end(&mut head).map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::UnexpectedEof => RefusalCode::TruncatedArchive,
            _ => RefusalCode::CorruptArchive,
        };
        let message = format!("the archive is damaged before its first member: {error}");
        Refusal::new(code, message)
    })?;
    if format != Format::Tar && !is_tar(&head) {
        let message = "the upload is compressed, but there is no tar inside";
        return Err(Refusal::new(RefusalCode::CorruptArchive, message));
    }
    Ok(Box::new(io::Cursor::new(head).chain(inner)))
}

fn open_zstd<R: io::BufRead>(reader: R) -> io::Result<zstd::Decoder<'static, R>> {
    let mut decoder = zstd::Decoder::with_buffer(reader)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
    Ok(decoder)
}

fn unreadable(error: &io::Error) -> Refusal {
    Refusal::new(RefusalCode::Failed, "the upload could not be read").detail(error)
}

/// Counts the bytes of the upload that were taken.
struct Counted {
    file: File,
    count: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.count.set(self.count.get() + count as u64);
        Ok(count)
    }
}
