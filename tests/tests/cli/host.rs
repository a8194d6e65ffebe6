//! What the command line says about the host.

use super::{Place, stderr, stdout};
use hangar_tests::program;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn the_doctor_launches_a_session_and_finds_nothing_lacking() {
    let place = Place::without_server();
    let output = place.hangar(["doctor"]).output().unwrap();
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    assert!(text.lines().count() > 5 && !text.contains("LACKING"), "{text}");
}

/// Without root and without a server there is nothing to run on, and that is said.
#[test]
fn a_user_without_rights_is_told_what_to_do() {
    let place = Place::without_server();
    std::fs::create_dir(place.path("state")).unwrap();
    // The built programs can lie where only root goes.
    let copy = place.path("hangar");
    std::fs::copy(program("hangar"), &copy).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(place.root.path(), open).unwrap();
    let mut command = Command::new(copy);
    command.args(["run", "--state-dir", "state", "tiny", "--", "true"]);
    let output = command.current_dir(place.root.path()).uid(65534).gid(65534).output().unwrap();
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(125), ""));
    assert!(stderr(&output).contains("sudo hangar serve"), "{}", stderr(&output));
}
