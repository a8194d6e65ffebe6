//! The bill of materials of a version: CycloneDX 1.5, from what the installers reported.
//!
//! The same version always gives the same bytes: the serial number comes from its root digest and
//! the time is that of its end.

use crate::store::{EnvironmentRow, PackageRow, VersionRow};
use serde_json::{Value, json};

/// The media type of the document.
pub const CONTENT_TYPE: &str = "application/vnd.cyclonedx+json; version=1.5";

/// The document.
#[must_use]
pub fn cyclonedx(environment: &EnvironmentRow, version: &VersionRow) -> Value {
    let digest = version.root_digest.as_deref().unwrap_or_default();
    let number = version.number.0.get().to_string();
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": format!("urn:uuid:{}", uuid(digest)),
        "version": 1,
        "metadata": {
            "timestamp": timestamp(version.finished_s.unwrap_or(version.started_s)),
            "tools": { "components": [{
                "type": "application", "name": "hangar", "version": env!("CARGO_PKG_VERSION"),
            }] },
            "component": {
                "type": "application",
                "bom-ref": "version",
                "name": environment.slug,
                "version": number,
                "description": environment.description,
                "properties": [
                    { "name": "hangar:environment", "value": environment.id },
                    { "name": "hangar:root-digest", "value": digest },
                    { "name": "hangar:source-digest", "value": version.source_digest },
                    { "name": "hangar:toolchain", "value": version.toolchain },
                ],
            },
        },
        "components": version.packages.iter().map(component).collect::<Vec<_>>(),
    })
}

fn component(package: &PackageRow) -> Value {
    let purl = purl(package);
    // npm's scopes are groups, and Go's and npm's slashes are parts of the name.
    let (group, name) = match (package.manager.as_str(), package.name.split_once('/')) {
        ("npm", Some((scope, name))) => (Some(scope), name),
        _ => (None, package.name.as_str()),
    };
    let mut component = json!({
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": package.version,
        "purl": purl,
        "properties": [{ "name": "hangar:manager", "value": package.manager }],
    });
    if let Some(group) = group {
        component["group"] = json!(group);
    }
    component
}

/// A package URL, by the rules of its type.
#[must_use]
pub fn purl(package: &PackageRow) -> String {
    let version = encoded(&package.version);
    let (kind, name) = match package.manager.as_str() {
        // Names are the same in any case and with any of these characters.
        "pip" => ("pypi", encoded(&package.name.to_lowercase().replace(['_', '.'], "-"))),
        "apt" => ("deb/debian", encoded(&package.name)),
        "go" => ("golang", path(&package.name.to_lowercase())),
        "npm" => ("npm", path(&package.name)),
        other => (other, encoded(&package.name)),
    };
    format!("pkg:{kind}/{name}@{version}")
}

fn path(name: &str) -> String {
    name.split('/').map(encoded).collect::<Vec<_>>().join("/")
}

fn encoded(text: &str) -> String {
    use std::fmt::Write;
    text.bytes().fold(String::new(), |mut all, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' | b':' => {
                all.push(char::from(byte));
            }
            _ => write!(all, "%{byte:02X}").expect("a string takes everything"),
        }
        all
    })
}

/// A UUID (version 8) from the first digits of a digest.
fn uuid(digest: &str) -> String {
    let mut digits: Vec<char> = digest
        .chars()
        .filter(char::is_ascii_hexdigit)
        .chain("0".repeat(32).chars())
        .take(32)
        .collect();
    (digits[12], digits[16]) = ('8', '8');
    let part = |from: usize, to: usize| digits[from..to].iter().collect::<String>();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

/// Seconds since 1970 as RFC 3339.
fn timestamp(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Howard Hinnant's `civil_from_days`: years begin in March, so that leap days come last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_urls_follow_the_rules_of_their_type() {
        for (manager, name, version, expected) in [
            ("pip", "Typing_Extensions", "4.1", "pkg:pypi/typing-extensions@4.1"),
            ("npm", "@img/sharp-linux-x64", "0.34.0", "pkg:npm/%40img/sharp-linux-x64@0.34.0"),
            ("apt", "libstdc++6", "1:2+b1", "pkg:deb/debian/libstdc%2B%2B6@1:2%2Bb1"),
            ("cargo", "serde", "1.0.1", "pkg:cargo/serde@1.0.1"),
            ("go", "golang.org/x/text", "v0.3.0", "pkg:golang/golang.org/x/text@v0.3.0"),
            ("gem", "rake", "13.0.6", "pkg:gem/rake@13.0.6"),
        ] {
            let [manager, name, version] = [manager, name, version].map(str::to_owned);
            assert_eq!(purl(&PackageRow { manager, name, version }), expected);
        }
    }

    #[test]
    fn times_and_serial_numbers_are_well_formed() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_798_761_599), "2026-12-31T23:59:59Z");
        assert_eq!(uuid(&"f".repeat(64)), "ffffffff-ffff-8fff-8fff-ffffffffffff");
        assert_eq!(uuid(""), "00000000-0000-8000-8000-000000000000");
    }
}
