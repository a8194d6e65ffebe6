//! Package specifications as an owner declares them: `numpy==2.3.1`, `sharp@0.33.5`, `ffmpeg`.

use std::str::FromStr;

/// Who installs a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Manager {
    /// pip.
    Pip,
    /// npm.
    Npm,
    /// apt.
    Apt,
}

impl FromStr for Manager {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "pip" => Ok(Self::Pip),
            "npm" => Ok(Self::Npm),
            "apt" => Ok(Self::Apt),
            _ => Err(()),
        }
    }
}

impl Manager {
    /// As the protocol writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Npm => "npm",
            Self::Apt => "apt",
        }
    }
}

/// What a specification names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Spec {
    /// The package.
    pub name: String,
    /// The one version it asks for; empty when it asks for none or for a range.
    pub version: String,
}

/// The longest specification.
pub const SPEC_BYTES_MAX: usize = 200;

impl Spec {
    /// Takes a specification apart; `None` when it is none. One that begins with a dash would be
    /// an option of the installer, and one of a place (a path, an address) names no package.
    #[must_use]
    pub fn parse(manager: Manager, text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > SPEC_BYTES_MAX || text.contains(char::is_control) {
            return None;
        }
        match manager {
            Manager::Pip => parse_pip(text),
            Manager::Npm => parse_npm(text),
            Manager::Apt => parse_apt(text),
        }
    }
}

/// `name[extra]==1.0; marker`: a name, and all that PEP 508 lets follow it but an address.
fn parse_pip(text: &str) -> Option<Spec> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let end = text.find(|c| !is_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let ends_well = |c: char| c.is_ascii_alphanumeric();
    if !name.starts_with(ends_well) || !name.ends_with(ends_well) {
        return None;
    }
    let mut rest = rest.trim_start();
    if let Some(extras) = rest.strip_prefix('[') {
        rest = extras.split_once(']')?.1.trim_start();
    }
    let rest = rest.split(';').next().unwrap_or_default().trim();
    if !rest.is_empty() && !rest.starts_with(['=', '<', '>', '!', '~', '(']) {
        return None;
    }
    let pin = rest.strip_prefix("===").or_else(|| rest.strip_prefix("==")).map(str::trim);
    let exact = pin.filter(|pin| !pin.contains(['*', ',', ' ']));
    Some(Spec { name: name.to_owned(), version: exact.unwrap_or_default().to_owned() })
}

/// `name@1.0`, `@scope/name@1.0`; a range or a tag is no version.
fn parse_npm(text: &str) -> Option<Spec> {
    let at = text.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let (name, version) = at.map_or((text, ""), |at| (&text[..at], &text[at + 1..]));
    let part = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "._-~".contains(c);
        !part.is_empty() && part.chars().all(fits) && !part.starts_with(['.', '-', '_', '~'])
    };
    let is_name = match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(a, b)| part(a) && part(b)),
        None => part(name),
    };
    // An alias, a path or an address.
    if !is_name || version.contains([':', '/']) || (at.is_some() && version.is_empty()) {
        return None;
    }
    let is_exact = version.starts_with(|c: char| c.is_ascii_digit())
        && version.split('.').count() >= 3
        && version.chars().all(|c| c.is_ascii_alphanumeric() || ".-+".contains(c))
        && !version.split('.').take(3).any(|part| part.eq_ignore_ascii_case("x"));
    let version = if is_exact { version } else { "" };
    Some(Spec { name: name.to_owned(), version: version.to_owned() })
}

/// `name`, `name=version`, `name:architecture`.
fn parse_apt(text: &str) -> Option<Spec> {
    let (name, version) = text.split_once('=').unwrap_or((text, ""));
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.:".contains(c);
    let is_name = name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(fits);
    let is_version = version.chars().all(|c| c.is_ascii_alphanumeric() || ".+-~:".contains(c));
    // A name that ends so is an instruction to apt.
    let is_order = name.ends_with(['+', '-']) && !name.ends_with("++");
    (is_name && is_version && !is_order)
        .then(|| Spec { name: name.to_owned(), version: version.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(manager: Manager, text: &str) -> Option<(String, String)> {
        Spec::parse(manager, text).map(|spec| (spec.name, spec.version))
    }

    #[test]
    fn names_and_exact_versions_are_told() {
        for (manager, text, name, version) in [
            (Manager::Pip, "numpy", "numpy", ""),
            (Manager::Pip, "numpy==2.3.1", "numpy", "2.3.1"),
            (Manager::Pip, "numpy == 2.3.1 ; python_version > '3'", "numpy", "2.3.1"),
            (Manager::Pip, "uvicorn[standard]>=0.30,<1", "uvicorn", ""),
            (Manager::Pip, "a==1.*", "a", ""),
            (Manager::Pip, "zope.interface~=5.0", "zope.interface", ""),
            (Manager::Npm, "sharp", "sharp", ""),
            (Manager::Npm, "sharp@0.33.5", "sharp", "0.33.5"),
            (Manager::Npm, "sharp@^0.33", "sharp", ""),
            (Manager::Npm, "sharp@latest", "sharp", ""),
            (Manager::Npm, "@types/node@22.0.0-rc.1", "@types/node", "22.0.0-rc.1"),
            (Manager::Npm, "@types/node", "@types/node", ""),
            (Manager::Apt, "ffmpeg", "ffmpeg", ""),
            (Manager::Apt, "libstdc++6=12.2.0-14", "libstdc++6", "12.2.0-14"),
            (Manager::Apt, "g++", "g++", ""),
        ] {
            let expected = Some((name.to_owned(), version.to_owned()));
            assert_eq!(parsed(manager, text), expected, "{text}");
        }
    }

    #[test]
    fn options_places_and_orders_are_no_packages() {
        for (manager, text) in [
            (Manager::Pip, ""),
            (Manager::Pip, "--index-url=https://example.org"),
            (Manager::Pip, "-e ."),
            (Manager::Pip, "./package"),
            (Manager::Pip, "git+https://example.org/x"),
            (Manager::Pip, "x @ https://example.org/x.whl"),
            (Manager::Pip, "a b"),
            (Manager::Npm, ""),
            (Manager::Npm, "-g"),
            (Manager::Npm, "../x"),
            (Manager::Npm, "github:a/b"),
            (Manager::Npm, "a@npm:b@1"),
            (Manager::Npm, "a@https://example.org"),
            (Manager::Npm, "@scope"),
            (Manager::Npm, "a@"),
            (Manager::Apt, "-o"),
            (Manager::Apt, "ffmpeg-"),
            (Manager::Apt, "./x.deb"),
            (Manager::Apt, "a b"),
            (Manager::Apt, "x/stable"),
        ] {
            assert_eq!(parsed(manager, text), None, "{text:?}");
        }
    }
}
