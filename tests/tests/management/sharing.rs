//! Links to sessions, archives of their files, and what is asked of single files.

use crate::public::Public;
use hangar_tests::checked::{Checked, refusal};
use hangar_tests::session::Session;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

fn session<'a>(server: &'a Checked) -> Session<'a> {
    server.daemon().session(&json!({}))
}

/// Another program lists and reads an archive: names with the length and the begin of each file.
fn entries(archive: &[u8]) -> Value {
    let code = "import sys, io, json, zipfile\n\
                z = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))\n\
                assert z.testzip() is None\n\
                print(json.dumps({i.filename: [i.file_size, z.open(i).read(20).decode('latin1')] for i in z.infolist()}))";
    let mut python = Command::new("python3")
        .args(["-c", code])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(archive).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_link_shows_the_session_and_nothing_else() {
    let public = Public::start();
    let (owner, other) = (public.token("a", "full"), public.token("b", "full"));
    let made = public.call(&owner, "POST", "/v1/hangar/sessions", &json!({})).json();
    let id = made["id"].as_str().unwrap();
    let ran = json!({ "command": ["bash", "-c", "echo shared > report.md"] });
    let exec = format!("/v1/hangar/sessions/{id}/exec");
    let number = public.call(&owner, "POST", &exec, &ran).json()["id"].clone();
    assert_eq!(public.get(&owner, &format!("{exec}/{number}/output")).status, 200);
    let path = format!("/v1/sessions/{id}/share");
    for method in ["POST", "GET", "DELETE"] {
        let foreign = public.call(&other, method, &path, &Value::Null);
        assert_eq!(refusal(&foreign), (404, "session_not_found".to_owned()), "{method}");
    }
    assert_eq!(refusal(&public.get(&owner, &path)), (404, "hangar_share_not_found".to_owned()));
    let share = public.call(&owner, "POST", &path, &Value::Null).json();
    assert_eq!(public.get(&owner, &path).json(), share);
    assert_eq!(public.call(&owner, "POST", &path, &json!({})).json(), share, "one link");
    // Nobody has to say who they are.
    let url = share["url"].as_str().unwrap();
    let view = public.get("", url);
    assert_eq!(view.status, 200);
    for (field, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "no-referrer"),
        ("uhp-version", "2026-09-28"),
    ] {
        assert_eq!(view.field(field), Some(value));
    }
    let shown = view.json();
    assert_eq!((&shown["id"], &shown["files"][0]["filename"]), (&json!(id), &json!("report.md")));
    assert!(!shown.to_string().contains(&owner), "no token");
    let content = public.get("", shown["files"][0]["url"].as_str().unwrap());
    assert_eq!(content.body, b"shared\n");
    assert_eq!(content.field("x-content-type-options"), Some("nosniff"));
    // It is for reading, and good for nothing else.
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(public.call("", method, url, &json!({})).status, 404, "{method}");
    }
    let secret = url.rsplit('/').next().unwrap();
    for credential in [share["id"].as_str().unwrap(), secret] {
        let refused = public.get(credential, "/v1/sessions");
        assert_eq!(refusal(&refused), (401, "invalid_credential".to_owned()));
    }
    for nowhere in [share["id"].as_str().unwrap(), id, "0"] {
        assert_eq!(public.get("", &format!("/v1/shared/{nowhere}")).status, 404);
    }
    assert_eq!(public.get("", &format!("/v1/sessions/{id}")).status, 401);
    let audit = || std::fs::read_to_string(public.server.state().join("api/audit.jsonl")).unwrap();
    crate::until("the refused methods are noted", || audit().contains("/v1/shared/..."));
    assert!(!audit().contains(secret), "{}", audit());
    let traversal = format!("{url}/files/..%2f..%2fetc%2fpasswd/content");
    assert_eq!(public.get("", &traversal).status, 404);
}

#[test]
fn a_link_shows_what_was_said() {
    let server = Checked::start();
    let ran = server.send("POST", "/v1/responses", &json!({ "input": "echo said | tee x.txt" }));
    let session = ran["metadata"]["session_id"].as_str().unwrap();
    let share = server.send("POST", &format!("/v1/sessions/{session}/share"), &json!({}));
    let view = server.get(share["url"].as_str().unwrap());
    assert_eq!(
        (&view["title"], &view["status"]),
        (&json!("echo said | tee x.txt"), &json!("completed"))
    );
    let turn = &view["turns"][0];
    assert_eq!(
        (&turn["user"], &turn["assistant"]),
        (&json!("echo said | tee x.txt"), &json!("said\n"))
    );
    assert!(turn.get("environment").is_none(), "how it was set up");
    assert_eq!(view["files"][0]["filename"], "x.txt");
}

