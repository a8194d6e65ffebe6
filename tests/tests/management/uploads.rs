//! `POST /v1/files`: whole, bounded, durable, and of one scope.

use crate::sharing::peak_bytes;
use hangar_tests::checked::{Checked, refusal};
use hangar_tests::http::Answer;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

const FORM: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=frontier");

/// A form with one file, whose disposition has these parameters.
fn form(parameters: &str, bytes: &[u8]) -> Vec<u8> {
    let head = format!(
        "--frontier\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nassistants\r\n\
         --frontier\r\nContent-Disposition: form-data; name=\"file\"; {parameters}\r\n\
         Content-Type: text/csv\r\n\r\n"
    );
    [head.as_bytes(), bytes, b"\r\n--frontier--\r\n"].concat()
}

fn send(server: &Checked, parameters: &str, bytes: &[u8]) -> Answer {
    server.call_with("POST", "/v1/files", &[FORM], &form(parameters, bytes))
}

fn sent(server: &Checked, name: &str, bytes: &[u8]) -> Value {
    let answer = send(server, &format!("filename=\"{name}\""), bytes);
    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

fn content(server: &Checked, file: &Value) -> Answer {
    server.call("GET", &format!("/v1/files/{}/content", file["id"].as_str().unwrap()), b"")
}

/// The files below `api/uploads`.
fn on_disk(server: &Checked) -> Vec<String> {
    let below = |name: &str| {
        let entries = std::fs::read_dir(server.path("state/api").join(name)).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "kept").collect::<Vec<_>>()
    };
    [below("uploads"), below("uploads/kept")].concat()
}

#[test]
fn a_file_comes_back_byte_for_byte_also_after_a_crash() {
    let mut server = Checked::start();
    // Everything that could be taken for a delimiter.
    let bytes = b"a\0b\xff\r\n--frontie\r\n--\r\n-\r\n\r\n--fron\r";
    let file = sent(&server, "q3.csv", bytes);
    assert_eq!(file["filename"], "q3.csv");
    assert_eq!((&file["bytes"], &file["purpose"]), (&json!(bytes.len()), &json!("assistants")));
    assert_eq!(file["content_type"], "text/csv");
    let empty = sent(&server, "empty", b"");
    server.crash_and_restart();
    let answer = content(&server, &file);
    assert_eq!(answer.body, bytes);
    assert_eq!(answer.field("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.field("content-disposition"), Some("attachment; filename=\"q3.csv\""));
    assert_eq!(content(&server, &empty).body, b"");
    let listed = server.get("/v1/files")["data"].as_array().unwrap().len();
    assert_eq!(listed, 2);
    let path = format!("/v1/files/{}", file["id"].as_str().unwrap());
    assert_eq!(server.get(&path), file);
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    for (method, path) in
        [("GET", path.clone()), ("GET", path.clone() + "/content"), ("DELETE", path)]
    {
        let gone = server.call(method, &path, b"");
        assert_eq!(refusal(&gone), (404, "file_not_found".to_owned()), "{method} {path}");
    }
    assert_eq!(on_disk(&server), [empty["id"].as_str().unwrap()]);
}

#[test]
fn what_is_too_large_is_refused_and_nothing_is_left() {
    let config = "[uploads]\ninput_bytes_max = 1000\ninputs_bytes_max = 1500\n";
    let server = Checked::configured(config, &[]);
    let refused = send(&server, "filename=\"large\"", &[b'x'; 1001]);
    assert_eq!(refusal(&refused), (413, "file_too_large".to_owned()));
    assert_eq!(refused.json()["error"]["detail"]["max_bytes"], 1000);
    assert_eq!(on_disk(&server), Vec::<String>::new());
    let whole = sent(&server, "fits", &[b'x'; 1000]);
    let refused = send(&server, "filename=\"more\"", &[b'x'; 501]);
    assert_eq!(refusal(&refused), (429, "quota_exhausted".to_owned()));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    assert_eq!(on_disk(&server), [whole["id"].as_str().unwrap()]);
    // Deleting makes room.
    let path = format!("/v1/files/{}", whole["id"].as_str().unwrap());
    assert_eq!(server.call("DELETE", &path, b"").status, 200);
    sent(&server, "more", &[b'x'; 501]);
}

