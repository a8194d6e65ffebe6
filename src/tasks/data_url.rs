//! Data URLs (RFC 2397): files that are sent within a request.

/// What a data URL holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataUrl {
    /// In lower case, without parameters.
    pub media_type: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Reads a data URL; `None` when it is none.
#[must_use]
pub fn parse(url: &str) -> Option<DataUrl> {
    let (scheme, rest) = url.split_at_checked(5)?;
    if !scheme.eq_ignore_ascii_case("data:") {
        return None;
    }
    let (head, data) = rest.split_once(',')?;
    let (kind, is_base64) = match head.rsplit_once(';') {
        Some((kind, last)) if last.trim().eq_ignore_ascii_case("base64") => (kind, true),
        _ => (head, false),
    };
    let media_type = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let media_type = if media_type.is_empty() { "text/plain".to_owned() } else { media_type };
    let bytes = if is_base64 { base64(data)? } else { percent(data)? };
    Some(DataUrl { media_type, bytes })
}

fn percent(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        if first == b'%' {
            let digits = std::str::from_utf8(more.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &more[2..];
        } else {
            bytes.push(first);
            rest = more;
        }
    }
    Some(bytes)
}

/// Decodes base64 of either alphabet, padded or not; white space is passed over.
#[must_use]
pub fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut digits, mut padding) = (0u32, 0u32, 0u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' | b'\n' => continue,
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        word = word << 6 | u32::from(value);
        digits += 1;
        if digits == 4 {
            bytes.extend_from_slice(&word.to_be_bytes()[1..]);
            (word, digits) = (0, 0);
        }
    }
    match (digits, padding) {
        (0, 0) => {}
        (2, 0 | 2) if word & 0xf == 0 => bytes.push((word >> 4) as u8),
        (3, 0 | 1) if word & 3 == 0 => bytes.extend_from_slice(&((word >> 2) as u16).to_be_bytes()),
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_read_strictly() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zg", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("Zm9vYg\r\n==", b"foob"),
            ("-_-_", b"\xfb\xff\xbf"),
            ("+/+/", b"\xfb\xff\xbf"),
        ] {
            assert_eq!(base64(text).as_deref(), Some(bytes), "{text}");
        }
        // Half a byte, bits that belong to nothing, padding where there is nothing to fill.
        for bad in ["Z", "Zg=", "Zh==", "Zm9", "Zm9v=", "Zg==Zg==", "Zm9!", "====", "Zm8=="] {
            assert!(base64(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn urls_have_a_type_and_bytes() {
        let url = parse("data:Text/Plain;charset=utf-8;base64,aGk=").unwrap();
        assert_eq!((url.media_type.as_str(), &url.bytes[..]), ("text/plain", &b"hi"[..]));
        assert_eq!(parse("data:,a%20b").unwrap().bytes, b"a b");
        assert_eq!(parse("DATA:image/png,x").unwrap().media_type, "image/png");
        for bad in ["", "data:", "data", "https://x/,y", "data:,%2", "data:;base64,!"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
