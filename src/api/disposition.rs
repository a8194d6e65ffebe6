//! Heads of parts of a form: `Content-Disposition` and its parameters.

use super::multipart::Part;
use crate::failure::{Code, Failure};

/// The longest name a file can have on Linux.
const NAME_BYTES_MAX: usize = 255;

/// The boundary that a content type names, if it is that of a form.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (kind, parameters) = content_type.split_once(';')?;
    if !kind.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let all = parameters_of(parameters);
    all.into_iter().find(|(name, _)| name == "boundary").map(|(_, value)| value)
}

/// What the head of a part says.
///
/// # Errors
/// [`Code::InvalidInput`] when it names no field, or a file that cannot have that name.
pub(super) fn part(head: &[u8]) -> Result<Part, Failure> {
    let head = std::str::from_utf8(head).map_err(|_| invalid("a head that is no UTF-8"))?;
    let mut part = Part::default();
    let fields = head.split("\r\n").filter_map(|line| line.split_once(':'));
    for (field, value) in fields {
        if field.eq_ignore_ascii_case("content-type") {
            part.media_type = Some(value.trim().to_owned());
        } else if field.eq_ignore_ascii_case("content-disposition") {
            let parameters = value.split_once(';').map_or("", |(_, parameters)| parameters);
            for (name, value) in parameters_of(parameters) {
                match name.as_str() {
                    "name" => part.name = unescape(&value),
                    // The one with a charset is the better one where there are both.
                    "filename" if part.file_name.is_none() => {
                        part.file_name = Some(last_name(&unescape(&value))?);
                    }
                    "filename*" => part.file_name = Some(last_name(&extended(&value)?)?),
                    _ => {}
                }
            }
        }
    }
    match part.name.is_empty() {
        true => Err(invalid("a part without a name")),
        false => Ok(part),
    }
}

/// `name=value; name="value"`: names in lower case, values without their quotes.
fn parameters_of(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_start_matches([';', ' ', '\t']).trim().to_ascii_lowercase();
        let (value, left) = match after.trim_start().strip_prefix('"') {
            Some(quoted) => take_quoted(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        found.push((name, value));
        rest = left;
    }
    found
}

/// A quoted text and what comes after it. Browsers do not escape a backslash, so one that escapes
/// neither a quote nor itself is a backslash.
fn take_quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match (char, chars.peek().map(|(_, next)| *next)) {
            ('"', _) => return (value, &text[at + 1..]),
            ('\\', Some(next @ ('"' | '\\'))) => {
                value.push(next);
                chars.next();
            }
            _ => value.push(char),
        }
    }
    (value, "")
}

/// Takes back the three escapes of forms, as the HTML standard has them; no others.
fn unescape(text: &str) -> String {
    ["%22", "%0D", "%0A"]
        .iter()
        .zip(["\"", "\r", "\n"])
        .fold(text.to_owned(), |text, (from, to)| {
            text.replace(from, to).replace(&from.to_ascii_lowercase(), to)
        })
}

/// `UTF-8''%c3%bc.txt`: RFC 8187.
fn extended(text: &str) -> Result<String, Failure> {
    let why = || invalid("a filename* that is not as RFC 8187 says");
    let mut parts = text.splitn(3, '\'');
    let charset = parts.next().unwrap_or_default();
    let escaped = parts.nth(1).ok_or_else(why)?;
    if !charset.eq_ignore_ascii_case("utf-8") {
        return Err(why());
    }
    let bytes = crate::environments::source_path::decode(escaped.as_bytes()).ok_or_else(why)?;
    String::from_utf8(bytes).map_err(|_| why())
}

/// The name behind the last separator of any system.
fn last_name(path: &str) -> Result<String, Failure> {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_odd = matches!(name, "" | "." | "..") || name.chars().any(char::is_control);
    match is_odd || name.len() > NAME_BYTES_MAX {
        true => Err(invalid("a file name that no file can have").with_param("filename")),
        false => Ok(name.to_owned()),
    }
}

fn invalid(what: &str) -> Failure {
    Failure::new(Code::InvalidInput, format!("the form has {what}")).with_param("body")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parameter: &str) -> Result<String, Failure> {
        let head = format!("Content-Disposition: form-data; name=\"file\"; {parameter}");
        part(head.as_bytes()).map(|part| part.file_name.unwrap_or_default())
    }

    #[test]
    fn file_names_arrive_as_they_were() {
        for (parameter, wanted) in [
            ("filename=\"say %22hi%22.txt\"", "say \"hi\".txt"),
            ("filename=\"say \\\"hi\\\".txt\"", "say \"hi\".txt"),
            ("filename=\"C:\\x\\y.txt\"", "y.txt"),
            ("filename=\"../up.txt\"", "up.txt"),
            ("filename=\"a;b=c.txt\"", "a;b=c.txt"),
            ("filename=plain.txt", "plain.txt"),
            ("filename=\"100%25.txt\"", "100%25.txt"),
            ("filename=\"\u{fc}.txt\"", "\u{fc}.txt"),
            ("filename*=UTF-8''%c3%bc%20x.txt", "\u{fc} x.txt"),
            ("filename=\"u.txt\"; filename*=utf-8'de'%c3%bc.txt", "\u{fc}.txt"),
            ("filename*=UTF-8''%c3%bc.txt; filename=\"u.txt\"", "\u{fc}.txt"),
        ] {
            assert_eq!(name(parameter).unwrap(), wanted, "{parameter}");
        }
    }

    #[test]
    fn names_that_no_file_can_have_are_refused() {
        for parameter in [
            "filename=\"\"",
            "filename=\"..\"",
            "filename=\"a/\"",
            "filename=\"a%0Ab\"",
            "filename=\"a\0b\"",
            "filename*=UTF-8''%ff",
            "filename*=latin1''x",
            "filename*=x",
        ] {
            assert!(name(parameter).is_err(), "{parameter}");
        }
        assert!(name(&format!("filename={}", "x".repeat(256))).is_err());
        assert!(part(b"Content-Type: text/plain").is_err(), "no field");
    }
}