#[test]
fn a_link_ends_with_its_revocation_and_with_its_session() {
    let mut server = Checked::start();
    let id =
        server.send("POST", "/v1/hangar/sessions", &json!({}))["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/sessions/{id}/share");
    let share = |server: &Checked| {
        server.send("POST", &path, &json!({}))["url"].as_str().unwrap().to_owned()
    };
    let opens = |server: &Checked, url: &str| server.call("GET", url, b"").status;
    let first = share(&server);
    server.crash_and_restart();
    assert_eq!(opens(&server, &first), 200, "it outlives the server");
    for _ in 0..2 {
        assert_eq!(server.call("DELETE", &path, b"").status, 200, "also a second time");
    }
    assert_eq!(opens(&server, &first), 404);
    let second = share(&server);
    assert_ne!(first, second);
    assert_eq!((opens(&server, &first), opens(&server, &second)), (404, 200));
    let off = server.send("POST", &path, &json!({ "enabled": false }));
    assert_eq!((&off["enabled"], opens(&server, &second)), (&json!(false), 404));
    let third = share(&server);
    assert_eq!(server.call("DELETE", &format!("/v1/traces/{id}"), b"").status, 200);
    assert_eq!(opens(&server, &third), 404);
    assert_eq!(server.call("GET", &format!("/v1/sessions/{id}"), b"").status, 404);
}

#[test]
fn an_archive_has_every_file_and_no_trap() {
    let server = Checked::start();
    let session = session(&server);
    let made = session.bash(
        "mkdir -p a/b; echo one > a/b/one.txt; printf '\\xff\\x00' > raw; echo u > $'\\xc3\\xbc.txt'; \
         ln -s /etc/passwd link; ln -s /etc dir-link; mkfifo fifo; mkdir empty; ln raw hard; \
         truncate -s 300M holes; echo x > unreadable; chmod 0 unreadable; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"s\")'",
    );
    assert_eq!(made.out(), "");
    let before = peak_bytes(server.daemon().pid());
    let archive = server.call("GET", &format!("/v1/sessions/{}/files/archive", session.id), b"");
    let grown = peak_bytes(server.daemon().pid()) - before;
    assert!(grown < 24 << 20, "{grown} bytes more");
    assert_eq!(archive.field("content-type"), Some("application/zip"));
    assert_eq!(archive.field("x-content-type-options"), Some("nosniff"));
    let found = entries(&archive.body);
    assert_eq!(found["a/b/one.txt"], json!([4, "one\n"]));
    assert_eq!(found["\u{fc}.txt"], json!([2, "u\n"]));
    assert_eq!(found["holes"][0], 300 << 20);
    assert_eq!((&found["raw"], &found["hard"]), (&json!([2, "\u{ff}\0"]), &json!([2, "\u{ff}\0"])));
    assert_eq!(found.as_object().unwrap().len(), 5, "{found}");
    assert_eq!(refusal(&server.call("GET", "/v1/sessions/hsess1/files/archive", b"")).0, 404);
    let none = server.daemon().session(&json!({}));
    let empty = server.call("GET", &format!("/v1/sessions/{}/files/archive", none.id), b"");
    assert_eq!(entries(&empty.body), json!({}));
}

#[test]
fn a_file_is_sent_raw_and_rendered_nowhere() {
    let server = Checked::start();
    let session = session(&server);
    assert_eq!(session.bash("echo '<script>' > x.html").out(), "");
    let files = server.get(&format!("/v1/sessions/{}/files", session.id));
    let file = &files["files"][0];
    let base = format!(
        "/v1/containers/{}/files/{}",
        file["container_id"].as_str().unwrap(),
        file["id"].as_str().unwrap()
    );
    let content = server.call("GET", &format!("{base}/content"), b"");
    assert_eq!(content.body, b"<script>\n");
    assert_eq!(content.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(content.field("content-disposition"), Some("attachment; filename=\"x.html\""));
    let preview = server.call("GET", &format!("{base}/pdf"), b"");
    assert_eq!(refusal(&preview), (501, "preview_unavailable".to_owned()));
    let container = file["container_id"].as_str().unwrap();
    for probe in
        ["../../etc/passwd", "..%2f..%2fetc%2fpasswd", "file_2e2e2f", "file_2f657463", "file_zz"]
    {
        for end in ["content", "pdf"] {
            let path = format!("/v1/containers/{container}/files/{probe}/{end}");
            assert_eq!(server.call("GET", &path, b"").status, 404, "{path}");
        }
    }
}

/// The most memory a process ever had.
pub fn peak_bytes(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}
