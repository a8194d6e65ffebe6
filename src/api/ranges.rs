//! Byte ranges of RFC 9110, section 14: which part of a file a request asks for.

use axum::http::{HeaderMap, header};

/// The part of a file that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it: no range was asked for, or none that is understood.
    Whole,
    /// From the first to the last of these bytes.
    Bytes(u64, u64),
    /// The range lies behind the end.
    Beyond,
}

/// What a request asks for of a file of this length.
///
/// A range that is malformed, of another unit, or one of several is as good as none: RFC 9110 lets
/// a server ignore it, and the whole file is always right. So is the whole of an empty file. With
/// `If-Range` the range counts only while the file is the one the client has a part of.
pub(super) fn part(headers: &HeaderMap, length: u64, etag: Option<&str>) -> Part {
    if let Some(condition) = headers.get(header::IF_RANGE) {
        // A date is no strong validator here: two files can come within one second.
        if etag.is_none_or(|etag| condition.as_bytes() != etag.as_bytes()) {
            return Part::Whole;
        }
    }
    let mut values = headers.get_all(header::RANGE).iter();
    match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
        (Some(text), None) if length > 0 => parse(text, length).unwrap_or(Part::Whole),
        _ => Part::Whole,
    }
}

/// `None` for what is not one range of bytes.
fn parse(text: &str, length: u64) -> Option<Part> {
    let (unit, range) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number no u64 holds is behind every end.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    if first.is_empty() {
        return Some(match number(last)? {
            0 => Part::Beyond,
            suffix => Part::Bytes(length.saturating_sub(suffix), length - 1),
        });
    }
    let first = number(first)?;
    let last = match last {
        "" => u64::MAX,
        last => number(last)?,
    };
    if last < first {
        return None;
    }
    Some(if first < length { Part::Bytes(first, last.min(length - 1)) } else { Part::Beyond })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str, length: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        part(&headers, length, Some("\"x\""))
    }

    #[test]
    fn ranges_are_clamped_refused_or_ignored() {
        for (range, expected) in [
            ("bytes=0-10", Part::Bytes(0, 10)),
            ("bytes=90-", Part::Bytes(90, 99)),
            ("bytes=-10", Part::Bytes(90, 99)),
            ("bytes=-500", Part::Bytes(0, 99)),
            ("bytes=90-110", Part::Bytes(90, 99)),
            ("Bytes = 99-99".trim(), Part::Bytes(99, 99)),
            ("bytes=0-99999999999999999999999", Part::Bytes(0, 99)),
            ("bytes=100-", Part::Beyond),
            ("bytes=99999999999999999999999-", Part::Beyond),
            ("bytes=-0", Part::Beyond),
            ("bytes=5-2", Part::Whole),
            ("bytes=0-1,3-4", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=+1-2", Part::Whole),
            ("bytes", Part::Whole),
            ("lines=0-1", Part::Whole),
        ] {
            assert_eq!(asked(range, 100), expected, "{range}");
            assert_eq!(asked(range, 0), Part::Whole, "{range} of an empty file");
        }
    }

    #[test]
    fn a_range_of_another_file_is_no_range() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, "bytes=0-0".parse().unwrap());
        for (condition, expected) in [
            ("\"x\"", Part::Bytes(0, 0)),
            ("\"y\"", Part::Whole),
            ("W/\"x\"", Part::Whole),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Part::Whole),
        ] {
            headers.insert(header::IF_RANGE, condition.parse().unwrap());
            assert_eq!(part(&headers, 9, Some("\"x\"")), expected, "{condition}");
            assert_eq!(part(&headers, 9, None), Part::Whole);
        }
    }
}
