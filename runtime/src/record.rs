//! The output record of a command: frames in a file that init writes and the API follows.
//!
//! Commands never hold this file; they hold pipes or a pty. So neither the API's death nor a
//! slow client reaches a command, and what was written while the API was down is complete.
//!
//! # Format
//! All integers are little-endian. A header of [`HEADER_BYTES`], then the head region, then two
//! tail segments of equal size. Frames fill the head; once a frame does not fit there, frames
//! fill the segments in turn, each new use of a segment overwriting what it held. A frame is
//! `stream u32, length u32, sequence u64, position u64` and the bytes; `position` counts the
//! bytes of all frames before it, so a reader sees how much the cut took away.
//!
//! The header is written last, so a frame it counts is whole. It begins and ends with the same
//! counter: a reader that finds two different ones reads again.

use crate::wire::warden::{ExitStatus, OutputLimit};
use rustix::io::{Errno, pread, pwrite};
use std::os::fd::AsFd;

/// Size of the header.
pub const HEADER_BYTES: u64 = 4096;
/// The most bytes one frame carries.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

const MAGIC: u64 = u64::from_le_bytes(*b"hangarR1");
const FRAME_HEADER: usize = 24;
const SEGMENT_BYTES_MIN: u64 = 2 * (FRAME_BYTES_MAX + FRAME_HEADER) as u64;
const WORDS: usize = 12;

/// Where the bytes of a frame came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Stream {
    /// Standard output, or the terminal where the command has one.
    Stdout = 1,
    /// Standard error.
    Stderr = 2,
}

/// The header as both sides keep it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Header {
    counter: u64,
    head_max: u64,
    segment_max: u64,
    head_len: u64,
    /// Tail segments begun so far; segment `n` (from 1) lies in slot `(n - 1) % 2`.
    segments: u64,
    segment_len: [u64; 2],
    bytes: u64,
    /// Error number of the first write that failed, 0 for none.
    write_error: u64,
    /// 0 while the command runs, else the exit status.
    end: u64,
}

impl Header {
    fn words(&self) -> [u64; WORDS] {
        [
            self.counter,
            MAGIC,
            self.head_max,
            self.segment_max,
            self.head_len,
            self.segments,
            self.segment_len[0],
            self.segment_len[1],
            self.bytes,
            self.write_error,
            self.end,
            self.counter,
        ]
    }

    fn read(file: impl AsFd) -> Result<Self, RecordError> {
        for _ in 0..1000 {
            let mut bytes = [0; WORDS * 8];
            if read_full(&file, &mut bytes, 0)? < bytes.len() {
                return Ok(Self::default());
            }
            let word =
                |i: usize| u64::from_le_bytes(bytes[i * 8..i * 8 + 8].try_into().expect("8 bytes"));
            if word(0) != word(WORDS - 1) {
                std::thread::yield_now();
                continue;
            }
            if word(1) != MAGIC {
                return Err(RecordError::Format("it does not begin like an output record"));
            }
            let header = Self {
                counter: word(0),
                head_max: word(2),
                segment_max: word(3),
                head_len: word(4),
                segments: word(5),
                segment_len: [word(6), word(7)],
                bytes: word(8),
                write_error: word(9),
                end: word(10),
            };
            let bound = 1 << 48;
            if header.head_max > bound
                || header.segment_max > bound
                || header.head_len > header.head_max
                || header.segment_len.iter().any(|&len| len > header.segment_max)
            {
                return Err(RecordError::Format("its lengths exceed its limits"));
            }
            return Ok(header);
        }
        Err(RecordError::Format("its header never settles"))
    }

    fn segment_start(&self, segment: u64) -> u64 {
        HEADER_BYTES + self.head_max + ((segment - 1) % 2) * self.segment_max
    }
}

