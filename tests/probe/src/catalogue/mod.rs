//! The catalogue: every probe, what each attempt gives in a strict session, and which steps of the
//! launch stand in its way.
//!
//! An expectation names every outcome that is a refusal; `none` means that a search found nothing
//! or an effect did not come. Steps are the names of the launch table; with all of a probe's
//! `steps` left out the attack succeeds, unless `beyond` says what else refuses it. For steps in
//! `needed` the positive control is the same probe on the host, without any session.

mod files;
mod identity;
mod mounts;
mod sessions;
mod system_calls;

use crate::report::Report;

/// One attempt of a probe.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    /// Its name in the report.
    pub name: &'static str,
    /// The results a strict session may give, separated by `|`.
    pub expected: &'static str,
}

/// One probe.
#[derive(Clone, Copy)]
pub struct Probe {
    /// Its id, such as `P021b`.
    pub id: &'static str,
    /// What it tries.
    pub title: &'static str,
    /// What it is made of.
    pub attempts: &'static [Attempt],
    /// Steps of the launch that stand in its way, the one that refuses first in front.
    pub steps: &'static [&'static str],
    /// Steps in its way that no launch can do without, so that leaving them out proves nothing.
    pub needed: &'static [&'static str],
    /// What stands in its way besides the steps: the kernel itself, or something only the host
    /// can compare.
    pub beyond: &'static str,
    /// Runs it.
    pub run: fn(&Report),
}

/// An attempt and its results.
const fn attempt(name: &'static str, expected: &'static str) -> Attempt {
    Attempt { name, expected }
}

/// All probes, by id.
pub const CATALOGUE: &[&[Probe]] = &[
    files::FILES,
    mounts::MOUNTS,
    identity::IDENTITY,
    identity::PROC,
    system_calls::SECCOMP,
    system_calls::LANDLOCK,
    sessions::CROSS,
    sessions::SETUP,
];

/// All probes.
pub fn probes() -> impl Iterator<Item = &'static Probe> {
    CATALOGUE.iter().copied().flatten()
}

/// The probe with this id.
pub fn probe(id: &str) -> Option<&'static Probe> {
    probes().find(|probe| probe.id == id)
}

impl Probe {
    /// What a strict session may give for an attempt; `None` for one that is not listed.
    pub fn expected(&self, attempt: &str) -> Option<&'static str> {
        self.attempts.iter().find(|known| known.name == attempt).map(|known| known.expected)
    }
}

/// Whether a result is one of the expected ones. A result of many like attempts, such as
/// `EINVAL+EPERM`, is when each part is; `*` takes all.
pub fn is_expected(expected: &str, result: &str) -> bool {
    let one = |part: &str| expected.split('|').any(|known| known == "*" || known == part);
    result.split('+').all(one)
}
