//! What a session can do to a server that reads its working directory (P072, P073).

use hangar_tests::daemon::Daemon;
use hangar_tests::session::Session;
use hangar_tests::{program, scratch};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Puts the probe into a session's working directory, as an upload would.
fn plant_probe(daemon: &Daemon, session: &Session<'_>) {
    let workdir = daemon.state().join("sessions").join(&session.id).join("workdir");
    std::fs::copy(program("hangar-probe"), workdir.join("hangar-probe")).expect("copy");
}

fn results(session: &Session<'_>, command: &[&str]) -> Vec<Value> {
    let ended = session.run(&json!({ "command": command }));
    assert_eq!(ended.status(), "0", "{}", ended.err());
    ended.out().lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn file_id(path: &[u8]) -> String {
    let digits: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("file_{digits}")
}

/// The status and the first bytes of an answer; a server that waits is a failure.
fn first_bytes(daemon: &Daemon, path: &str) -> (u16, Vec<u8>) {
    let mut stream = UnixStream::connect(daemon.socket()).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    let request = format!("GET {path} HTTP/1.1\r\nHost: hangar\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut bytes = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let got = stream.read(&mut bytes[length..]).expect("an answer in time");
        length += got;
        if got == 0 || length == bytes.len() {
            break;
        }
    }
    bytes.truncate(length);
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("a head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, bytes.split_off(end + 4))
}

fn content(daemon: &Daemon, session: &Session<'_>, path: &[u8]) -> (u16, Vec<u8>) {
    let container = session.id.replacen("hsess", "cntr_", 1);
    first_bytes(daemon, &format!("/v1/containers/{container}/files/{}/content", file_id(path)))
}

/// Names that lead elsewhere, or are no files: there is no such artifact.
const NOT_FILES: [&[u8]; 22] = [
    b"secret",
    b"magic",
    b"climbing",
    b"root",
    b"root/etc/passwd",
    b"root/etc/shadow",
    b"loop",
    b"fifo",
    b"socket",
    b"device",
    b"disk",
    b"many",
    b"../hangar-probe",
    b"../../../token",
    b"./../home",
    b"/etc/passwd",
    b"/workspace/hangar-probe",
    b"many/../../home",
    b"",
    b".",
    b"..",
    b"no\0name",
];

#[test]
fn a_hostile_working_directory() {
    let place = scratch();
    let daemon = Daemon::start(&place.path().join("state"));
    let session = daemon.session(&json!({}));
    plant_probe(&daemon, &session);
    for line in results(&session, &["/workspace/hangar-probe", "P072"]) {
        let allowed = ["ok", "EFBIG", "EEXIST", "EADDRINUSE"];
        assert!(allowed.contains(&line["result"].as_str().expect("text")), "{line}");
    }
    let made = session.bash("truncate -s 8G /workspace/large; echo own > '/workspace/plain'");
    assert_eq!(made.status(), "0", "{}", made.err());
    plant_devices(&daemon.state().join("sessions").join(&session.id).join("workdir"));
    let listed = daemon.get(&format!("/v1/sessions/{}/files", session.id));
    let files = listed["files"].as_array().expect("a list");
    assert_eq!(listed["truncated"], true, "the deep directories are not all looked into");
    let names: Vec<&str> = files.iter().filter_map(|file| file["path"].as_str()).collect();
    for name in ["plain", "large", "line\nbreak", "not-\u{fffd}\u{fffd}-utf8", "many/9999"] {
        assert!(names.contains(&name), "{name:?} is not listed");
    }
    for name in ["secret", "magic", "climbing", "root", "loop", "fifo", "socket", "device", "disk"]
    {
        assert!(!names.iter().any(|n| *n == name || n.starts_with(&format!("{name}/"))), "{name}");
    }
    for path in NOT_FILES {
        let (status, body) = content(&daemon, &session, path);
        let shown = String::from_utf8_lossy(path);
        assert!((400..500).contains(&status), "{shown:?}: {status}");
        assert!(!body.windows(5).any(|w| w == b"root:"), "{shown:?} tells of the host");
    }
    let same =
        [(&b"plain"[..], &b"own\n"[..]), (b"line\nbreak", b"x"), (b"not-\xff\xfe-utf8", b"x")];
    for (path, text) in same {
        assert_eq!(content(&daemon, &session, path), (200, text.to_vec()));
    }
    // Eight gigabytes of nothing are sent as they are read, not collected.
    let (status, bytes) = content(&daemon, &session, b"large");
    assert!(status == 200 && bytes.iter().all(|byte| *byte == 0));
    let (status, _) = content(&daemon, &session, b"unreadable");
    assert!(status == 200 || (400..500).contains(&status), "{status}");
    session.delete();
    daemon.stop();
}

/// Device nodes, which no session can make: the server does not open them.
fn plant_devices(workdir: &Path) {
    let open = Mode::from(0o666);
    for (name, kind, device) in [
        ("device", FileType::CharacterDevice, makedev(1, 3)),
        ("disk", FileType::BlockDevice, makedev(7, 0)),
    ] {
        mknodat(CWD, workdir.join(name), kind, open, device).expect("root");
    }
}

#[test]
fn no_tool_of_the_host_runs_in_a_working_directory() {
    let place = scratch();
    let traps = place.path().join("traps");
    std::fs::create_dir(&traps).expect("mkdir");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(&traps, open).expect("chmod");
    let sprung = traps.join("sprung");
    let canary = sprung.to_str().expect("UTF-8");
    let daemon = Daemon::start(&place.path().join("state"));
    let session = daemon.session(&json!({}));
    plant_probe(&daemon, &session);
    for line in results(&session, &["/workspace/hangar-probe", "P073", "--canary", canary]) {
        assert_eq!(line["result"], "ok", "{line}");
    }
    // Inside, the same traps do go off, so they are traps.
    let tried = session.bash("mkdir -p /tmp/x; cd /workspace && sed -i 's#touch [^\"]*#touch /tmp/x/sprung#' .git/config && git status; ls /tmp/x");
    assert!(tried.out().contains("sprung"), "{}{}", tried.out(), tried.err());
    let listed = daemon.get(&format!("/v1/sessions/{}/files", session.id));
    let files = listed["files"].as_array().expect("a list");
    for name in [".git/config", "hooks/post-checkout", "Makefile", "package.json"] {
        assert!(files.iter().any(|file| file["path"] == name), "{name} is not listed");
        assert_eq!(content(&daemon, &session, name.as_bytes()).0, 200, "{name}");
    }
    let _proof = daemon.get(&format!("/v1/hangar/sessions/{}/isolation", session.id));
    assert_eq!(session.bash("true").status(), "0");
    session.delete();
    daemon.stop();
    assert!(!sprung.exists(), "something of the host ran what a session wrote");
}

/// The same traps in a project: it is read by the caller's program, imported and built.
#[test]
fn no_tool_of_the_host_runs_in_a_project() {
    let place = scratch();
    let sprung = place.path().join("sprung");
    let project = place.path().join("trapped");
    std::fs::create_dir(&project).expect("mkdir");
    let planted = Command::new(program("hangar-probe"))
        .args(["P073", "--canary"])
        .arg(&sprung)
        .env("PROBE_WORKSPACE", &project)
        .output()
        .expect("it starts");
    assert!(planted.status.success() && project.join(".git/config").exists(), "{planted:?}");
    // Its script belongs to a build, where it would run, and fail to find the canary.
    std::fs::remove_file(project.join("package.json")).expect("remove");
    let ran = Command::new(program("hangar"))
        .args(["run", "--state-dir"])
        .arg(place.path().join("state"))
        .arg(&project)
        .args(["--", "sh", "-c", "cat Makefile"])
        .output()
        .expect("it starts");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert!(String::from_utf8_lossy(&ran.stdout).contains("shell touch"), "{ran:?}");
    assert!(!sprung.exists(), "something of the host ran what a project contains");
}

/// P067: what a request names as working directory is refused, or lies inside.
#[test]
fn no_working_directory_of_a_request_leads_out() {
    let place = scratch();
    let daemon = Daemon::start(&place.path().join("state"));
    let session = daemon.session(&json!({}));
    let made =
        session.bash("ln -s /proc/self/fd/3 fd; ln -s /proc/1/root init; mkdir gone; rmdir gone");
    assert_eq!(made.status(), "0", "{}", made.err());
    let path = format!("/v1/hangar/sessions/{}/exec", session.id);
    let outside = [
        "/proc/self/fd/3",
        "/proc/self/root",
        "/proc/1/root",
        "fd",
        "init",
        "gone",
        "/workspace/fd",
        "/workspace/init",
        "/workspace/gone",
        "",
        "a\0b",
        "/nowhere",
    ];
    for directory in outside {
        let request = json!({ "command": ["pwd", "-P"], "cwd": directory });
        let answer = daemon.ask("POST", &path, &request);
        if answer.status >= 400 {
            assert!(answer.status < 500, "{directory:?}: {}", answer.status);
            continue;
        }
        let ended = session.finish(answer.json()["id"].as_u64().expect("a number"));
        let refused = ended.status().starts_with("not executed");
        assert!(refused && ended.stdout.is_empty(), "{directory:?}: {ended:?}");
    }
    for (directory, inside) in [("/workspace/../..", "/\n"), ("/usr/../tmp", "/tmp\n")] {
        let ended = session.run(&json!({ "command": ["pwd", "-P"], "cwd": directory }));
        assert_eq!(ended.out(), inside, "{directory}");
    }
    session.delete();
    daemon.stop();
}
