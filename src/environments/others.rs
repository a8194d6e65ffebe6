//! Manifests beside those of Python and Node: declared Debian packages, `Cargo.toml`, `go.mod`,
//! `Gemfile.lock`.

use super::installers::Installer;
use super::manifests::{Files, Kept};
use std::collections::BTreeMap;

/// What one of these installers is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Which one.
    pub installer: Installer,
    /// Packages the owner named; only apt has such.
    pub declared: Vec<String>,
    /// There is a lock file.
    pub locked: bool,
    /// What it would download lies in the source, and is used from there.
    pub vendored: bool,
    /// Whether what it installs can be kept, and by what.
    pub kept: Kept,
}

/// Where each of them puts what it installs, at the root of the version.
#[must_use]
pub fn directory(installer: Installer) -> &'static str {
    match installer {
        Installer::Apt => "apt",
        Installer::Cargo => ".cargo-vendor",
        Installer::Go => ".go-modules",
        Installer::Bundler => ".gems",
        Installer::Npm | Installer::Pnpm | Installer::Yarn | Installer::YarnBerry => "node_modules",
        Installer::Pip | Installer::Uv | Installer::Poetry => ".venv",
    }
}

/// Reads the manifests, in the order in which they are acted on.
#[must_use]
pub fn detect(files: Files<'_>, apt: &[String]) -> Vec<Other> {
    [debian(apt), cargo(files), go(files), gems(files)].into_iter().flatten().collect()
}

/// The inputs of a name each, where all of them are there.
fn inputs(files: Files<'_>, names: &[&str]) -> BTreeMap<String, Vec<u8>> {
    names.iter().filter_map(|name| Some(((*name).to_owned(), files(name)?))).collect()
}

fn debian(declared: &[String]) -> Option<Other> {
    (!declared.is_empty()).then(|| {
        let listed = ("declared".to_owned(), declared.join("\n").into_bytes());
        Other {
            installer: Installer::Apt,
            declared: declared.to_vec(),
            locked: false,
            vendored: false,
            kept: Kept::By(BTreeMap::from([listed])),
        }
    })
}

/// Whether a text names one Debian package as apt takes it: a name, and perhaps an architecture
/// and a version or release. Anything else could be an option or an order to remove packages.
#[must_use]
pub fn is_debian_package(text: &str) -> bool {
    let split = text.find(['=', '/']).unwrap_or(text.len());
    let (name, rest) = text.split_at(split);
    let (name, architecture) = name.split_once(':').map_or((name, None), |(n, a)| (n, Some(a)));
    let plain = |text: &str, more: &[char]| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
    };
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && plain(name, &['+', '-', '.'])
        && !name.ends_with('-')
        && architecture.is_none_or(|text| plain(text, &['-']))
        && (rest.is_empty() || plain(&rest[1..], &['.', '+', '-', ':', '~']))
}

/// What `go mod vendor` writes beside the modules it copies into a project.
pub const GO_VENDOR: &str = "vendor/modules.txt";

fn cargo(files: Files<'_>) -> Option<Other> {
    files("Cargo.toml")?;
    let lock = files("Cargo.lock");
    let kept = match &lock {
        None => Kept::Never("there is no Cargo.lock"),
        Some(_) => Kept::By(inputs(
            files,
            &["Cargo.lock", "Cargo.toml", ".cargo/config.toml", ".cargo/config"],
        )),
    };
    let installer = Installer::Cargo;
    let locked = lock.is_some();
    Some(Other { installer, declared: Vec::new(), locked, vendored: false, kept })
}