/// Why a record could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A read failed.
    #[error("reading an output record failed: {0}")]
    Read(#[from] Errno),
    /// The file is not a record.
    #[error("an output record is damaged: {0}")]
    Format(&'static str),
}

/// Writes a record. It never fails: bytes that cannot be written are counted as lost.
#[derive(Debug)]
pub struct RecordWriter<F> {
    file: F,
    header: Header,
    sequence: u64,
}

impl<F: AsFd> RecordWriter<F> {
    /// Begins a record in an empty file.
    pub fn new(file: F, limit: OutputLimit) -> Self {
        let segment_max = if limit.tail_bytes_max == 0 {
            0
        } else {
            (limit.tail_bytes_max / 2).max(SEGMENT_BYTES_MIN)
        };
        let header = Header { head_max: limit.head_bytes_max, segment_max, ..Header::default() };
        let mut writer = Self { file, header, sequence: 0 };
        writer.publish();
        writer
    }

    /// Appends bytes of a stream and makes them visible to readers.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        for chunk in bytes.chunks(FRAME_BYTES_MAX) {
            self.append_frame(stream, chunk);
        }
        self.publish();
    }

    /// Ends the record with the status of the command.
    pub fn end(&mut self, status: ExitStatus) {
        self.header.end = encode_status(status);
        self.publish();
    }

    fn append_frame(&mut self, stream: Stream, bytes: &[u8]) {
        let mut frame = Vec::with_capacity(FRAME_HEADER + bytes.len());
        frame.extend_from_slice(&(stream as u32).to_le_bytes());
        frame.extend_from_slice(
            &u32::try_from(bytes.len()).expect("a chunk is short").to_le_bytes(),
        );
        frame.extend_from_slice(&self.sequence.to_le_bytes());
        frame.extend_from_slice(&self.header.bytes.to_le_bytes());
        frame.extend_from_slice(bytes);
        self.sequence += 1;
        self.header.bytes += bytes.len() as u64;
        let Some(offset) = self.room(frame.len() as u64) else { return };
        match write_full(&self.file, &frame, offset) {
            Ok(()) if self.header.segments == 0 => self.header.head_len += frame.len() as u64,
            Ok(()) => {
                let slot = ((self.header.segments - 1) % 2) as usize;
                self.header.segment_len[slot] += frame.len() as u64;
            }
            Err(errno) if self.header.write_error == 0 => {
                self.header.write_error = u64::from(errno.raw_os_error().unsigned_abs());
            }
            Err(_) => {}
        }
    }

    /// Where the next frame of this length goes; begins the next tail segment when it must.
    fn room(&mut self, length: u64) -> Option<u64> {
        let header = &mut self.header;
        if header.segments == 0 && header.head_len + length <= header.head_max {
            return Some(HEADER_BYTES + header.head_len);
        }
        if header.segment_max == 0 {
            // The head stays closed: later short frames must not fill the gap out of order.
            header.head_max = header.head_len;
            return None;
        }
        let full = header.segments > 0 && {
            let slot = ((header.segments - 1) % 2) as usize;
            header.segment_len[slot] + length > header.segment_max
        };
        if header.segments == 0 || full {
            header.segments += 1;
            header.segment_len[((header.segments - 1) % 2) as usize] = 0;
            // Readers must not take old frames of this slot for new ones.
            self.publish();
        }
        let header = &self.header;
        let slot = ((header.segments - 1) % 2) as usize;
        Some(header.segment_start(header.segments) + header.segment_len[slot])
    }

    fn publish(&mut self) {
        self.header.counter += 1;
        let mut bytes = [0; WORDS * 8];
        for (slot, word) in bytes.chunks_exact_mut(8).zip(self.header.words()) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        // A header that cannot be written has no reader to tell; the file was opened by us.
        let _ = write_full(&self.file, &bytes, 0);
    }
}

