//! The verdict of each number from 0 to 600, by running the filter's bytes, against a file that a
//! person has read. After a change of the tables:
//! `HANGAR_GOLDEN=write cargo test -p hangar-seccomp --release --test filters golden`, and read the difference.

use crate::examples::EXAMPLES;
use crate::interpreter::{Call, I386, X32, run, verdict};
use hangar_seccomp::{Profile, Verdict, program, rows, topics};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

const LAST_NUMBER: u32 = 600;
/// The last number a table has to know. Newer ones are refused as unknown.
const LAST_KNOWN: u32 = 470;

fn golden_text(profile: Profile) -> String {
    let program = program(profile).unwrap();
    let names: BTreeMap<u32, &str> =
        rows(Profile::Command).iter().map(|row| (row.number, row.name)).collect();
    let mut text = String::new();
    for number in 0..=LAST_NUMBER {
        let call = Call::new(number, [0; 6]);
        let by_arguments = program.filters.iter().any(|filter| run(filter, &call).by_arguments);
        let words = if by_arguments { "by arguments".to_owned() } else { verdict(&program, &call) };
        text += &format!("{number} {} {words}\n", names.get(&number).unwrap_or(&"-"));
    }
    for example in EXAMPLES {
        let words = verdict(&program, &Call::new(example.number(), example.arguments));
        text += &format!("{} ({}) {words}\n", example.name, example.what);
    }
    text
}

#[test]
fn every_number_has_the_verdict_of_the_golden_file() {
    for profile in Profile::ALL {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("golden")
            .join(format!("{}.txt", profile.name()));
        let text = golden_text(profile);
        if std::env::var_os("HANGAR_GOLDEN").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap();
        for (line, golden) in text.lines().zip(golden.lines()) {
            assert_eq!(line, golden, "{}", path.display());
        }
        assert_eq!(text.len(), golden.len(), "{}", path.display());
    }
}

#[test]
fn examples_have_the_verdict_that_stands_beside_them() {
    for profile in Profile::ALL {
        let program = program(profile).unwrap();
        for example in EXAMPLES {
            let words = verdict(&program, &Call::new(example.number(), example.arguments));
            let what = format!("{}: {} ({})", profile.name(), example.name, example.what);
            assert_eq!(words, example.expected(profile), "{what}");
        }
    }
}

#[test]
fn each_row_that_looks_at_arguments_has_an_example_of_both_outcomes() {
    for profile in Profile::ALL {
        for row in rows(profile) {
            if let Verdict::Allow | Verdict::Refuse(_) = row.verdict {
                continue;
            }
            let outcomes: BTreeSet<bool> = EXAMPLES
                .iter()
                .filter(|example| example.name == row.name)
                .map(|example| example.expected(profile) == "allow")
                .collect();
            assert_eq!(outcomes.len(), 2, "{}: {}", profile.name(), row.name);
        }
    }
}

#[test]
fn the_command_tables_name_each_number_once_with_a_reason() {
    let mut seen = BTreeMap::new();
    for row in topics(Profile::Command).iter().flat_map(|topic| topic.rows) {
        assert!(!row.reason.is_empty(), "{} has no reason", row.name);
        if let Some(before) = seen.insert(row.number, row.name) {
            panic!("{} is both {before} and {}", row.number, row.name);
        }
    }
    let unassigned = 337..=423;
    for number in (0..=LAST_KNOWN).filter(|number| !unassigned.contains(number)) {
        assert!(seen.contains_key(&number), "number {number} is in no table");
    }
}

/// Filters add up, so whatever init's refuses is lost to its commands too.
#[test]
fn init_allows_all_that_commands_may_do() {
    let (init, command) = (program(Profile::Init).unwrap(), program(Profile::Command).unwrap());
    let plain = (0..=LAST_NUMBER).map(|number| Call::new(number, [0; 6]));
    let with_arguments = EXAMPLES.iter().map(|e| Call::new(e.number(), e.arguments));
    for call in plain.chain(with_arguments) {
        if verdict(&command, &call) == "allow" {
            assert_eq!(verdict(&init, &call), "allow", "{call:?}");
        }
    }
}

#[test]
fn other_calling_conventions_end_the_process() {
    for profile in Profile::ALL {
        let program = program(profile).unwrap();
        for number in (0..=LAST_NUMBER).chain([X32 - 1, 0x7fff_ffff, u32::MAX]) {
            let foreign = Call { number, arch: I386, arguments: [0; 6] };
            assert_eq!(verdict(&program, &foreign), "kill", "32-bit call {number}");
        }
        for number in (0..=LAST_NUMBER).map(|number| X32 | number).chain([u32::MAX - 1]) {
            assert_eq!(verdict(&program, &Call::new(number, [0; 6])), "kill", "x32 {number:#x}");
        }
        // A tracer's "leave this call out" has to reach the tracer.
        assert_eq!(verdict(&program, &Call::new(u32::MAX, [0; 6])), "allow");
        assert_eq!(verdict(&program, &Call::new(X32 - 1, [0; 6])), "ENOSYS");
    }
}

/// The kernel runs every number through a filter when it is installed, so length is launch time.
#[test]
fn programs_are_short_to_run() {
    for profile in Profile::ALL {
        let program = program(profile).unwrap();
        let length: usize = program.filters.iter().map(Vec::len).sum();
        let steps = (0..=LAST_NUMBER)
            .map(|number| run(&program.filters[0], &Call::new(number, [0; 6])))
            .filter(|run| !run.by_arguments)
            .map(|run| run.steps)
            .max()
            .unwrap();
        assert!(length < 700, "{}: {length} instructions", profile.name());
        assert!(steps < 24, "{}: {steps} steps", profile.name());
    }
}

#[test]
fn digests_tell_programs_apart() {
    let digests: BTreeSet<String> =
        Profile::ALL.map(|profile| program(profile).unwrap().digest()).into();
    assert_eq!(digests.len(), 3);
    assert_eq!(program(Profile::Init).unwrap(), program(Profile::Init).unwrap());
}

#[test]
fn the_document_has_a_line_for_each_row() {
    for profile in Profile::ALL {
        let text = hangar_seccomp::markdown(profile);
        for row in topics(profile).iter().flat_map(|topic| topic.rows) {
            assert!(text.contains(&format!("| {} | `{}` |", row.number, row.name)), "{}", row.name);
        }
    }
}
