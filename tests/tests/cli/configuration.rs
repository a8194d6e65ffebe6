//! What a server would be started with, and what is made from the command line itself.

use super::{Place, stderr, stdout};
use serde_json::{Value, json};

#[test]
fn every_value_is_shown_with_its_source_and_a_server_starts_with_it() {
    let place = Place::without_server();
    std::fs::create_dir(place.path("state")).unwrap();
    let file = "[build]\ntimeout_s = 5\nsilence_timeout_s = 6\n[uploads]\nfile_bytes_max = 7\n";
    std::fs::write(place.path("state/config.toml"), file).unwrap();
    let mut show = place.hangar(["config", "show", "--json", "--set", "uploads.file_bytes_max=9"]);
    let output = show.env("HANGAR_BUILD__TIMEOUT_S", "8").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let shown: Value = serde_json::from_str(&stdout(&output)).unwrap();
    for (key, value, source) in [
        ("build.timeout_s", json!(8), "HANGAR_BUILD__TIMEOUT_S"),
        ("build.silence_timeout_s", json!(6), "config.toml"),
        ("uploads.file_bytes_max", json!(9), "--set"),
        ("build.parallel_max", json!(4), "default"),
    ] {
        assert_eq!(shown[key], json!({ "value": value, "source": source }), "{key}");
    }
}

#[test]
fn a_value_that_is_not_valid_is_named_before_anything_starts() {
    let place = Place::without_server();
    for command in [&["config", "show"][..], &["serve"]] {
        let mut wrong = place.hangar(command);
        let output = wrong.env("HANGAR_BUILD__TIMEOUT", "soon").output().unwrap();
        assert!(!output.status.success());
        let told = stderr(&output);
        assert!(told.contains("the variable HANGAR_BUILD__TIMEOUT is not valid"), "{told}");
    }
    assert!(!place.path("state").join("run").exists());
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let place = Place::without_server();
    let bash = stdout(&place.hangar(["completions", "bash"]).output().unwrap());
    assert!(bash.contains("complete ") && bash.contains("--keep-last"), "{bash:.300}");
    let pages = place.path("man");
    let made = place.hangar([std::ffi::OsStr::new("man"), pages.as_os_str()]).output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    for (page, told) in [("hangar.1", "hangar"), ("hangar-env-build.1", "Build the next version")] {
        let text = std::fs::read_to_string(pages.join(page)).unwrap();
        assert!(text.contains(told), "{page}");
    }
    assert!(!pages.join("hangar-egress.1").exists(), "what is hidden has no page");
}
