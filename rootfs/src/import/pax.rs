//! Extension headers of tar: pax records and GNU's long names.

use super::sparse;
use crate::names::quoted;
use crate::tree::Time;

/// What extension headers say about the member that follows them. They never reach further: a
/// reader that lets a size record act on a later member sees other members than its neighbour.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Extensions {
    pax_name: Option<Vec<u8>>,
    pax_link: Option<Vec<u8>>,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
    /// The size of the data.
    pub size: Option<u64>,
    /// The time of last modification.
    pub mtime: Option<Time>,
    /// Where the data of a sparse file goes.
    pub sparse: Option<sparse::Records>,
}

impl Extensions {
    /// Takes the data of an extension header of type `x`, `X`, `g`, `L` or `K`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn take(&mut self, kind: u8, bytes: &[u8]) -> Result<(), String> {
        match kind {
            b'L' => self.long_name = Some(until_nul(bytes)),
            b'K' => self.long_link = Some(until_nul(bytes)),
            b'g' => check_global(bytes)?,
            _ => self.take_records(bytes)?,
        }
        Ok(())
    }

    fn take_records(&mut self, bytes: &[u8]) -> Result<(), String> {
        for (key, value) in records(bytes)? {
            match key {
                b"path" => self.pax_name = Some(value.to_vec()),
                b"linkpath" => self.pax_link = Some(value.to_vec()),
                b"size" => self.size = Some(number(value).ok_or("a pax size is no number")?),
                // A time that is none is no reason to refuse a project.
                b"mtime" => self.mtime = parse_time(value),
                _ if key.starts_with(b"GNU.sparse.") => {
                    self.sparse.get_or_insert_default().take(key, value)?;
                }
                b"SCHILY.realsize" => {
                    return Err("a sparse file is stored in a way that is not GNU tar's".into());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The name of the member whose header says `written`. That of a sparse file is in a record of
    /// its own, and what stands elsewhere is made up.
    ///
    /// # Errors
    /// When there are two long names that differ.
    pub fn name(&self, written: &[u8]) -> Result<Vec<u8>, String> {
        if let Some(name) = self.sparse.as_ref().and_then(|sparse| sparse.name.as_ref()) {
            return Ok(name.clone());
        }
        one_of(self.pax_name.as_ref(), self.long_name.as_ref(), written)
    }

    /// The link target of the member whose header says `written`.
    ///
    /// # Errors
    /// When there are two long targets that differ.
    pub fn link(&self, written: &[u8]) -> Result<Vec<u8>, String> {
        one_of(self.pax_link.as_ref(), self.long_link.as_ref(), written)
    }
}

fn one_of(
    pax: Option<&Vec<u8>>,
    long: Option<&Vec<u8>>,
    written: &[u8],
) -> Result<Vec<u8>, String> {
    match (pax, long) {
        (Some(pax), Some(long)) if pax != long => {
            Err(format!("a member is called {} and {}", quoted(pax), quoted(long)))
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.clone()),
        (None, None) => Ok(written.to_vec()),
    }
}

/// A global header may comment (`git archive` puts the commit there); what would act on every
/// member that follows is refused, since few readers do it.
fn check_global(bytes: &[u8]) -> Result<(), String> {
    for (key, _) in records(bytes)? {
        if matches!(key, b"path" | b"linkpath" | b"size") || key.starts_with(b"GNU.sparse.") {
            return Err(format!("a global header sets {} for all members", quoted(key)));
        }
    }
    Ok(())
}

/// Key and value.
type Record<'a> = (&'a [u8], &'a [u8]);

/// Takes pax records apart: `LENGTH KEY=VALUE\n`, the length of the whole record in decimal. The
/// value can be any bytes, newlines too.
fn records(mut rest: &[u8]) -> Result<Vec<Record<'_>>, String> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (record, after) = split_record(rest).ok_or("a pax record is malformed")?;
        records.push(record);
        rest = after;
    }
    Ok(records)
}

fn split_record(bytes: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(number(&bytes[..space])?).ok()?;
    let (record, after) = bytes.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some(((&body[..equals], &body[equals + 1..]), after))
}

fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn until_nul(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    bytes[..end].to_vec()
}

/// Times are kept within what ext4 stores, 1901 to 2446; those beyond become the nearest.
pub(super) fn clamp(seconds: i128, nanoseconds: u32) -> Time {
    const FIRST: i128 = -(1 << 31);
    const LAST: i128 = (1 << 34) - (1 << 31) - 1;
    if !(FIRST..=LAST).contains(&seconds) {
        return Time { seconds: seconds.clamp(FIRST, LAST) as i64, nanoseconds: 0 };
    }
    Time { seconds: seconds as i64, nanoseconds }
}

/// A decimal number of seconds, such as `-86400.5`.
fn parse_time(text: &[u8]) -> Option<Time> {
    let text = std::str::from_utf8(text).ok()?;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = i128::from(number(whole.as_bytes())?);
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanoseconds: u32 = format!("{fraction:0<9}")[..9].parse().ok()?;
    Some(match (negative, nanoseconds) {
        (false, _) => clamp(whole, nanoseconds),
        (true, 0) => clamp(-whole, 0),
        (true, _) => clamp(-whole - 1, 1_000_000_000 - nanoseconds),
    })
}

/// The time field of a header: octal text, or a signed number in base 256.
#[must_use]
pub fn header_time(field: &[u8; 12]) -> Time {
    if field[0] & 0x80 != 0 {
        // The first bit marks the form, the next one is the sign.
        let first = if field[0] & 0x40 != 0 { field[0] } else { field[0] & 0x7f };
        let start = i128::from(first as i8);
        let value = field[1..].iter().fold(start, |value, byte| value << 8 | i128::from(*byte));
        return clamp(value, 0);
    }
    let text = until_nul(field);
    let digits = std::str::from_utf8(&text).ok().map(str::trim).unwrap_or("");
    clamp(i64::from_str_radix(digits, 8).map_or(0, i128::from), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(seconds: i64, nanoseconds: u32) -> Time {
        Time { seconds, nanoseconds }
    }

    #[test]
    fn records_are_cut_by_their_length() {
        let bytes = b"15 path=a\nb c\n\n11 size=12\n";
        let read = records(bytes).unwrap();
        assert_eq!(read, [(&b"path"[..], &b"a\nb c\n"[..]), (b"size", b"12")]);
        for bad in [
            &b"6 path=a\n"[..],
            b"9999 path=a\n",
            b"99999999999999999999999 path=a\n",
            b"path=a\n",
            b"-5 a=b\n",
            b"8 path=a\n",
            b"8 patha\n",
            b"0 \n",
            b"3 a=b",
        ] {
            assert!(records(bad).is_err(), "{}", quoted(bad));
        }
    }

    #[test]
    fn times_are_read_and_clamped() {
        assert_eq!(parse_time(b"1700000000.25"), Some(time(1_700_000_000, 250_000_000)));
        assert_eq!(parse_time(b"-86400.5"), Some(time(-86401, 500_000_000)));
        assert_eq!(parse_time(b"1"), Some(time(1, 0)));
        assert_eq!(parse_time(b"99999999999"), Some(time(15_032_385_535, 0)));
        assert_eq!(parse_time(b"1.1234567891234"), Some(time(1, 123_456_789)));
        assert_eq!(parse_time(b"soon"), None);
        assert_eq!(header_time(b"14371573000\0"), time(0o14_371_573_000, 0));
        assert_eq!(header_time(&[0xff; 12]), time(-1, 0));
        assert_eq!(header_time(b"\x80\0\0\0\0\0\0\0\0\0\0\x05"), time(5, 0));
        assert_eq!(header_time(b"            "), time(0, 0));
    }

    #[test]
    fn two_names_for_one_member_are_refused() {
        let mut extensions = Extensions::default();
        extensions.take(b'L', b"long\0").unwrap();
        assert_eq!(extensions.name(b"short"), Ok(b"long".to_vec()));
        extensions.take(b'x', b"12 path=pax\n").unwrap();
        assert!(extensions.name(b"short").unwrap_err().contains("\"pax\" and \"long\""));
    }

    #[test]
    fn global_headers_only_comment() {
        let mut extensions = Extensions::default();
        extensions.take(b'g', b"16 comment=abcd\n").unwrap();
        assert_eq!(extensions, Extensions::default());
        assert!(extensions.take(b'g', b"10 path=x\n").unwrap_err().contains("path"));
    }
}
