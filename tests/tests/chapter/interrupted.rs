//! Clients and servers that go away in the middle.

use hangar_tests::checked::Checked;
use hangar_tests::http::exchange;
use serde_json::json;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

const OLD: &[u8] = b"the old content";

fn with_file() -> (Checked, String, String) {
    let server = Checked::start();
    let id = server.environment("e05", &[]);
    server.put_file(&id, "f", OLD);
    let path = format!("/v1/environments/{id}/files/f");
    (server, id, path)
}

fn content(server: &Checked, path: &str) -> Vec<u8> {
    server.call("GET", path, b"").body
}

/// Bodies on their way; what clients sent ahead has a place of its own.
fn uploads(server: &Checked) -> usize {
    let there = std::fs::read_dir(server.state().join("api/uploads")).unwrap();
    there.filter(|entry| entry.as_ref().unwrap().file_name() != "kept").count()
}

/// Sends a head and a part of its body, and nothing more.
fn half(server: &Checked, path: &str, framing: &str, part: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(server.daemon().socket()).unwrap();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: hangar\r\n{framing}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), part].concat()).unwrap();
    stream
}

pub fn a_cut_body_changes_nothing() {
    let (mut server, _, path) = with_file();
    for (framing, part) in [
        ("Content-Length: 100", &b"half"[..]),
        ("Transfer-Encoding: chunked", b"4\r\nhalf\r\n"),
        ("Transfer-Encoding: chunked", b"4\r\nha"),
        ("Transfer-Encoding: chunked", b"zz\r\nhalf\r\n"),
    ] {
        let mut stream = half(&server, &path, framing, part);
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        // The server says what it wants to say and closes.
        let _read = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{framing}");
        assert_eq!(content(&server, &path), OLD, "{framing}");
        crate::until("the upload goes away", || uploads(&server) == 0);
    }
    let stream = half(&server, &path, "Content-Length: 2000000", &[b'x'; 1_500_000]);
    crate::until("the upload begins", || uploads(&server) == 1);
    server.crash_and_restart();
    drop(stream);
    assert_eq!(content(&server, &path), OLD);
    assert_eq!(uploads(&server), 0, "what an earlier server left");
}

pub fn a_whole_body_replaces() {
    let (server, id, path) = with_file();
    let chunked = half(
        &server,
        &path,
        "Transfer-Encoding: chunked\r\nConnection: close",
        b"3\r\nnew\r\n0\r\n\r\n",
    );
    let mut answer = Vec::new();
    (&chunked).read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(content(&server, &path), b"new");
    // Two that race: one of them is there afterwards, whole.
    let (one, other) = (vec![b'1'; 3_000_000], vec![b'2'; 3_000_000]);
    std::thread::scope(|scope| {
        for body in [&one, &other] {
            let (socket, path) = (server.daemon().socket(), path.as_str());
            scope.spawn(move || {
                let stream = UnixStream::connect(socket).unwrap();
                assert_eq!(exchange(stream, "PUT", path, &[], body).unwrap().status, 200);
            });
        }
    });
    let last = content(&server, &path);
    assert!(last == one || last == other);
    assert_eq!(server.get(&format!("/v1/environments/{id}/files"))["count"], 1);
}

const WAITS: &str = "echo attempt; while [ ! -e go ]; do sleep 0.05; done\n";

pub fn a_build_that_was_cut_off_blocks_nothing() {
    let mut server = Checked::start();
    let id = server.environment("e06", &[("setup.sh", WAITS)]);
    let path = format!("/v1/environments/{id}");
    server.send("POST", &format!("{path}/build"), &json!({}));
    let log = format!("/v1/hangar/environments/{id}/builds/1/log");
    crate::until("setup.sh runs", || {
        String::from_utf8_lossy(&server.call("GET", &log, b"").body).contains("attempt")
    });
    server.crash_and_restart();
    let build = server.get(&format!("{path}/builds/1"));
    assert_eq!(build["status"], "failed");
    assert!(build["error"].as_str().unwrap().contains("the server stopped"), "{build}");
    server.put_file(&id, "go", "");
    let next = server.build(&id);
    assert_eq!((&next["status"], &next["version"]), (&json!("ready"), &json!(2)), "{next}");
    crate::until("the build's session goes away", || {
        std::fs::read_dir(server.state().join("sessions")).unwrap().count() == 0
    });
    assert!(!server.state().join(format!("versions/{id}/1")).exists());
}

pub fn a_build_survives_its_client() {
    let server = Checked::start();
    let id = server.environment("e06", &[("setup.sh", "sleep 0.3; echo done > built\n")]);
    let mut stream = UnixStream::connect(server.daemon().socket()).unwrap();
    let head = format!(
        "POST /v1/environments/{id}/build HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0];
    stream.read_exact(&mut first).unwrap();
    drop(stream);
    assert_eq!(server.ended_build(&id, 1)["status"], "ready");
}
