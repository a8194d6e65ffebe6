//! Paths: decoded once, checked once, and the same in every route.

use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::{Body, try_ask};
use serde_json::{Value, json};

fn listed(server: &Checked, id: &str) -> Vec<Value> {
    let tree = server.get(&format!("/v1/environments/{id}/files"));
    let entries = tree["entries"].as_array().unwrap().clone();
    entries.into_iter().filter(|entry| entry["dir"] == false).collect()
}

fn paths(server: &Checked, id: &str) -> Vec<String> {
    listed(server, id).iter().map(|entry| entry["path"].as_str().unwrap().to_owned()).collect()
}

fn read(server: &Checked, id: &str, url: &str) -> Option<String> {
    let answer = server.call("GET", &format!("/v1/environments/{id}/files/{url}"), b"");
    (answer.status == 200).then(|| String::from_utf8(answer.body).unwrap())
}

pub fn names_that_look_escaped() {
    let server = Checked::start();
    let id = server.environment("e01", &[]);
    server.put_file(&id, "r%2520n.txt", "percent");
    server.put_file(&id, "r%20n.txt", "space");
    server.put_file(&id, "%252e%252e", "dots");
    assert_eq!(paths(&server, &id), ["%2e%2e", "r n.txt", "r%20n.txt"]);
    assert_eq!(read(&server, &id, "r%2520n.txt").as_deref(), Some("percent"));
    assert_eq!(read(&server, &id, "r%20n.txt").as_deref(), Some("space"));
    let path = format!("/v1/environments/{id}/files/r%2520n.txt");
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    assert_eq!(paths(&server, &id), ["%2e%2e", "r n.txt"], "the other one stays");
}

pub fn names_with_spaces() {
    let server = Checked::start();
    let id = server.environment("e01", &[("a%20b/c%20d", "x")]);
    assert_eq!(paths(&server, &id), ["a b/c d"]);
    assert_eq!(read(&server, &id, "a%20b/c%20d").as_deref(), Some("x"));
}

pub fn an_escaped_slash_is_a_slash() {
    let server = Checked::start();
    let id = server.environment("e02", &[("dir%2Ffile", "one")]);
    // What a proxy that decodes it would send names the same file, in every route.
    assert_eq!(read(&server, &id, "dir/file").as_deref(), Some("one"));
    server.put_file(&id, "dir/file", "two");
    assert_eq!(read(&server, &id, "dir%2ffile").as_deref(), Some("two"));
    assert_eq!(paths(&server, &id), ["dir/file"]);
    let path = format!("/v1/environments/{id}/files/dir%2Ffile");
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    assert!(paths(&server, &id).is_empty());
}

pub fn an_escaped_escape_is_a_name() {
    let server = Checked::start();
    let id = server.environment("e02", &[("dir%252Ffile", "x")]);
    assert_eq!(paths(&server, &id), ["dir%2Ffile"]);
    assert_eq!(read(&server, &id, "dir/file"), None);
}

pub fn a_plus_is_a_plus() {
    let server = Checked::start();
    let id = server.environment("e03", &[("a+b.txt", "plus"), ("a%20b.txt", "space")]);
    assert_eq!(read(&server, &id, "a%2Bb.txt").as_deref(), Some("plus"));
    assert_eq!(paths(&server, &id), ["a b.txt", "a+b.txt"]);
}

pub fn listed_links_work_as_they_stand() {
    let server = Checked::start();
    let id = server.environment("e03", &[("a+b%20c%23/d%3Fe", "x"), ("plain.txt", "x")]);
    for entry in listed(&server, &id) {
        let path = format!("/v1/environments/{id}/{}", entry["href"].as_str().unwrap());
        assert_eq!(server.call("GET", &path, b"").body, b"x", "{entry}");
    }
}

/// Names people and archives make; the last is no UTF-8.
const ODD: &[&[u8]] = &[
    b"a#b",
    b"50%",
    b"q?",
    b"x\\y",
    b"new\nline",
    b"CON",
    b"tab\there",
    b"\x7f",
    b"'\"",
    b"~",
    b"-rf",
    b"trailing ",
    b"trailing.",
    b"a:b",
    b"*",
    b"\xe4\xf6",
];

