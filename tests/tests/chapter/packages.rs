//! What registries say about packages, asked by the toolchain's own managers.

use hangar_tests::checked::{Checked, refusal};
use serde_json::{Value, json};

fn check(server: &Checked, manager: &str, spec: &str) -> Value {
    server.get(&format!("/v1/environments/packages/check?manager={manager}&spec={spec}"))
}

#[test]
fn a_typo_is_told_before_a_build() {
    let server = Checked::start();
    for (manager, spec, version) in
        [("pip", "six==1.16.0", "1.16.0"), ("npm", "left-pad@1.3.0", "1.3.0")]
    {
        let found = check(&server, manager, spec);
        assert_eq!(
            (&found["exists"], &found["version"]),
            (&json!(true), &json!(version)),
            "{found}"
        );
        assert_ne!(found["latest"], "");
    }
    let debian = check(&server, "apt", "jq");
    assert_eq!(debian["exists"], true, "{debian}");
    assert_ne!(debian["latest"], "");
    let unpublished = check(&server, "npm", "left-pad@99.0.0");
    assert_eq!((&unpublished["exists"], &unpublished["version"]), (&json!(true), &json!("")));
    assert!(unpublished["error"].as_str().unwrap().contains("99.0.0"));
    for manager in ["pip", "npm", "apt"] {
        let none = check(&server, manager, "hangar-no-such-package-1f2e3d");
        assert_eq!(none["exists"], false, "{none}");
    }
    for query in ["manager=gem&spec=x", "spec=x", "manager=pip", "manager=pip&spec=-r%20x"] {
        let path = format!("/v1/environments/packages/check?{query}");
        let refused = refusal(&server.call("GET", &path, b""));
        assert_eq!(refused, (400, "environment_invalid".to_owned()), "{query}");
    }
    // No session of a question is left.
    crate::until("the sessions go away", || {
        std::fs::read_dir(server.state().join("sessions")).unwrap().count() == 0
    });
    assert_eq!(server.get("/v1/sessions")["sessions"], json!([]));
}

#[test]
fn a_registry_that_does_not_answer_is_no_answer() {
    let nowhere = "[build]\npip_index_url = \"http://127.0.0.1:9/simple\"\n\
                   npm_registry = \"http://127.0.0.1:9/\"\n";
    let server = Checked::configured(nowhere, &[]);
    for manager in ["pip", "npm"] {
        let asked = check(&server, manager, "six");
        assert_eq!(asked["exists"], Value::Null, "{asked}");
        assert_ne!(asked["error"], "");
    }
}

#[test]
fn runtimes_are_what_the_host_has() {
    let server = Checked::start();
    let told = server.get("/v1/environments/runtimes");
    assert!(!told["python"].as_array().unwrap().is_empty(), "{told}");
    for version in told["python"].as_array().unwrap() {
        let program = format!("/usr/bin/python{}", version.as_str().unwrap());
        let local = program.replace("/usr/bin", "/usr/local/bin");
        assert!([program, local].iter().any(|path| std::path::Path::new(path).exists()));
    }
}