/// Ends the record of a command whose writer is gone; one that has its end keeps it.
///
/// # Errors
/// When the file cannot be read or written, or is no record.
pub fn complete(file: impl AsFd, status: ExitStatus) -> Result<(), RecordError> {
    let mut header = match Header::read(&file) {
        Ok(header) => header,
        // The writer died within a write of the header; what the frames say is lost.
        Err(RecordError::Format(_)) => Header::default(),
        Err(error) => return Err(error),
    };
    if header.end == 0 {
        header.end = encode_status(status);
        RecordWriter { file, header, sequence: 0 }.publish();
    }
    Ok(())
}

/// A frame as a reader gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where the bytes came from.
    pub stream: Stream,
    /// Counted from 0 over all frames that were written.
    pub sequence: u64,
    /// Bytes of all streams before this frame that the reader can no longer get.
    pub lost_before: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What a reader finds next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// The next frame.
    Frame(Frame),
    /// There is nothing new and the command runs.
    Pending,
    /// Everything was read and the command ended.
    End {
        /// Its status.
        status: ExitStatus,
        /// Bytes at the end that the reader could not get.
        lost: u64,
        /// The error number of the first write that failed, where one did.
        write_error: Option<i32>,
    },
}

/// Follows a record from its beginning.
#[derive(Debug)]
pub struct RecordReader<F> {
    file: F,
    /// 0 in the head, else the tail segment.
    segment: u64,
    offset: u64,
    position: u64,
}

impl<F: AsFd> RecordReader<F> {
    /// A reader at the beginning.
    pub fn new(file: F) -> Self {
        Self { file, segment: 0, offset: 0, position: 0 }
    }

    /// The next frame, or what else there is. It never waits.
    ///
    /// # Errors
    /// When the file cannot be read or is no record.
    #[expect(clippy::should_implement_trait, reason = "a reader can go on after `Pending`")]
    pub fn next(&mut self) -> Result<Next, RecordError> {
        loop {
            let header = Header::read(&self.file)?;
            if header.counter == 0 {
                return Ok(Next::Pending);
            }
            if let Some(frame) = self.frame(&header)? {
                let after = Header::read(&self.file)?;
                if self.overwritten(&after) {
                    self.skip_to(&after);
                    continue;
                }
                let lost_before = frame.1.saturating_sub(self.position);
                let frame = Frame { lost_before, ..frame.0 };
                self.offset += (FRAME_HEADER + frame.bytes.len()) as u64;
                self.position += lost_before + frame.bytes.len() as u64;
                return Ok(Next::Frame(frame));
            }
            if self.overwritten(&header) {
                self.skip_to(&header);
            } else if self.segment < header.segments {
                self.segment += 1;
                self.offset = 0;
            } else if header.end == 0 {
                return Ok(Next::Pending);
            } else {
                return Ok(Next::End {
                    status: decode_status(header.end)?,
                    lost: header.bytes.saturating_sub(self.position),
                    write_error: i32::try_from(header.write_error).ok().filter(|&e| e != 0),
                });
            }
        }
    }

    fn overwritten(&self, header: &Header) -> bool {
        self.segment > 0 && header.segments >= self.segment + 2
    }

    fn skip_to(&mut self, header: &Header) {
        self.segment = header.segments - 1;
        self.offset = 0;
    }

    /// The frame at the current place and its position, unless the written part ends here.
    fn frame(&self, header: &Header) -> Result<Option<(Frame, u64)>, RecordError> {
        if self.overwritten(header) {
            return Ok(None);
        }
        let (start, len) = match self.segment {
            0 => (HEADER_BYTES, header.head_len),
            n => (header.segment_start(n), header.segment_len[((n - 1) % 2) as usize]),
        };
        if self.offset + FRAME_HEADER as u64 > len {
            return Ok(None);
        }
        let mut head = [0; FRAME_HEADER];
        read_full(&self.file, &mut head, start + self.offset)?;
        let stream = match u32::from_le_bytes(head[..4].try_into().expect("4 bytes")) {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            _ => return self.damaged("a frame of no known stream"),
        };
        let length = u32::from_le_bytes(head[4..8].try_into().expect("4 bytes")) as usize;
        if length > FRAME_BYTES_MAX {
            return self.damaged("a frame longer than any is written");
        }
        let sequence = u64::from_le_bytes(head[8..16].try_into().expect("8 bytes"));
        let position = u64::from_le_bytes(head[16..].try_into().expect("8 bytes"));
        let mut bytes = vec![0; length];
        read_full(&self.file, &mut bytes, start + self.offset + FRAME_HEADER as u64)?;
        Ok(Some((Frame { stream, sequence, lost_before: 0, bytes }, position)))
    }

