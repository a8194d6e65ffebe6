//! The mount name of an environment, from the name its owner gave it.

use hangar_runtime::ids::Slug;

/// The slug of a name: lower case, everything but letters and digits becomes one `-`.
///
/// `None` when nothing is left, or when the name does not begin with a letter or a digit, which
/// the protocol asks for.
#[must_use]
pub fn slug_of(name: &str) -> Option<Slug> {
    let name = name.trim();
    if !name.chars().next()?.is_alphanumeric() {
        return None;
    }
    let mut slug = String::new();
    for character in name.chars() {
        match character.to_ascii_lowercase() {
            kept @ ('a'..='z' | '0'..='9' | '_') => slug.push(kept),
            '.' if !slug.is_empty() && !slug.ends_with(['.', '-']) => slug.push('.'),
            _ if slug.is_empty() || slug.ends_with(['-', '.']) => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(63);
    let begin = slug.trim_start_matches(['_', '.', '-']);
    Slug::parse(begin.trim_end_matches(['-', '.'])).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_one_plain_path_component() {
        for (name, slug) in [
            ("Content Studio", "content-studio"),
            ("content-studio", "content-studio"),
            ("  A  B  ", "a-b"),
            ("v1.2", "v1.2"),
            ("a..b", "a.b"),
            ("a/../../b", "a-b"),
            ("Ünï code", "n-code"),
            ("x!", "x"),
            ("my_project", "my_project"),
            (&"a".repeat(80), &"a".repeat(63)),
        ] {
            assert_eq!(slug_of(name).as_ref().map(Slug::as_str), Some(slug), "{name:?}");
        }
    }

    #[test]
    fn a_name_without_a_path_segment_has_no_slug() {
        for name in ["", "   ", "!!!", "../etc", "-a", ".", "/", "日本", "\0"] {
            assert!(slug_of(name).is_none(), "{name:?}");
        }
    }
}
