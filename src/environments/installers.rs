//! The installers a build can run, and the programs they need.

use std::fmt;

/// One installer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Installer {
    /// pip, in a virtual environment.
    Pip,
    /// uv, from `uv.lock`.
    Uv,
    /// Poetry, from `poetry.lock`.
    Poetry,
    /// npm.
    Npm,
    /// pnpm, from `pnpm-lock.yaml`.
    Pnpm,
    /// Yarn 1, from a `yarn.lock` of its format.
    Yarn,
    /// Yarn 2 or newer, from a `yarn.lock` of its format.
    YarnBerry,
    /// apt and dpkg: Debian packages, unpacked beside the project.
    Apt,
    /// Cargo: crates, vendored.
    Cargo,
    /// Go: modules, in a cache of their own.
    Go,
    /// Bundler: gems.
    Bundler,
}

impl Installer {
    /// As logs and records name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pip => "pip",
            Self::Uv => "uv",
            Self::Poetry => "poetry",
            Self::Npm => "npm",
            Self::Pnpm => "pnpm",
            Self::Yarn | Self::YarnBerry => "yarn",
            Self::Apt => "apt",
            Self::Cargo => "cargo",
            Self::Go => "go",
            Self::Bundler => "bundler",
        }
    }

    /// The programs of the toolchain it cannot do without.
    #[must_use]
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Pip => &["python3"],
            Self::Uv => &["uv", "python3"],
            Self::Poetry => &["poetry", "python3"],
            Self::Npm => &["npm"],
            Self::Pnpm => &["pnpm"],
            Self::Yarn | Self::YarnBerry => &["yarn"],
            Self::Apt => &["apt-get", "dpkg-deb", "python3"],
            Self::Cargo => &["cargo", "python3"],
            Self::Go => &["go"],
            Self::Bundler => &["bundle"],
        }
    }

    /// The file or list that asks for it.
    #[must_use]
    pub fn asked_by(self) -> &'static str {
        match self {
            Self::Pip => "a Python manifest",
            Self::Uv => "uv.lock",
            Self::Poetry => "poetry.lock",
            Self::Npm => "package.json",
            Self::Pnpm => "pnpm-lock.yaml",
            Self::Yarn | Self::YarnBerry => "yarn.lock",
            Self::Apt => "the declared apt packages",
            Self::Cargo => "Cargo.toml",
            Self::Go => "go.mod",
            Self::Bundler => "Gemfile.lock",
        }
    }
}

impl fmt::Display for Installer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
