//! Bodies and their types, and who may overwrite what.

use hangar_tests::checked::{Checked, refusal};
use serde_json::json;

const FORM: &[u8] = b"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"../up.txt\"\r\n\r\nx\r\n--b--\r\n";
const FORM_TYPE: (&str, &str) = ("Content-Type", "multipart/form-data; boundary=b");

pub fn a_multipart_form_is_no_project() {
    let server = Checked::start();
    let id = server.environment("e09", &[("kept", "x")]);
    for name in ["say \\\"hi\\\".txt", "C:\\x\\y.txt", "../up.txt"] {
        let form = String::from_utf8_lossy(FORM).replace("../up.txt", name);
        let path = format!("/v1/environments/{id}/import?replace=1");
        let answer = server.call_with("POST", &path, &[FORM_TYPE], form.as_bytes());
        assert_eq!(refusal(&answer), (422, "environment_invalid".to_owned()), "{name}");
    }
    let tree = server.get(&format!("/v1/environments/{id}/files"));
    assert_eq!((&tree["count"], &tree["entries"][0]["path"]), (&json!(1), &json!("kept")));
}

pub fn a_body_of_any_type_is_kept() {
    let server = Checked::start();
    let id = server.environment("e09", &[]);
    let path = format!("/v1/environments/{id}/files/up.txt");
    for (kind, bytes) in [
        (FORM_TYPE.1, FORM),
        ("application/json", &b"{not json"[..]),
        ("application/x-www-form-urlencoded", b"a=b&c=%20"),
        ("text/plain", b"\xff\r\n\0"),
    ] {
        let put = server.call_with("PUT", &path, &[("Content-Type", kind)], bytes);
        assert_eq!(put.json()["bytes"], bytes.len());
        let read = server.call("GET", &path, b"");
        assert_eq!(read.body, bytes, "{kind}");
        assert_eq!(read.field("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(read.field("x-content-type-options"), Some("nosniff"));
    }
}

#[test]
fn a_file_is_overwritten_only_by_who_has_seen_it() {
    let server = Checked::start();
    let id = server.environment("conditions", &[]);
    let path = format!("/v1/environments/{id}/files/f");
    let put = |fields: &[(&str, &str)], bytes: &[u8]| {
        let answer = server.call_with("PUT", &path, fields, bytes);
        let etag = answer.field("etag").map(str::to_owned);
        (answer.status, etag)
    };
    let (created, first) = put(&[("If-None-Match", "*")], b"one");
    let first = first.unwrap();
    assert_eq!(created, 200);
    assert_eq!(put(&[("If-None-Match", "*")], b"again").0, 412);
    let (status, second) = put(&[("If-Match", &first)], b"two");
    assert_eq!(status, 200);
    assert_ne!(second.as_deref(), Some(first.as_str()));
    assert_eq!(put(&[("If-Match", &first)], b"late").0, 412);
    let stale = server.call_with("DELETE", &path, &[("If-Match", &first)], b"");
    assert_eq!(refusal(&stale), (412, "hangar_precondition_failed".to_owned()));
    assert_eq!(server.call("GET", &path, b"").body, b"two");
    let fresh = [("If-Match", second.as_deref().unwrap())];
    assert_eq!(server.call_with("DELETE", &path, &fresh, b"").status, 200);
}

#[test]
fn a_file_that_is_too_large_is_refused_and_a_script_stays_executable() {
    let server = Checked::configured("[uploads]\nfile_bytes_max = 1000\n", &[]);
    let id = server.environment("limits", &[("f", "old")]);
    let path = format!("/v1/environments/{id}/files/f");
    let large = server.call("PUT", &path, &[0; 1001]);
    assert_eq!(refusal(&large), (413, "file_too_large".to_owned()));
    assert_eq!(large.json()["error"]["detail"]["max_bytes"], 1000);
    assert_eq!(server.call("GET", &path, b"").body, b"old");
    assert_eq!(server.call("PUT", &path, &[0; 1000]).status, 200);
    let file = server.state().join(format!("api/sources/{id}/f"));
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    server.put_file(&id, "f", "#!/bin/sh\n");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o755);
}
