//! The tar inside an upload, decompressed within the budgets.

use super::format::{Format, is_tar, unreadable};
use super::unpack::Unpacked;
use crate::job::{Limits, Refusal, RefusalCode};
use crate::refusal::into_io;
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest window of a zstd frame, as a power of two: 128 MiB, what `zstd -d` takes unasked.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// What the decoder of xz may take for a dictionary: that of `xz -9` and its tables.
const XZ_MEMORY_MAX: u64 = 128 << 20;

/// Unpacked bytes before the ratio to the upload is looked at.
pub(super) const RATIO_FREE_BYTES: u64 = 64 << 20;

/// The unpacked bytes of an upload, within the budgets.
pub(super) struct Stream {
    inner: Box<dyn Read>,
    upload: Arc<AtomicU64>,
    unpacked: u64,
    unpacked_max: u64,
    ratio_max: u32,
    ended: Rc<Cell<bool>>,
}

impl Stream {
    /// Begins at the first byte of the upload.
    ///
    /// # Errors
    /// [`RefusalCode::CorruptArchive`] and [`RefusalCode::TruncatedArchive`] when no tar begins
    /// inside the compression; [`RefusalCode::Failed`] when the upload cannot be read.
    pub(super) fn open(
        upload: &File,
        format: Format,
        limits: &Limits,
        ratio_max: u32,
    ) -> Result<Self, Refusal> {
        let mut file = upload.try_clone().map_err(|error| unreadable(&error))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| unreadable(&error))?;
        let count = Arc::new(AtomicU64::new(0));
        let counted = Counted { file, count: Arc::clone(&count) };
        let inner = expect_tar(decoder(counted, format)?, format)?;
        Ok(Self {
            inner,
            upload: count,
            unpacked: 0,
            // A member takes its header and padding; long names and pax records a few blocks more.
            unpacked_max: limits.bytes_max.saturating_add(limits.entries_max.saturating_mul(4096)),
            ratio_max,
            ended: Rc::new(Cell::new(false)),
        })
    }

    /// Becomes true when the last byte was read.
    pub(super) fn ended(&self) -> Rc<Cell<bool>> {
        self.ended.clone()
    }

    /// Counts bytes that the files have and the stream has not.
    ///
    /// # Errors
    /// Those of the budgets.
    pub(super) fn count(&mut self, bytes: u64) -> Result<(), Refusal> {
        self.unpacked = self.unpacked.saturating_add(bytes);
        self.check_budget()
    }

    fn check_budget(&self) -> Result<(), Refusal> {
        if self.unpacked > self.unpacked_max {
            let message = format!("the archive unpacks to more than {} bytes", self.unpacked_max);
            return Err(Refusal::new(RefusalCode::TreeTooLarge, message).limit(self.unpacked_max));
        }
        check_ratio(self.unpacked, self.upload.load(Ordering::Relaxed), self.ratio_max)
    }
}

/// Refuses what unpacks to much more than was sent.
pub(super) fn check_ratio(unpacked: u64, upload: u64, ratio_max: u32) -> Result<(), Refusal> {
    let allowed = upload.max(1).saturating_mul(u64::from(ratio_max));
    if unpacked <= RATIO_FREE_BYTES || unpacked <= allowed {
        return Ok(());
    }
    let message = format!(
        "the archive unpacks to more than {ratio_max} times its size; it is taken for a bomb"
    );
    Err(Refusal::new(RefusalCode::RatioTooHigh, message).limit(u64::from(ratio_max)))
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

/// Decompresses on a thread of its own, beside the one that writes files.
fn decoder(counted: Counted, format: Format) -> Result<Box<dyn Read>, Refusal> {
    let counted = BufReader::with_capacity(256 << 10, counted);
    let unreadable = |error: io::Error| unreadable(&error);
    let decoder: Box<dyn Read + Send> = match format {
        Format::Tar | Format::Zip => return Ok(Box::new(counted)),
        Format::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(counted)),
        Format::Zstd => Box::new(open_zstd(counted).map_err(unreadable)?),
        Format::Xz => Box::new(open_xz(counted).map_err(unreadable)?),
        Format::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(counted)),
    };
    Ok(Box::new(Unpacked::start(decoder)?))
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

fn open_xz<R: io::BufRead>(reader: R) -> io::Result<liblzma::bufread::XzDecoder<R>> {
    let concatenated = liblzma::stream::CONCATENATED;
    let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_MAX, concatenated)?;
    Ok(liblzma::bufread::XzDecoder::new_stream(reader, stream))
}

/// Counts the bytes of the upload that were taken.
struct Counted {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(into)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}
