//! Output of commands as text: a character that is cut between two frames stays whole.

/// The bytes of a character that has not come whole yet.
#[derive(Debug, Default)]
pub struct Decoder {
    rest: Vec<u8>,
}

impl Decoder {
    /// The text of these bytes after those before; what is no UTF-8 becomes U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.rest.extend_from_slice(bytes);
        let whole = whole(&self.rest);
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        self.rest.drain(..whole);
        text
    }

    /// What is left when nothing more comes.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.rest).into_owned();
        self.rest.clear();
        text
    }
}

/// How many of these bytes are whole characters, or can never become one.
fn whole(bytes: &[u8]) -> usize {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                None => return at + error.valid_up_to(),
                Some(length) => at += error.valid_up_to() + length,
            },
        }
    }
}

/// The longest beginning of a text that is no longer than this.
#[must_use]
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut() {
        let text = "aé€😀\u{fffd}z";
        for size in 1..5 {
            let mut decoder = Decoder::default();
            let pieces: Vec<_> = text.as_bytes().chunks(size).map(|c| decoder.push(c)).collect();
            assert_eq!(pieces.concat() + &decoder.finish(), text, "{size}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.push(b"a\xffb\xe2\x82"), "a\u{fffd}b");
        assert_eq!(decoder.push(b"x"), "\u{fffd}x");
        assert_eq!(decoder.push(b"\xe2"), "");
        assert_eq!(decoder.finish(), "\u{fffd}");
        assert_eq!((cut("aé", 2), cut("aé", 3), cut("aé", 9)), ("a", "aé", "aé"));
    }
}
