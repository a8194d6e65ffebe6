//! The launch itself: what a session is, and that a lie about it is found out.

use hangar_peel::liar::LIES;
use hangar_peel::spec::{Command, Session, Spec};
use hangar_runtime::steps::LAUNCH;
use hangar_tests::{host::Host, peel, scratch, tree};

fn spec(directory: &std::path::Path) -> Spec {
    Spec { directory: directory.to_owned(), sessions: vec![Session::default()], ..Spec::default() }
}

#[test]
fn a_session_has_namespaces_of_its_own_and_exactly_its_capabilities() {
    let scratch = scratch();
    let before = Host::look();
    let outcome = peel(&Spec {
        commands: vec![Command {
            arguments: vec![
                "grep".into(),
                "-E".into(),
                "Cap|Groups".into(),
                "/proc/self/status".into(),
            ],
            ..Command::default()
        }],
        ..spec(scratch.path())
    });
    assert_eq!(outcome.error, None);
    let proof = &outcome.proofs[0];
    assert_eq!(proof.namespaces.len(), 7);
    for (name, number) in &proof.namespaces {
        let own = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        assert!(!own.to_string_lossy().contains(&number.to_string()), "{name} is shared");
    }
    // KILL, SETGID and SETUID are capabilities 5, 6 and 7.
    assert_eq!(proof.capabilities.effective, 0b1110_0000);
    assert_eq!(proof.capabilities.permitted, 0b1110_0000);
    assert_eq!(proof.capabilities.bounding, 0);
    assert!(proof.landlock.fully_enforced && proof.no_new_privs);
    let sets = &outcome.commands[0].stdout;
    assert_eq!(sets.matches("0000000000000000").count(), 5, "a command has a capability: {sets}");
    assert_eq!(outcome.left, Vec::<String>::new());
    assert_eq!(Host::look(), before);
}

#[test]
fn an_init_that_lies_is_killed_and_the_field_is_named() {
    for lie in LIES {
        let scratch = scratch();
        let outcome = peel(&Spec { lie: Some((*lie).to_owned()), ..spec(scratch.path()) });
        let error = outcome.error.unwrap_or_else(|| panic!("the lie about {lie} was believed"));
        let field = lie.split('.').next().unwrap();
        assert!(error.contains(&format!("check-proof: {field}")), "{lie}: {error}");
        assert!(outcome.inits.is_empty());
    }
}

#[test]
fn without_a_lie_the_same_program_is_believed() {
    let scratch = scratch();
    assert_eq!(peel(&spec(scratch.path())).error, None);
}

#[test]
fn a_kernel_with_another_landlock_is_refused_by_init() {
    let scratch = scratch();
    let outcome = peel(&Spec { landlock_abi: Some(3), ..spec(scratch.path()) });
    let error = outcome.error.expect("init asks the kernel itself");
    assert!(error.contains("enforce-landlock") && error.contains("the ABI"), "{error}");
}

#[test]
fn two_sessions_share_no_namespace_and_no_uid() {
    let scratch = scratch();
    let environment = scratch.path().join("env");
    tree::make(&environment, tree::Owner::Store);
    let session = Session { environment: Some(environment), ..Session::default() };
    let outcome = peel(&Spec { sessions: vec![session.clone(), session], ..spec(scratch.path()) });
    assert_eq!(outcome.error, None);
    let (one, two) = (&outcome.proofs[0], &outcome.proofs[1]);
    for (name, number) in &one.namespaces {
        assert_ne!(number, &two.namespaces[name], "{name} is shared");
    }
    assert!(outcome.blocks[0].abs_diff(outcome.blocks[1]) >= 65_536);
}

#[test]
fn every_step_has_a_name_of_its_own_and_a_reason() {
    let mut names: Vec<_> = LAUNCH.iter().map(|step| step.name).collect();
    assert!(LAUNCH.iter().all(|step| !step.protects.is_empty()));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), LAUNCH.len());
}