fn tar(names: &[Vec<u8>]) -> Vec<u8> {
    // By hand: a test needs no archive library for a header and a few bytes.
    let mut bytes = Vec::new();
    for name in names {
        let mut header = [0u8; 512];
        header[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
        header[100..108].copy_from_slice(b"0000644\0");
        header[108..124].copy_from_slice(b"0000000\x000000000\0");
        header[124..136].copy_from_slice(b"00000000001\0");
        header[136..148].copy_from_slice(b"14000000000\0");
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].copy_from_slice(b"        ");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend(header);
        bytes.push(b'x');
        bytes.extend([0; 511]);
    }
    bytes.extend([0; 1024]);
    bytes
}

pub fn odd_names_go_round() {
    let server = Checked::start();
    let id = server.environment("e04", &[]);
    let mut names: Vec<Vec<u8>> = ODD.iter().map(|name| name.to_vec()).collect();
    names.push(vec![b'n'; 90]);
    let body = Body { kind: "application/x-tar", bytes: &tar(&names) };
    let import = format!("/v1/environments/{id}/import");
    let imported = try_ask(&server.daemon().socket(), "POST", &import, body).unwrap();
    assert_eq!(imported.json()["written"], names.len(), "{}", imported.json());
    // A name that is as long as a name can be.
    let longest = "ü".repeat(127) + "x";
    let url: String = longest.bytes().map(|byte| format!("%{byte:02X}")).collect();
    server.put_file(&id, &url, "x");
    let entries = listed(&server, &id);
    assert_eq!(entries.len(), names.len() + 1);
    for entry in entries {
        let path = format!("/v1/environments/{id}/{}", entry["href"].as_str().unwrap());
        assert_eq!(server.call("GET", &path, b"").body, b"x", "{entry}");
        assert_eq!(server.call("PUT", &path, b"y").status, 200, "{entry}");
        assert_eq!(server.call("GET", &path, b"").body, b"y", "{entry}");
        assert_eq!(server.call("DELETE", &path, b"").status, 200, "{entry}");
    }
    assert!(listed(&server, &id).is_empty());
    let too_long =
        refusal(&server.call("PUT", &format!("/v1/environments/{id}/files/{url}x"), b"x"));
    assert_eq!(too_long, (422, "environment_invalid".to_owned()));
}

pub fn odd_names_of_artifacts_are_read() {
    let server = Checked::start();
    let session = server.daemon().session(&json!({}));
    let made = session.bash(r#"cd /workspace; for n in 'a#b' '50%' 'q?' 'x\y' $'new\nline' CON $'\xe4'; do printf %s x > "$n"; done"#);
    assert_eq!(made.record["exit_code"], 0, "{}", made.record);
    let listed = server.daemon().get(&format!("/v1/sessions/{}/files", session.id));
    let files = listed["files"].as_array().unwrap();
    assert_eq!(files.len(), 7, "{listed}");
    for file in files {
        let (container, id) =
            (file["container_id"].as_str().unwrap(), file["id"].as_str().unwrap());
        let path = format!("/v1/containers/{container}/files/{id}/content");
        assert_eq!(server.call("GET", &path, b"").body, b"x", "{file}");
    }
    session.delete();
}

pub fn checks_are_on_decoded_names() {
    let server = Checked::start();
    let id = server.environment("e10", &[("kept", "x")]);
    for path in [
        "%2e%2e/x",
        "a/%2e%2e/%2e%2e/x",
        "a%00.txt",
        "a/./b",
        "a/%2e/b",
        "a//b",
        "/abs",
        "a/",
        "%2Fetc%2Fpasswd",
        "..%2fx",
        "%2e%2e",
        "a/..",
        "50%",
        "%zz",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let url = format!("/v1/environments/{id}/files/{path}");
            let refused = refusal(&server.call(method, &url, b""));
            assert_eq!(refused, (422, "environment_invalid".to_owned()), "{method} {path}");
        }
    }
    for path in ["..", "../x", "/abs", "a\0b", "a//b", ""] {
        let url = format!("/v1/environments/{id}/directories");
        let body = json!({ "path": path }).to_string();
        let refused = refusal(&server.call("POST", &url, body.as_bytes()));
        assert_eq!(refused, (422, "environment_invalid".to_owned()), "{path}");
    }
    assert_eq!(paths(&server, &id), ["kept"]);
    assert!(!server.state().join("api/sources/x").exists());
}

pub fn dots_within_names_are_names() {
    let server = Checked::start();
    let id = server.environment("e10", &[("...", "x"), ("a..b/.c", "x"), ("..%5cx", "x")]);
    assert_eq!(paths(&server, &id), ["...", "..\\x", "a..b/.c"]);
}
