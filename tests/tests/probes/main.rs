//! Every probe of the catalogue in a strict session, and what each barrier is worth.
//!
//! A probe has three parts. In a strict session every attempt gives what the catalogue expects,
//! and the host is as it was. With all barriers left out the attack succeeds, else the refusal
//! would prove nothing. And each barrier refuses it alone.

mod api;
mod controls;
mod ground;
mod host;
mod peeled;
mod races;
mod strict;

use hangar_probe::catalogue::{Probe, probe, probes};
use std::collections::BTreeSet;

/// One test for each probe; a listed id without one does not compile.
macro_rules! probes {
    ($($name:ident $id:literal)*) => {
        const TESTED: &[&str] = &[$($id),*];
        $(
            #[test]
            fn $name() {
                let probe = known($id);
                strict::holds(probe);
                peeled::holds(probe);
            }
        )*
    };
}

probes! {
    p001 "P001" p002 "P002" p003 "P003" p004 "P004" p005 "P005" p006 "P006" p007 "P007"
    p008 "P008" p009 "P009" p010 "P010" p011 "P011" p012 "P012"
    p013 "P013" p014 "P014" p015 "P015" p016 "P016" p017 "P017" p018 "P018" p019 "P019"
    p020 "P020" p021 "P021" p021b "P021b" p021c "P021c"
    p022 "P022" p023 "P023" p024 "P024" p025 "P025" p026 "P026" p027 "P027" p028 "P028"
    p029 "P029" p030 "P030" p031 "P031" p032 "P032" p033 "P033" p034 "P034" p035 "P035"
    p036 "P036" p037 "P037" p038 "P038" p039 "P039" p040 "P040"
    p041 "P041" p041b "P041b" p041c "P041c"
    p042 "P042" p043 "P043" p044 "P044" p045 "P045" p045b "P045b" p045c "P045c"
    p053 "P053" p054 "P054" p055 "P055" p056 "P056" p057 "P057" p058 "P058" p059 "P059"
    p060 "P060" p061 "P061" p062 "P062" p063 "P063" p063b "P063b"
    p064 "P064" p065 "P065" p066 "P066" p067 "P067" p068 "P068" p069 "P069" p070 "P070"
    p071 "P071" p072 "P072" p073 "P073"
}

/// The ids that have to be tested: a range of numbers, and those with letters.
const NUMBERS: [(u32, u32); 2] = [(1, 45), (53, 73)];
const LETTERS: [&str; 7] = ["P021b", "P021c", "P041b", "P041c", "P045b", "P045c", "P063b"];

const _: () = {
    let mut range = 0;
    let mut count = LETTERS.len();
    while range < NUMBERS.len() {
        let (mut number, last) = NUMBERS[range];
        while number <= last {
            let digits = [number / 100, number / 10 % 10, number % 10];
            let text = [b'0' + digits[0] as u8, b'0' + digits[1] as u8, b'0' + digits[2] as u8];
            assert!(is_tested(&[b'P', text[0], text[1], text[2]]), "a listed probe has no test");
            number += 1;
            count += 1;
        }
        range += 1;
    }
    let mut letter = 0;
    while letter < LETTERS.len() {
        assert!(is_tested(LETTERS[letter].as_bytes()), "a listed probe has no test");
        letter += 1;
    }
    assert!(TESTED.len() == count, "a test is about no listed probe");
};

const fn is_tested(id: &[u8]) -> bool {
    let mut at = 0;
    while at < TESTED.len() {
        let tested = TESTED[at].as_bytes();
        let mut byte = 0;
        while byte < id.len() && id.len() == tested.len() && id[byte] == tested[byte] {
            byte += 1;
        }
        if byte == id.len() && byte == tested.len() {
            return true;
        }
        at += 1;
    }
    false
}

fn known(id: &str) -> &'static Probe {
    probe(id).unwrap_or_else(|| panic!("{id} is not in the catalogue"))
}

#[test]
fn the_catalogue_has_every_listed_probe_and_no_other() {
    let catalogue: BTreeSet<&str> = probes().map(|probe| probe.id).collect();
    assert_eq!(catalogue, TESTED.iter().copied().collect());
}

/// Probes that attack nothing: legitimate twins, and facts that the host compares.
const NO_ATTACK: [(&str, &str); 12] = [
    ("P012", "host::the_environment_is_the_same_after_all_probes"),
    ("P025", "host::what_a_session_makes_belongs_to_its_block"),
    ("P037", "a kernel without x32 has nothing to refuse"),
    ("P043", "host::an_older_landlock_is_refused"),
    ("P044", "a twin: other mounts are no directories of the session"),
    ("P045b", "a twin: the kernel's own limit"),
    ("P055", "host::two_sessions_have_no_id_in_common"),
    ("P058", "a twin: the other session gets its own"),
    ("P065", "races::no_exchange_gets_a_session_anything_but_its_version"),
    ("P067", "races::no_working_directory_leads_out"),
    ("P072", "api::a_hostile_working_directory"),
    ("P073", "api::no_tool_of_the_host_runs_in_a_working_directory"),
];

/// A refusal says something only where the same attack can succeed.
#[test]
fn every_attack_succeeds_somewhere() {
    for probe in probes() {
        let excused = NO_ATTACK.iter().any(|(id, _)| *id == probe.id);
        let peeled = controls::of(probe.id).is_some();
        assert!(excused || peeled || ground::has(probe.id), "{} has no control", probe.id);
    }
}