    /// A frame can look damaged because the writer overwrote it meanwhile; then it is skipped.
    fn damaged<T>(&self, what: &'static str) -> Result<Option<T>, RecordError> {
        if self.overwritten(&Header::read(&self.file)?) {
            return Ok(None);
        }
        Err(RecordError::Format(what))
    }
}

fn encode_status(status: ExitStatus) -> u64 {
    let (kind, value) = match status {
        ExitStatus::Code(code) => (1, i32::from(code)),
        ExitStatus::Signal(signal) => (2, signal),
        ExitStatus::NotExecuted(errno) => (3, errno),
    };
    kind << 32 | u64::from(value.unsigned_abs())
}

fn decode_status(word: u64) -> Result<ExitStatus, RecordError> {
    let value = (word & 0xffff_ffff) as i32;
    match word >> 32 {
        1 => {
            Ok(ExitStatus::Code(u8::try_from(value).map_err(|_| RecordError::Format("exit code"))?))
        }
        2 => Ok(ExitStatus::Signal(value)),
        3 => Ok(ExitStatus::NotExecuted(value)),
        _ => Err(RecordError::Format("an exit status of no known kind")),
    }
}

fn read_full(file: impl AsFd, mut bytes: &mut [u8], mut offset: u64) -> Result<usize, Errno> {
    let mut total = 0;
    while !bytes.is_empty() {
        match pread(&file, &mut *bytes, offset) {
            Ok(0) => break,
            Ok(n) => {
                total += n;
                offset += n as u64;
                bytes = &mut bytes[n..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(total)
}

fn write_full(file: impl AsFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match pwrite(&file, bytes, offset) {
            Ok(n) => {
                offset += n as u64;
                bytes = &bytes[n..];
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn record(head: u64, tail: u64) -> (RecordWriter<File>, RecordReader<File>) {
        let file = tempfile::tempfile().unwrap();
        let reader = RecordReader::new(file.try_clone().unwrap());
        let limit = OutputLimit { head_bytes_max: head, tail_bytes_max: tail };
        (RecordWriter::new(file, limit), reader)
    }

    fn drain(reader: &mut RecordReader<File>) -> (Vec<u8>, u64, Next) {
        let (mut bytes, mut lost) = (Vec::new(), 0);
        loop {
            match reader.next().unwrap() {
                Next::Frame(frame) => {
                    lost += frame.lost_before;
                    bytes.extend(frame.bytes);
                }
                other => return (bytes, lost, other),
            }
        }
    }

    #[test]
    fn a_reader_gets_every_byte_and_then_the_status() {
        let (mut writer, mut reader) = record(1 << 20, 0);
        assert_eq!(reader.next().unwrap(), Next::Pending);
        writer.append(Stream::Stdout, b"one");
        writer.append(Stream::Stderr, b"two");
        let Next::Frame(first) = reader.next().unwrap() else { panic!("no frame") };
        assert_eq!(
            (first.stream, first.sequence, &first.bytes[..]),
            (Stream::Stdout, 0, &b"one"[..])
        );
        let Next::Frame(second) = reader.next().unwrap() else { panic!("no frame") };
        assert_eq!((second.stream, second.sequence), (Stream::Stderr, 1));
        assert_eq!(reader.next().unwrap(), Next::Pending);
        writer.end(ExitStatus::Code(3));
        assert_eq!(
            reader.next().unwrap(),
            Next::End { status: ExitStatus::Code(3), lost: 0, write_error: None }
        );
    }

    #[test]
    fn head_and_tail_are_kept_and_the_cut_is_counted() {
        let (mut writer, mut reader) = record(100_000, 400_000);
        let all: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        for chunk in all.chunks(10_000) {
            writer.append(Stream::Stdout, chunk);
        }
        writer.end(ExitStatus::Signal(9));
        let (bytes, lost, end) = drain(&mut reader);
        assert!(matches!(end, Next::End { status: ExitStatus::Signal(9), lost: 0, .. }));
        assert_eq!(bytes.len() as u64 + lost, all.len() as u64);
        assert!(lost > 2_000_000);
        let head = 90_000;
        assert_eq!(bytes[..head], all[..head]);
        let tail = bytes.len() - head;
        assert!(tail >= 200_000, "at least one whole segment is kept: {tail}");
        assert_eq!(bytes[head..], all[all.len() - tail..]);
    }

    #[test]
    fn without_a_tail_the_rest_is_lost_and_counted() {
        let (mut writer, mut reader) = record(1000, 0);
        writer.append(Stream::Stdout, &[7; 900]);
        writer.append(Stream::Stdout, &[8; 900]);
        writer.append(Stream::Stdout, b"tiny");
        writer.end(ExitStatus::Code(0));
        let (bytes, _, end) = drain(&mut reader);
        assert_eq!(bytes, vec![7; 900]);
        assert!(matches!(end, Next::End { lost: 904, .. }));
    }

    #[test]
    fn a_reader_that_is_lapped_while_reading_sees_only_whole_frames_in_order() {
        let (mut writer, mut reader) = record(0, 1);
        let feeder = std::thread::spawn(move || {
            for i in 0..20_000u32 {
                writer.append(Stream::Stdout, &i.to_le_bytes().repeat(50));
            }
            writer.end(ExitStatus::Code(0));
        });
        let (mut last, mut seen, mut lost) = (None, 0u64, 0u64);
        loop {
            match reader.next().unwrap() {
                Next::Frame(frame) => {
                    let number = u32::from_le_bytes(frame.bytes[..4].try_into().unwrap());
                    assert_eq!(frame.bytes, number.to_le_bytes().repeat(50));
                    assert!(last < Some(number));
                    last = Some(number);
                    seen += 200;
                    lost += frame.lost_before;
                }
                Next::Pending => std::thread::yield_now(),
                Next::End { lost: rest, .. } => {
                    lost += rest;
                    break;
                }
            }
        }
        feeder.join().unwrap();
        assert_eq!(seen + lost, 20_000 * 200);
        assert_eq!(last, Some(19_999));
    }

    #[test]
    fn a_record_whose_writer_died_is_completed_once() {
        let (mut writer, mut reader) = record(1 << 20, 0);
        writer.append(Stream::Stdout, b"one");
        complete(&reader.file, ExitStatus::Signal(9)).unwrap();
        complete(&reader.file, ExitStatus::Code(0)).unwrap();
        let (bytes, _, end) = drain(&mut reader);
        assert_eq!(bytes, b"one");
        assert!(matches!(end, Next::End { status: ExitStatus::Signal(9), .. }));
        let empty = tempfile::tempfile().unwrap();
        complete(&empty, ExitStatus::Signal(9)).unwrap();
        let end = RecordReader::new(empty).next().unwrap();
        assert!(matches!(end, Next::End { status: ExitStatus::Signal(9), lost: 0, .. }));
    }

    #[test]
    fn statuses_survive() {
        for status in [ExitStatus::Code(255), ExitStatus::Signal(15), ExitStatus::NotExecuted(2)] {
            assert_eq!(decode_status(encode_status(status)).unwrap(), status);
        }
    }
}
