//! Paths of trees as bytes: checked, printed, escaped.

use crate::job::{Limits, Refusal, RefusalCode, SkipReason};

/// The longest name of one file, by the kernel.
pub const NAME_BYTES_MAX: usize = 255;

/// Why a name in an archive is not a path of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NameFault {
    /// The member is dropped.
    Skip(SkipReason),
    /// The archive is refused.
    Refuse(Refusal),
}

/// Takes the name of a member apart: its parts, without `.` and doubled slashes. The root has none.
///
/// # Errors
/// Absolute names, `..`, NUL and the empty name are dropped; a path beyond the limits is refused,
/// because dropping it would silently leave a file of the project out.
pub fn parts_of<'a>(name: &'a [u8], limits: &Limits) -> Result<Vec<&'a [u8]>, NameFault> {
    if name.is_empty() || name.contains(&0) {
        return Err(NameFault::Skip(SkipReason::BadName));
    }
    if name[0] == b'/' {
        return Err(NameFault::Skip(SkipReason::AbsolutePath));
    }
    let parts: Vec<&[u8]> =
        name.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err(NameFault::Skip(SkipReason::ParentInPath));
    }
    if let Some(long) = parts.iter().find(|part| part.len() > NAME_BYTES_MAX) {
        let message = format!(
            "the name {} is {} bytes long; {NAME_BYTES_MAX} are possible",
            quoted(long),
            long.len()
        );
        let refusal = Refusal::new(RefusalCode::PathTooLong, message);
        return Err(NameFault::Refuse(refusal.limit(NAME_BYTES_MAX as u64)));
    }
    let bytes = parts.iter().map(|part| part.len() + 1).sum::<usize>().saturating_sub(1);
    check_size(name, bytes, parts.len(), limits).map_err(NameFault::Refuse)?;
    Ok(parts)
}

/// Refuses a path that is longer or deeper than the limits.
///
/// # Errors
/// [`RefusalCode::PathTooLong`] or [`RefusalCode::PathTooDeep`].
pub fn check_size(
    shown: &[u8],
    bytes: usize,
    depth: usize,
    limits: &Limits,
) -> Result<(), Refusal> {
    if bytes > limits.path_bytes_max as usize {
        let message = format!(
            "the path {} is {bytes} bytes long; {} are allowed",
            quoted(shown),
            limits.path_bytes_max
        );
        return Err(
            Refusal::new(RefusalCode::PathTooLong, message).limit(u64::from(limits.path_bytes_max))
        );
    }
    if depth > limits.depth_max as usize {
        let message = format!(
            "the path {} is {depth} levels deep; {} are allowed",
            quoted(shown),
            limits.depth_max
        );
        return Err(
            Refusal::new(RefusalCode::PathTooDeep, message).limit(u64::from(limits.depth_max))
        );
    }
    Ok(())
}

/// How many bytes of a name are shown in a message.
const SHOWN_BYTES_MAX: usize = 200;

/// A name for a message: UTF-8 as it is, control characters and other bytes as `\xNN`, cut after
/// 200 bytes.
#[must_use]
pub fn printable(name: &[u8]) -> String {
    let cut = name.len() > SHOWN_BYTES_MAX;
    let mut shown = String::new();
    for chunk in name[..name.len().min(SHOWN_BYTES_MAX)].utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_invisible(character) || character == '\\' {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    push_hex(&mut shown, "\\x", byte);
                }
            } else {
                shown.push(character);
            }
        }
        for byte in chunk.invalid() {
            push_hex(&mut shown, "\\x", *byte);
        }
    }
    if cut {
        shown.push('…');
    }
    shown
}

/// [`printable`], in quotation marks.
#[must_use]
pub fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", printable(name))
}

