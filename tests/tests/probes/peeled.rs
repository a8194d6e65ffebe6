//! Barriers taken away: with all of them gone the attack succeeds, and each refuses it alone.

use crate::controls::{self, Control};
use crate::ground;
use hangar_probe::catalogue::{Probe, is_expected};
use hangar_tests::host::Host;
use hangar_tests::probing::{Run, run};

pub fn holds(probe: &Probe) {
    ground::holds(probe.id);
    if let Some(control) = controls::of(probe.id) {
        all_barriers_gone(probe, control);
        for (kept, expected) in control.alone {
            barrier_alone(probe, control, kept, expected);
        }
    }
}

fn all_barriers_gone(probe: &Probe, control: &Control) {
    let run = run(probe, probe.steps, control.owner);
    let id = probe.id;
    assert_eq!(run.outcome.error, None, "{id} without its barriers");
    let still = |name: &str| expectation(control.still, name).unwrap_or("ok");
    let named = control.still.iter().map(|(name, _)| *name).filter(|name| *name != ANY);
    let tried = probe.attempts.iter().map(|attempt| attempt.name).filter(|name| has(&run, name));
    for name in named.chain(tried) {
        let got = run.results.get(name).map_or("not tried", String::as_str);
        let expected = still(name);
        assert!(
            is_expected(expected, got),
            "{id} without its barriers: {name}: {got}, not {expected}"
        );
    }
    // Even then what happens in a session stays in its namespaces.
    let place = run.place.path().to_string_lossy().into_owned();
    assert!(!Host::look().mounts.iter().any(|mount| mount.contains(&place)), "{id}: a mount");
    let worked = run.results.values().any(|result| result == "ok");
    assert!(worked, "{id} without its barriers harms nobody: {:?}", run.results);
}

fn has(run: &Run, name: &str) -> bool {
    run.results.contains_key(name)
}

/// Stands for every attempt that is not named.
const ANY: &str = "*";

fn expectation(list: &[(&str, &'static str)], name: &str) -> Option<&'static str> {
    let of = |wanted: &str| list.iter().find(|(known, _)| *known == wanted).map(|(_, got)| *got);
    of(name).or_else(|| of(ANY))
}

/// Some of a probe's barriers, most often one; several are joined by `+`.
fn barrier_alone(
    probe: &Probe,
    control: &Control,
    kept: &str,
    expected: &'static [(&'static str, &'static str)],
) {
    let id = probe.id;
    let kept: Vec<&str> = kept.split('+').collect();
    let unknown = kept.iter().find(|step| !probe.steps.contains(step));
    assert!(unknown.is_none(), "{id}: {unknown:?} is no barrier of it");
    let without: Vec<&str> =
        probe.steps.iter().copied().filter(|step| !kept.contains(step)).collect();
    let run = run(probe, &without, control.owner);
    assert_eq!(run.outcome.error, None, "{id} with {kept:?} alone");
    // Before ABI 6 Landlock has no scopes; the other barrier of P060 is the namespace.
    if id == "P060" && kept == ["enforce-landlock"] && run.outcome.proofs[0].landlock.abi < 6 {
        return;
    }
    let attempts: Vec<&str> = match expected.iter().any(|(name, _)| *name == ANY) {
        true => probe.attempts.iter().map(|attempt| attempt.name).collect(),
        false => expected.iter().map(|(name, _)| *name).collect(),
    };
    for name in attempts {
        let wanted = expectation(expected, name).expect("named, or any");
        let got = run.results.get(name).map_or("not tried", String::as_str);
        assert!(is_expected(wanted, got), "{id} with {kept:?} alone: {name}: {got}, not {wanted}");
    }
}
