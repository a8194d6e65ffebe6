//! What the name of a member is, of the three that a zip can mean.

use super::entry::made_on;
use super::fields::{extra, u32_at};
use crate::job::Note;

/// Where a name came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameRule {
    /// ASCII, or UTF-8 that is said to be UTF-8: there is nothing to decide.
    Plain,
    /// The extra field with the name in Unicode.
    UnicodeField,
    /// UTF-8 that is not said to be.
    Utf8,
    /// Code page 437, that of the first zips.
    Cp437,
}

impl NameRule {
    pub(super) fn note(self) -> Option<Note> {
        match self {
            Self::Plain => None,
            Self::UnicodeField => Some(Note::NamesFromUnicodeField),
            Self::Utf8 => Some(Note::NamesTakenForUtf8),
            Self::Cp437 => Some(Note::NamesFromCp437),
        }
    }
}

/// The characters 128 to 255.
const CP437: &str = "ÇüéâäàåçêëèïîìÄÅÉæÆôöòûùÿÖÜ¢£¥₧ƒáíóúñÑªº¿⌐¬½¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\u{a0}";

/// Decodes a name: by the Unicode field if its checksum is that of the name, else as UTF-8 if it
/// is valid, else as code page 437. It never fails.
pub(super) fn decode(raw: &[u8], says_utf8: bool, extra_fields: &[u8]) -> (Vec<u8>, NameRule) {
    if let Some(name) = unicode_field(raw, extra_fields) {
        return (name.to_vec(), NameRule::UnicodeField);
    }
    if std::str::from_utf8(raw).is_ok() {
        let plain = says_utf8 || raw.is_ascii();
        return (raw.to_vec(), if plain { NameRule::Plain } else { NameRule::Utf8 });
    }
    let name: String = raw.iter().map(|byte| cp437(*byte)).collect();
    (name.into_bytes(), NameRule::Cp437)
}

fn cp437(byte: u8) -> char {
    if byte < 128 {
        return char::from(byte);
    }
    CP437.chars().nth(usize::from(byte - 128)).expect("128 characters")
}

/// Field 0x7075: a version, the checksum of the plain name, the name in UTF-8.
pub(super) fn unicode_field<'a>(raw: &[u8], extra_fields: &'a [u8]) -> Option<&'a [u8]> {
    let field = extra(extra_fields, 0x7075)?;
    if field.len() < 6 || field[0] != 1 || u32_at(field, 1) != checksum(raw) {
        return None;
    }
    let name = &field[5..];
    std::str::from_utf8(name).is_ok().then_some(name)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    checksum.sum()
}

/// Replaces the backslashes of members that were packed on Windows, where they separate names.
pub(super) fn convert_backslashes(name: &mut [u8], system: u8) -> bool {
    let separates = matches!(system, made_on::DOS | made_on::OS2 | made_on::NTFS | made_on::VFAT);
    if !separates || !name.contains(&b'\\') {
        return false;
    }
    name.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_comes_in_its_turn() {
        assert_eq!(decode(b"plain", false, b""), (b"plain".to_vec(), NameRule::Plain));
        let resume = "r\u{e9}sum\u{e9}.md".as_bytes();
        assert_eq!(decode(resume, false, b""), (resume.to_vec(), NameRule::Utf8));
        assert_eq!(decode(resume, true, b""), (resume.to_vec(), NameRule::Plain));
        let dos = decode(b"r\x82sum\x82.md", false, b"");
        assert_eq!(dos, (resume.to_vec(), NameRule::Cp437));
        // A flag that lies is no reason to fail.
        assert_eq!(decode(b"\xff", true, b"").0, "\u{a0}".as_bytes());
        let mut field = vec![0x75, 0x70, 7, 0, 1];
        field.extend_from_slice(&checksum(b"raw").to_le_bytes());
        field.extend_from_slice("é".as_bytes());
        assert_eq!(
            decode(b"raw", false, &field),
            ("é".as_bytes().to_vec(), NameRule::UnicodeField)
        );
        // A field about another name is that of a name that was changed since.
        assert_eq!(decode(b"new", false, &field), (b"new".to_vec(), NameRule::Plain));
    }

    #[test]
    fn every_byte_has_a_character_of_its_own() {
        let all: std::collections::BTreeSet<char> = (0..=255).map(cp437).collect();
        assert_eq!(all.len(), 256);
    }

    #[test]
    fn backslashes_separate_where_they_do() {
        let mut name = b"src\\main.py".to_vec();
        assert!(!convert_backslashes(&mut name, made_on::UNIX));
        assert!(convert_backslashes(&mut name, made_on::DOS));
        assert_eq!(name, b"src/main.py");
        assert!(!convert_backslashes(&mut name, made_on::DOS));
    }
}
