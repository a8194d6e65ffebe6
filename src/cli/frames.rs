//! The frames in which the server sends a command's output.
//!
//! `application/vnd.hangar.frames`: each frame is its stream (u32), the length of its bytes (u32)
//! and its sequence number (u64), little-endian, and then the bytes. Streams: 1 is standard
//! output, 2 is standard error, 3 is the end and carries the command's record as JSON.

use super::error::CliError;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Where it belongs.
    pub stream: Stream,
    /// Its place in the output; `from` of a later request can name the one after it.
    pub sequence: u64,
    /// What was written.
    pub bytes: Vec<u8>,
}

/// The stream of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of the command.
    End,
}

const HEADER_BYTES: usize = 16;
/// More than any server sends in one frame; a longer one is a broken stream.
const FRAME_BYTES_MAX: usize = 4 << 20;

/// Puts frames together from pieces of any size.
#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    /// Where in `pending` the next frame begins.
    start: usize,
}

impl Decoder {
    /// Takes the next piece of the body.
    pub fn push(&mut self, piece: &[u8]) {
        self.pending.drain(..self.start);
        self.start = 0;
        self.pending.extend_from_slice(piece);
    }

    /// The next frame that is complete.
    ///
    /// # Errors
    /// When the bytes are no frames; the stream is of no more use then.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, CliError> {
        let rest = &self.pending[self.start..];
        let Some((header, rest)) = rest.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let stream = match word(0) {
            1 => Stream::Stdout,
            2 => Stream::Stderr,
            3 => Stream::End,
            other => return Err(CliError::new(format!("the output has a stream {other}"))),
        };
        let length = word(4) as usize;
        if length > FRAME_BYTES_MAX {
            return Err(CliError::new(format!("the output has a frame of {length} bytes")));
        }
        let Some((bytes, _)) = rest.split_at_checked(length) else { return Ok(None) };
        let sequence = u64::from(word(8)) | u64::from(word(12)) << 32;
        let frame = Frame { stream, sequence, bytes: bytes.to_vec() };
        self.start += HEADER_BYTES + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(stream: u32, sequence: u64, bytes: &[u8]) -> Vec<u8> {
        let mut frame = stream.to_le_bytes().to_vec();
        frame.extend((bytes.len() as u32).to_le_bytes());
        frame.extend(sequence.to_le_bytes());
        frame.extend(bytes);
        frame
    }

    #[test]
    fn frames_come_whole_out_of_pieces_of_every_size() {
        let body = [
            encode(1, 0, b"\0\xff\n"),
            encode(2, 1, b""),
            encode(1, 1 << 40, &[7; 1000]),
            encode(3, 3, b"{}"),
        ]
        .concat();
        for size in 1..body.len() {
            let mut decoder = Decoder::default();
            let mut frames = Vec::new();
            for piece in body.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    frames.push(frame);
                }
            }
            let streams: Vec<Stream> = frames.iter().map(|frame| frame.stream).collect();
            assert_eq!(streams, [Stream::Stdout, Stream::Stderr, Stream::Stdout, Stream::End]);
            assert_eq!(frames[0].bytes, b"\0\xff\n");
            assert_eq!((frames[2].sequence, frames[2].bytes.len()), (1 << 40, 1000));
            assert_eq!(frames[3].bytes, b"{}");
        }
    }

    #[test]
    fn a_cut_frame_is_no_frame_and_what_is_no_frame_is_an_error() {
        let mut decoder = Decoder::default();
        decoder.push(&encode(1, 0, b"abc")[..18]);
        assert_eq!(decoder.next_frame().unwrap(), None);
        let mut decoder = Decoder::default();
        decoder.push(&encode(4, 0, b""));
        assert!(decoder.next_frame().is_err());
        let mut decoder = Decoder::default();
        decoder.push(&[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(decoder.next_frame().is_err());
    }
}
