//! What comes from a session or a server and is shown between hangar's own words.
//!
//! The output of a command goes through byte for byte; that is what it is for. A build's log, a
//! name or a description is read by somebody who believes hangar wrote the screen, so nothing in
//! it may move the cursor, set the title or answer a query.

use std::io::Write;

/// Says something on standard error. That nobody reads it must not end anything, as it would
/// with `eprintln!`.
pub fn note(text: &str) {
    let _unread = writeln!(std::io::stderr(), "hangar: {text}");
}

/// The text without control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Makes a log fit for a terminal while it comes in pieces.
#[derive(Debug, Default)]
pub struct LogFilter {
    /// The last byte began a two-byte character that may be a control character.
    after_c2: bool,
}

impl LogFilter {
    /// The piece with every control character but line feed, carriage return and tab replaced.
    #[must_use]
    pub fn pass(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(piece.len());
        for &byte in piece {
            let c1 =
                std::mem::replace(&mut self.after_c2, byte == 0xc2) && (0x80..0xa0).contains(&byte);
            passed.push(match byte {
                b'\n' | b'\r' | b'\t' => byte,
                0..0x20 | 0x7f => b'?',
                _ if c1 => b'?',
                _ => byte,
            });
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_passes() {
        assert_eq!(
            printable("a\u{1b}]0;x\u{7}b\nc\u{9b}1m"),
            "a\u{fffd}]0;x\u{fffd}b\u{fffd}c\u{fffd}1m"
        );
        let log = "ok\té\r\n\u{1b}[2J\u{9b}1m\u{7f}".as_bytes();
        for size in 1..log.len() {
            let mut filter = LogFilter::default();
            let passed: Vec<u8> = log.chunks(size).flat_map(|piece| filter.pass(piece)).collect();
            assert_eq!(passed, b"ok\t\xc3\xa9\r\n?[2J\xc2?1m?");
        }
    }
}
