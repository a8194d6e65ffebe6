//! Test only: launches sessions with steps left out, or with an init that lies.
//!
//! The shipped warden and init pass the constant table of steps; this program passes a filtered
//! one, on both sides. So a test can show that a barrier holds alone, and that an attack works
//! once all of its barriers are gone.

#![forbid(unsafe_code)]

mod run;

use hangar_peel::liar;
use hangar_peel::spec::{Outcome, Spec};
use hangar_runtime::steps::{LAUNCH, Step};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments[0] == "hangar-init" {
        return init(&arguments[1..]);
    }
    let spec: Spec = serde_json::from_str(&arguments[1]).expect("the argument is a spec");
    let outcome = run::run(&spec)
        .unwrap_or_else(|error| Outcome { error: Some(error.to_string()), ..Outcome::default() });
    println!("{}", serde_json::to_string(&outcome).expect("an outcome is JSON"));
    ExitCode::SUCCESS
}

/// As init: every argument but `lie=FIELD` names a step to leave out.
fn init(arguments: &[String]) -> ExitCode {
    let steps = without(arguments);
    let lie = arguments.iter().find_map(|argument| argument.strip_prefix("lie="));
    let control = hangar_runtime::init::control_socket().expect("the launcher left the socket");
    match hangar_runtime::init::run(&steps, control, |record| liar::tell(record, lie)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The launch without some of its steps; an unknown name is a mistake of the test.
fn without(names: &[String]) -> Vec<Step> {
    for name in names.iter().filter(|name| !name.starts_with("lie=")) {
        assert!(LAUNCH.iter().any(|step| step.name == name), "no step is named {name}");
    }
    LAUNCH.iter().filter(|step| !names.iter().any(|name| name == step.name)).copied().collect()
}