fn go(files: Files<'_>) -> Option<Other> {
    let module = files("go.mod")?;
    // `replace a => ./b`: then what is needed stands in files of the source.
    let text = String::from_utf8_lossy(&module).into_owned();
    let local = text.lines().filter_map(|line| line.split_once("=>")).any(|(_, to)| {
        let to = to.trim();
        to.starts_with("./") || to.starts_with("../") || to.starts_with('/')
    });
    let vendored = files(GO_VENDOR).is_some();
    let kept = match (local, files("go.work").is_some()) {
        _ if vendored => Kept::Never("the modules lie in vendor"),
        (true, _) => Kept::Never("go.mod replaces a module by a local directory"),
        (_, true) => Kept::Never("there is a go.work"),
        _ => Kept::By(inputs(files, &["go.mod", "go.sum"])),
    };
    let locked = files("go.sum").is_some();
    Some(Other { installer: Installer::Go, declared: Vec::new(), locked, vendored, kept })
}

fn gems(files: Files<'_>) -> Option<Other> {
    let lock = files("Gemfile.lock")?;
    files("Gemfile")?;
    let text = String::from_utf8_lossy(&lock).into_owned();
    let kept = match text.lines().any(|line| line == "PATH") {
        true => Kept::Never("the lock refers to local gems"),
        false if brings_a_gem(&text, files) => Kept::Never("gems lie in vendor/cache"),
        false => Kept::By(inputs(files, &["Gemfile", "Gemfile.lock", ".ruby-version"])),
    };
    let (installer, declared) = (Installer::Bundler, Vec::new());
    Some(Other { installer, declared, locked: true, vendored: false, kept })
}

/// Whether the project has a gem of its lock (`    NAME (VERSION)`) with it, as `bundle cache` does.
fn brings_a_gem(lock: &str, files: Files<'_>) -> bool {
    lock.lines().any(|line| {
        let gem = line.strip_prefix("    ").and_then(|line| line.strip_suffix(')'));
        let gem = gem.filter(|gem| !gem.starts_with(' ')).and_then(|gem| gem.split_once(" ("));
        gem.is_some_and(|(name, version)| {
            files(&format!("vendor/cache/{name}-{version}.gem")).is_some()
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detected(files: &[(&str, &str)]) -> Vec<Other> {
        let read = |name: &str| {
            files.iter().find(|(path, _)| *path == name).map(|(_, text)| text.as_bytes().to_vec())
        };
        detect(&read, &[])
    }

    #[test]
    fn only_names_of_packages_are_taken_for_debian_packages() {
        for good in ["jq", "libc6-dev", "g++", "python3.11", "jq:amd64", "jq=1.6-2.1", "jq/stable"]
        {
            assert!(is_debian_package(good), "{good}");
        }
        for bad in ["", "-y", "--force-yes", "jq-", "a b", "../x", "jq;ls", "JQ", "jq="] {
            assert!(!is_debian_package(bad), "{bad}");
        }
    }

    #[test]
    fn what_refers_to_the_source_is_never_kept() {
        for files in [
            &[("Cargo.toml", "")][..],
            &[("go.mod", "module x\nreplace a => ./a\n")],
            &[("go.mod", "module x\n"), ("go.work", "")],
            &[("go.mod", "module x\n"), (GO_VENDOR, "# a v1.0.0\n")],
            &[("Gemfile", ""), ("Gemfile.lock", "PATH\n  remote: .\n")],
            &[
                ("Gemfile", ""),
                ("Gemfile.lock", "GEM\n  specs:\n    a (1.0-x86_64-linux)\n      b (>= 1)\n"),
                ("vendor/cache/a-1.0-x86_64-linux.gem", ""),
            ],
        ] {
            assert!(matches!(detected(files)[0].kept, Kept::Never(_)), "{files:?}");
        }
    }

    #[test]
    fn what_a_lock_names_is_kept_by_the_lock() {
        for files in [
            &[("Cargo.toml", ""), ("Cargo.lock", "version = 3")][..],
            &[("go.mod", "module x\nreplace a => b v1.0.0\n"), ("go.sum", "")],
            &[("Gemfile", ""), ("Gemfile.lock", "GEM\n")],
        ] {
            let Kept::By(inputs) = &detected(files)[0].kept else { panic!("{files:?}") };
            assert_eq!(inputs.len(), 2);
        }
        assert!(detected(&[("Gemfile", "")]).is_empty(), "nothing is locked");
    }
}