#[test]
fn names_are_the_last_part_or_refused() {
    let server = Checked::start();
    for (parameters, name) in [
        ("filename=\"say %22hi%22.txt\"", "say \"hi\".txt"),
        ("filename=\"C:\\x\\y.txt\"", "y.txt"),
        ("filename=\"../up.txt\"", "up.txt"),
        ("filename*=UTF-8''%c3%bc.txt", "\u{fc}.txt"),
    ] {
        assert_eq!(send(&server, parameters, b"x").json()["filename"], name, "{parameters}");
    }
    for parameters in ["filename=\"..\"", "filename=\"\"", "filename=\"a%0Ab\"", "x=y"] {
        let refused = send(&server, parameters, b"x");
        assert_eq!(refusal(&refused), (400, "invalid_input".to_owned()), "{parameters}");
    }
    let twice = form("filename=a", b"x");
    let twice = [&twice[..twice.len() - 4], b"\r\n", &form("filename=b", b"y")].concat();
    for (kind, body) in [
        (FORM, twice),
        (FORM, b"--frontier--\r\n".to_vec()),
        (("Content-Type", "application/json"), b"{}".to_vec()),
        (("Content-Type", "multipart/form-data"), form("filename=a", b"x")),
    ] {
        let refused = server.call_with("POST", "/v1/files", &[kind], &body);
        assert_eq!(refusal(&refused), (400, "invalid_input".to_owned()));
    }
    assert_eq!(on_disk(&server).len(), 4);
}

#[test]
fn a_file_that_does_not_arrive_whole_is_not_there() {
    let mut server = Checked::start();
    let whole = form("filename=cut", &[b'x'; 3 << 20]);
    for sent in [whole.len() / 2, whole.len() - 9] {
        let mut stream = UnixStream::connect(server.daemon().socket()).unwrap();
        let (name, kind) = FORM;
        let head = format!(
            "POST /v1/files HTTP/1.1\r\nHost: x\r\n{name}: {kind}\r\nContent-Length: {}\r\n\r\n",
            whole.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&whole[..sent]).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _cut = stream.read_to_end(&mut answer);
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    assert_eq!(server.get("/v1/files")["data"], json!([]));
    assert_eq!(on_disk(&server), Vec::<String>::new());
    // A server that died in the middle leaves nothing either.
    std::fs::write(server.path("state/api/uploads/file_up0"), b"half").unwrap();
    std::fs::write(server.path("state/api/uploads/kept/file_up1"), b"no row").unwrap();
    server.crash_and_restart();
    // It answers when it has looked.
    assert_eq!(server.get("/v1/files")["data"], json!([]));
    assert_eq!(on_disk(&server), Vec::<String>::new());
}

#[test]
fn memory_does_not_grow_with_the_file() {
    const MEGABYTES: usize = 192;
    let server = Checked::start();
    let first = sent(&server, "warm", &[b'x'; 4 << 20]);
    assert_eq!(content(&server, &first).body.len(), 4 << 20);
    let before = peak_bytes(server.daemon().pid());
    let whole = form("filename=big", &vec![b'x'; MEGABYTES << 20]);
    let answer = server.call_with("POST", "/v1/files", &[FORM], &whole);
    drop(whole);
    let file = answer.json();
    assert_eq!(file["bytes"], MEGABYTES << 20);
    assert_eq!(content(&server, &file).body.len(), MEGABYTES << 20);
    let grown = peak_bytes(server.daemon().pid()) - before;
    assert!(grown < 24 << 20, "{grown} bytes more for a file of {MEGABYTES} MB");
}
