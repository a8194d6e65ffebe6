//! Entity tags and the conditions on them: RFC 9110, sections 8.8.3 and 13.

use crate::failure::{Code, Failure};
use axum::http::{HeaderMap, HeaderName, header};

/// Whether the client has this already, by `If-None-Match`.
pub(super) fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    // A weak tag of the same opaque value is good enough for reading.
    listed(headers, &header::IF_NONE_MATCH)
        .is_some_and(|mut tags| tags.any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag))
}

/// Lets a change pass only where the client knows what it changes. `current` is the tag of what is
/// there, `None` when there is nothing.
///
/// # Errors
/// [`Code::PreconditionFailed`] when `If-Match` names something else, or `If-None-Match` what is
/// there.
pub(super) fn check(headers: &HeaderMap, current: Option<&str>) -> Result<(), Failure> {
    let failed = |why: &str| Err(Failure::new(Code::PreconditionFailed, why).with_param("path"));
    if let Some(mut tags) = listed(headers, &header::IF_MATCH)
        && !tags.any(|tag| current.is_some_and(|current| tag == "*" || tag == current))
    {
        return failed("the file is not the one the request is about");
    }
    if current.is_some_and(|current| is_known(headers, current)) {
        return failed("the file is there already");
    }
    Ok(())
}

/// Whether a change depends on what is there.
pub(super) fn any(headers: &HeaderMap) -> bool {
    headers.contains_key(header::IF_MATCH) || headers.contains_key(header::IF_NONE_MATCH)
}

/// The tags of a header; `None` when it is not there. What is no text names nothing.
fn listed<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<impl Iterator<Item = &'a str>> {
    headers.contains_key(name).then(|| {
        let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        // No tag of ours has a comma in it.
        values.flat_map(|value| value.split(',')).map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    #[test]
    fn a_change_needs_the_tag_of_what_is_there() {
        for (value, current, passes) in [
            ("\"a\"", Some("\"a\""), true),
            ("\"b\", \"a\"", Some("\"a\""), true),
            ("*", Some("\"a\""), true),
            ("W/\"a\"", Some("\"a\""), false),
            ("\"b\"", Some("\"a\""), false),
            ("\"a\"", None, false),
            ("*", None, false),
        ] {
            let headers = headers(header::IF_MATCH, value);
            assert_eq!(check(&headers, current).is_ok(), passes, "{value} {current:?}");
        }
        let create = headers(header::IF_NONE_MATCH, "*");
        assert!(check(&create, None).is_ok() && check(&create, Some("\"a\"")).is_err());
        assert!(check(&HeaderMap::new(), Some("\"a\"")).is_ok());
    }

    #[test]
    fn a_weak_tag_is_enough_to_read_nothing_again() {
        for (value, known) in [("\"a\"", true), ("W/\"a\"", true), ("*", true), ("\"b\"", false)] {
            assert_eq!(is_known(&headers(header::IF_NONE_MATCH, value), "\"a\""), known);
        }
    }
}
