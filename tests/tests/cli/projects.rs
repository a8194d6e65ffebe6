//! What goes into a session and what comes out of it.

use super::{Place, files, stderr, stdout};
use std::os::unix::fs::symlink;

#[test]
fn a_project_is_built_when_it_changed_and_only_then() {
    let place = Place::without_server();
    let built = "built version";
    let first = place.run(&[], &["python3", "run.py"]);
    assert!(stderr(&first).contains(built), "{}", stderr(&first));
    let second = place.run(&[], &["python3", "run.py"]);
    assert_eq!((stdout(&second).as_str(), stderr(&second).as_str()), ("hello\n", ""));
    place.write("tiny/run.py", "print('world')\n");
    let third = place.run(&[], &["python3", "run.py"]);
    assert!(stderr(&third).contains(built), "{}", stderr(&third));
    assert_eq!(stdout(&third), "world\n");
    let forced = place.run(&["--rebuild"], &["python3", "run.py"]);
    assert!(stderr(&forced).contains(built), "{}", stderr(&forced));
}

#[test]
fn what_is_not_imported_is_said_and_not_there() {
    let place = Place::without_server();
    for name in [".git/config", "node_modules/x/index.js", "lib/__pycache__/y.pyc", "lib/z"] {
        place.write(&format!("tiny/{name}"), "x");
    }
    place.write("secret", "the host's");
    symlink("../../secret", place.path("tiny/outside")).unwrap();
    symlink("run.py", place.path("tiny/inside")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(place.path("tiny/socket")).unwrap());
    let output = place.run(&[], &["find", ".", "-type", "f", "-o", "-type", "l"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for name in [".git", "node_modules", "__pycache__", "socket", "outside"] {
        assert!(said.contains(name), "{name} is not in {said}");
    }
    let out = stdout(&output);
    let mut found: Vec<&str> = out.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["./inside", "./lib/z", "./run.py"]);
}

#[test]
fn the_project_is_read_only_and_its_results_are_copied() {
    let place = Place::with_server(&[]);
    let script = "touch new 2>/dev/null && exit 9
cd $WORKSPACE && mkdir -p a/b && printf '\\000x' > a/b/bytes && echo e > '..odd name'
ln -s /etc/passwd link && ln -s /etc directory && mkfifo pipe
";
    let output = place.run(&["--artifacts", "out/new"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(files(&place.path("out/new")), ["..odd name", "a/b/bytes"]);
    assert_eq!(std::fs::read(place.path("out/new/a/b/bytes")).unwrap(), b"\0x");
    // What lies at the destination is never followed.
    place.write("victim", "kept");
    std::fs::create_dir_all(place.path("out/planted")).unwrap();
    symlink(place.path("victim"), place.path("out/planted/..odd name")).unwrap();
    symlink(place.root.path(), place.path("out/planted/a")).unwrap();
    let output = place.run(&["--artifacts", "out/planted"], &["sh", "-c", script]);
    assert_eq!(output.status.code(), Some(125), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(place.path("victim")).unwrap(), "kept");
    assert!(!place.path("b").exists());
    // A command that failed leaves its results too.
    let output =
        place.run(&["--artifacts", "out/failed"], &["sh", "-c", "echo > $WORKSPACE/f; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(files(&place.path("out/failed")), ["f"]);
    let output = place.run(&[], &["sh", "-c", "echo > $WORKSPACE/f"]);
    assert!(stderr(&output).contains("--artifacts"), "{}", stderr(&output));
}
