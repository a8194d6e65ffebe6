//! What this host enforces and what it lacks, told by trying.

mod host;
mod settings;
mod trial;

pub use trial::Images;

use std::fmt;
use std::path::Path;

/// How a finding bears on sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was tried and works, or the setting is the safe one.
    Good,
    /// Sessions run; something is weaker than it could be.
    Weaker,
    /// Without it there are no sessions, or no builds of a kind.
    Lacking,
}

impl Verdict {
    /// The word that stands in the report.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Weaker => "weaker",
            Self::Lacking => "LACKING",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What, in a few words.
    pub name: &'static str,
    /// How it bears on sessions.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What to do about it; empty when nothing is to be done.
    pub remedy: String,
}

impl Finding {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Good, found: found.into(), remedy: String::new() }
    }

    fn weaker(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Weaker, found: found.into(), remedy: remedy.into() }
    }

    fn lacking(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Lacking, found: found.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8} {:<28} {}", self.verdict.word(), self.name, self.found)?;
        if !self.remedy.is_empty() {
            write!(f, "\n{:<37} -> {}", "", self.remedy)?;
        }
        Ok(())
    }
}

/// Looks at everything. As root it launches a session below the state directory and takes it
/// down again; the process must have one thread, and its mount namespace is changed.
#[must_use]
pub fn examine(state_dir: &Path, images: Images<'_>) -> Vec<Finding> {
    let mut findings = host::findings();
    findings.extend(settings::findings());
    findings.extend(trial::findings(state_dir, images));
    findings
}
