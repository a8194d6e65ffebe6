//! What pip, npm and apt say, as an answer.

use crate::environments::spec::Spec;
use serde_json::Value;

/// What is known of a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// Whether its registry has it; `None` when that could not be learnt.
    pub exists: Option<bool>,
    /// Its latest version.
    pub latest: String,
    /// The version that was asked for, when it is published.
    pub version: String,
    /// Why the answer is no, or there is none.
    pub error: String,
}

impl Answer {
    /// The registry could not be asked.
    #[must_use]
    pub fn unknown(why: impl Into<String>) -> Self {
        Self { error: why.into(), ..Self::default() }
    }

    /// The registry knows no such package.
    #[must_use]
    pub fn none() -> Self {
        let error = "the registry has no package of that name".to_owned();
        Self { exists: Some(false), error, ..Self::default() }
    }

    /// The registry has these versions of it.
    #[must_use]
    pub fn of<'a>(spec: &Spec, latest: &str, versions: impl IntoIterator<Item = &'a str>) -> Self {
        let wanted = versions.into_iter().find(|version| *version == spec.version);
        let error = match (spec.version.as_str(), wanted) {
            ("", _) | (_, Some(_)) => String::new(),
            (version, None) => format!("version {version} is not published for this toolchain"),
        };
        Self {
            exists: Some(true),
            latest: latest.to_owned(),
            version: wanted.unwrap_or_default().to_owned(),
            error,
        }
    }
}

/// What `pip -vv index versions` says: on standard output the versions this interpreter can use, on
/// standard error why there are none.
#[must_use]
pub fn of_pip(spec: &Spec, stdout: &str, stderr: &str) -> Answer {
    let field = |name: &str| stdout.lines().find_map(|line| line.trim().strip_prefix(name));
    if let Some(versions) = field("Available versions:") {
        let all: Vec<&str> = versions.split(',').map(str::trim).collect();
        return Answer::of(spec, all.first().copied().unwrap_or_default(), all);
    }
    let said = [stdout, stderr].concat();
    if said.contains("404 Client Error") {
        return Answer::none();
    }
    if said.contains("No matching distribution found") && !said.contains("Could not fetch URL") {
        let error = "the registry has no version of it for this toolchain".to_owned();
        return Answer { exists: Some(true), error, ..Answer::default() };
    }
    Answer::unknown("pip could not ask its index")
}

/// What `npm view NAME dist-tags versions --json` says.
#[must_use]
pub fn of_npm(spec: &Spec, stdout: &str) -> Answer {
    let told: Value = serde_json::from_str(stdout).unwrap_or_default();
    if told["error"]["code"] == "E404" {
        return Answer::none();
    }
    let Some(latest) = told["dist-tags"]["latest"].as_str() else {
        return Answer::unknown("npm could not ask its registry");
    };
    match &told["versions"] {
        // One version is no list.
        Value::String(only) => Answer::of(spec, latest, [only.as_str()]),
        Value::Array(all) => Answer::of(spec, latest, all.iter().filter_map(Value::as_str)),
        _ => Answer::of(spec, latest, [latest]),
    }
}

/// What the lines of `apt-cache madison` say, behind a line that tells that the lists were read:
/// `name | version | where`, the newest first.
#[must_use]
pub fn of_apt(spec: &Spec, stdout: &str) -> Answer {
    let Some(lines) = stdout.strip_prefix("asked\n") else {
        return Answer::unknown("apt could not read the lists of its sources");
    };
    let versions: Vec<&str> =
        lines.lines().filter_map(|line| line.split('|').nth(1)).map(str::trim).collect();
    match versions.first() {
        Some(latest) => Answer::of(spec, latest, versions.iter().copied()),
        None => Answer::none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(version: &str) -> Spec {
        Spec { name: "six".to_owned(), version: version.to_owned() }
    }

    #[test]
    fn pip_tells_versions_absence_and_trouble_apart() {
        let found = "six (1.17.0)\nAvailable versions: 1.17.0, 1.16.0\n  INSTALLED: 1.16.0\n";
        let answer = of_pip(&spec("1.16.0"), found, "WARNING: experimental");
        assert_eq!((answer.exists, answer.latest.as_str()), (Some(true), "1.17.0"));
        assert_eq!((answer.version.as_str(), answer.error.as_str()), ("1.16.0", ""));
        let other = of_pip(&spec("9"), found, "");
        assert_eq!((other.exists, other.version.as_str()), (Some(true), ""));
        assert!(other.error.contains("version 9"));
        let none = "Could not fetch URL x: 404 Client Error: Not Found for url: x - skipping\n\
                    ERROR: No matching distribution found for six";
        assert_eq!(of_pip(&spec(""), "", none).exists, Some(false));
        let broken = "Could not fetch URL x: connection error: refused - skipping\n\
                      ERROR: No matching distribution found for six";
        assert_eq!(of_pip(&spec(""), "", broken).exists, None);
        let unfit = "ERROR: No matching distribution found for six";
        assert_eq!(of_pip(&spec(""), "", unfit).exists, Some(true));
        assert_eq!(of_pip(&spec(""), "", "").exists, None);
    }

    #[test]
    fn apt_tells_versions_absence_and_trouble_apart() {
        let found = "asked\n six | 1.17.0-2 | x stable/main\n six | 1.16.0-4 | x old/main\n";
        let answer = of_apt(&spec("1.16.0-4"), found);
        assert_eq!((answer.latest.as_str(), answer.version.as_str()), ("1.17.0-2", "1.16.0-4"));
        assert_eq!(of_apt(&spec(""), "asked\n").exists, Some(false));
        assert_eq!(of_apt(&spec(""), "").exists, None);
    }

    #[test]
    fn npm_tells_versions_absence_and_trouble_apart() {
        let found = r#"{"dist-tags": {"latest": "2.0.0"}, "versions": ["1.0.0", "2.0.0"]}"#;
        let answer = of_npm(&spec("1.0.0"), found);
        assert_eq!((answer.latest.as_str(), answer.version.as_str()), ("2.0.0", "1.0.0"));
        let only = r#"{"dist-tags": {"latest": "1.0.0"}, "versions": "1.0.0"}"#;
        assert_eq!(of_npm(&spec("1.0.0"), only).version, "1.0.0");
        assert_eq!(of_npm(&spec(""), r#"{"error": {"code": "E404"}}"#).exists, Some(false));
        assert_eq!(of_npm(&spec(""), r#"{"error": {"code": "ECONNREFUSED"}}"#).exists, None);
        assert_eq!(of_npm(&spec(""), "").exists, None);
    }
}
