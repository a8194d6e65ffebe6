//! Parts of files and conditions on them.

use hangar_tests::checked::{Checked, refusal};

pub fn ranges_are_clamped_refused_or_ignored() {
    let server = Checked::start();
    let whole: Vec<u8> = (0..100).collect();
    let id = server.environment("e08", &[("empty", "")]);
    server.put_file(&id, "f", &whole);
    let path = format!("/v1/environments/{id}/files/f");
    for (range, status, part) in [
        ("bytes=0-10", 206, 0..11),
        ("bytes=90-", 206, 90..100),
        ("bytes=-10", 206, 90..100),
        ("bytes=-500", 206, 0..100),
        ("bytes=90-110", 206, 90..100),
        ("bytes=100-", 416, 0..0),
        ("bytes=-0", 416, 0..0),
        ("bytes=5-2", 200, 0..100),
        ("bytes=0-1,5-6", 200, 0..100),
        ("bytes=x", 200, 0..100),
        ("lines=0-1", 200, 0..100),
    ] {
        let answer = server.call_with("GET", &path, &[("Range", range)], b"");
        assert_eq!(answer.status, status, "{range}");
        if status == 416 {
            assert_eq!(answer.field("content-range"), Some("bytes */100"), "{range}");
            assert_eq!(refusal(&answer).1, "hangar_range_not_satisfiable");
            continue;
        }
        assert_eq!(answer.body, whole[part.clone()], "{range}");
        let told = format!("bytes {}-{}/100", part.start, part.end - 1);
        let expected = (status == 206).then_some(told.as_str());
        assert_eq!(answer.field("content-range"), expected, "{range}");
        let empty = format!("/v1/environments/{id}/files/empty");
        let empty = server.call_with("GET", &empty, &[("Range", range)], b"");
        assert_eq!((empty.status, empty.body.len()), (200, 0), "{range} of an empty file");
        // RFC 9110 knows ranges of GET only.
        let head = server.call_with("HEAD", &path, &[("Range", range)], b"");
        assert_eq!((head.status, head.field("content-length")), (200, Some("100")), "{range}");
        assert!(head.body.is_empty());
    }
}

pub fn parts_make_the_whole() {
    let server = Checked::start();
    let id = server.environment("e08", &[]);
    let whole: Vec<u8> = (0..300_000u32).map(|n| (n / 3) as u8).collect();
    server.put_file(&id, "f", &whole);
    let path = format!("/v1/environments/{id}/files/f");
    let etag = server.call("HEAD", &path, b"").field("etag").unwrap().to_owned();
    let mut parts = Vec::new();
    while parts.len() < whole.len() {
        let range = format!("bytes={}-{}", parts.len(), parts.len() + 99_999);
        let fields = [("Range", range.as_str()), ("If-Range", etag.as_str())];
        let answer = server.call_with("GET", &path, &fields, b"");
        assert_eq!(answer.status, 206);
        parts.extend(answer.body);
    }
    assert!(parts == whole);
    // Another file took its place: the rest of it would not fit what the client has.
    server.put_file(&id, "f", "short");
    let fields = [("Range", "bytes=1-"), ("If-Range", etag.as_str())];
    let answer = server.call_with("GET", &path, &fields, b"");
    assert_eq!((answer.status, answer.body.as_slice()), (200, &b"short"[..]));
    let known = [("If-None-Match", answer.field("etag").unwrap())];
    let same = server.call_with("GET", &path, &known, b"");
    assert_eq!((same.status, same.body.len()), (304, 0));
    // An artifact is sent in parts too.
    let session = server.daemon().session(&serde_json::json!({}));
    assert_eq!(session.bash("printf 0123456789 | tee /workspace/f").out(), "0123456789");
    let listed = server.daemon().get(&format!("/v1/sessions/{}/files", session.id));
    let (container, file) = (&listed["files"][0]["container_id"], &listed["files"][0]["id"]);
    let path = format!(
        "/v1/containers/{}/files/{}/content",
        container.as_str().unwrap(),
        file.as_str().unwrap()
    );
    assert_eq!(server.call_with("GET", &path, &[("Range", "bytes=-3")], b"").body, b"789");
    session.delete();
}