/// Characters that change how the text around them is shown (direction marks and separators).
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A path as one word of ASCII that [`unescape`] turns back into the same bytes: everything but
/// `!` to `~`, and `%` itself, is written `%XX`.
#[must_use]
pub fn escape(path: &[u8]) -> String {
    let mut word = String::with_capacity(path.len());
    for &byte in path {
        if byte.is_ascii_graphic() && byte != b'%' {
            word.push(char::from(byte));
        } else {
            push_hex(&mut word, "%", byte);
        }
    }
    word
}

/// The bytes that [`escape`] wrote; nothing if `word` is no word of its making.
#[must_use]
pub fn unescape(word: &[u8]) -> Option<Vec<u8>> {
    let mut path = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            path.push(first);
            continue;
        }
        let (digits, after) = after.split_at_checked(2)?;
        path.push(hex_digit(digits[0])? << 4 | hex_digit(digits[1])?);
        rest = after;
    }
    (escape(&path).as_bytes() == word).then_some(path)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

fn push_hex(text: &mut String, before: &str, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    text.push_str(before);
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_escaping() {
        let all: Vec<u8> = (1..=255).collect();
        assert_eq!(unescape(escape(&all).as_bytes()), Some(all));
        assert_eq!(escape(b"a b%\n\xff"), "a%20b%25%0A%FF");
    }

    #[test]
    fn only_the_canonical_word_is_taken_back() {
        for word in ["a b", "%4", "%", "%zz", "%ff", "%41", "é"] {
            assert_eq!(unescape(word.as_bytes()), None, "{word}");
        }
    }

    #[test]
    fn names_are_taken_apart_or_dropped() {
        let limits = Limits::default();
        let parts = |name: &'static [u8]| parts_of(name, &limits);
        assert_eq!(parts(b"./a//b/./c/"), Ok(vec![&b"a"[..], b"b", b"c"]));
        assert_eq!(parts(b"./"), Ok(vec![]));
        assert_eq!(parts(b"a\\b"), Ok(vec![&b"a\\b"[..]]));
        assert_eq!(parts(b"..a/b.."), Ok(vec![&b"..a"[..], b"b.."]));
        for (name, reason) in [
            (&b""[..], SkipReason::BadName),
            (b"a\0b", SkipReason::BadName),
            (b"/etc/x", SkipReason::AbsolutePath),
            (b"//x", SkipReason::AbsolutePath),
            (b"..", SkipReason::ParentInPath),
            (b"../x", SkipReason::ParentInPath),
            (b"a/../../x", SkipReason::ParentInPath),
            (b"a/..", SkipReason::ParentInPath),
        ] {
            let fault = parts_of(name, &limits);
            assert_eq!(fault, Err(NameFault::Skip(reason)), "{}", printable(name));
        }
    }

    #[test]
    fn paths_beyond_the_limits_are_refused() {
        let limits = Limits { path_bytes_max: 10, depth_max: 3, ..Limits::default() };
        let code = |name: &[u8]| match parts_of(name, &limits) {
            Err(NameFault::Refuse(refusal)) => Some((refusal.code, refusal.limit)),
            _ => None,
        };
        assert_eq!(code(b"a/b/c"), None);
        assert_eq!(code(b"0123456789"), None);
        assert_eq!(code(b"a/b/c/d"), Some((RefusalCode::PathTooDeep, Some(3))));
        assert_eq!(code(b"0123456789a"), Some((RefusalCode::PathTooLong, Some(10))));
        assert_eq!(code(&[b'x'; 256]), Some((RefusalCode::PathTooLong, Some(255))));
    }

    #[test]
    fn messages_show_odd_names_safely() {
        assert_eq!(printable("résumé.md".as_bytes()), "résumé.md");
        assert_eq!(printable(b"a\x1b[2J\xff\n"), "a\\x1B[2J\\xFF\\x0A");
        assert_eq!(printable("a\u{202e}b".as_bytes()), "a\\xE2\\x80\\xAEb");
        assert!(printable(&[b'x'; 5000]).len() < 210);
    }
}
