//! Clients that are slow, on purpose or not, and TLS.

use crate::public::{Public, free_address};
use hangar_tests::checked::Checked;
use hangar_tests::http::{Answer, exchange};
use hangar_tests::{program, scratch};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Few places, and little time for who takes one.
const TIGHT: &str = "[server]\nconnections_max = 4\nheader_timeout_s = 1\nstall_timeout_s = 2\nstall_bytes_min = 4096\n";

/// Reads until the other side closes.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let _reset = stream.read_to_end(&mut all);
    all
}

#[test]
fn who_sends_no_whole_head_holds_no_place() {
    let public = Public::configured(TIGHT);
    let token = public.token("x", "full");
    let mut slow: Vec<_> = (0..8).map(|_| public.connect()).collect();
    for (number, stream) in slow.iter_mut().enumerate() {
        let begin = ["", "GET /v1/uhp HTTP/1.1\r\n", "GET /v1/uhp HTTP/1.1\r\nX-A: "][number % 3];
        stream.write_all(begin.as_bytes()).unwrap();
    }
    // It waits for a place and gets one, though nobody gives his up.
    assert_eq!(public.get(&token, "/v1/sessions").status, 200);
    for stream in &mut slow {
        rest(stream);
    }
}

#[test]
fn a_body_may_take_long_and_must_not_stand_still() {
    let public = Public::configured(TIGHT);
    let token = public.token("x", "full");
    let head = |length: usize| {
        format!(
            "POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\
             Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
        )
    };
    let mut form = b"--b\r\nContent-Disposition: form-data; name=file; filename=f\r\n\r\n".to_vec();
    form.extend([b'x'; 40 << 10]);
    form.extend(b"\r\n--b--\r\n");
    // Much longer than the time without progress, and never without progress for that long.
    let mut steady = public.connect();
    steady.write_all(head(form.len()).as_bytes()).unwrap();
    for part in form.chunks(2 << 10) {
        std::thread::sleep(Duration::from_millis(200));
        steady.write_all(part).unwrap();
    }
    let answer = String::from_utf8(rest(&mut steady)).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // A byte now and then is not progress.
    let mut dripping = public.connect();
    dripping.write_all(head(form.len()).as_bytes()).unwrap();
    let mut writer = dripping.try_clone().unwrap();
    let drip = std::thread::spawn(move || {
        form.iter().all(|byte| {
            std::thread::sleep(Duration::from_millis(100));
            writer.write_all(&[*byte]).is_ok()
        })
    });
    let answer = String::from_utf8_lossy(&rest(&mut dripping)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 504") || answer.is_empty(), "{answer}");
    drop(dripping);
    assert!(!drip.join().unwrap(), "the server took all of it");
    assert_eq!(public.get(&token, "/v1/files").json()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn who_takes_nothing_is_left_and_who_takes_his_time_is_not() {
    const BYTES: usize = 48 << 20;
    let public = Public::configured(TIGHT);
    let token = public.token("x", "full");
    let id = public.call(&token, "POST", "/v1/environments", &json!({ "name": "e" })).json();
    let path = format!("/v1/environments/{}/files/big", id["id"].as_str().unwrap());
    let bearer = format!("Bearer {token}");
    let put =
        exchange(public.connect(), "PUT", &path, &[("Authorization", &bearer)], &vec![b'x'; BYTES]);
    assert_eq!(put.unwrap().status, 200);
    let ask = || {
        let mut stream = public.connect();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {bearer}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // More of them than there are places: all have to be left for another one to be served.
    let mut stuck: Vec<_> = (0..4).map(|_| ask()).collect();
    assert_eq!(public.get(&token, "/v1/sessions").status, 200);
    // The first one that was left made room; the others can be quick enough to go on now.
    assert!(stuck.iter_mut().any(|stream| rest(stream).len() < BYTES), "all got everything");
    let mut steady = ask();
    let mut part = vec![0; 4 << 20];
    for _ in 0..BYTES / part.len() {
        steady.read_exact(&mut part).unwrap();
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[test]
fn heads_are_bounded() {
    let public = Public::configured(TIGHT);
    for head in [
        format!("GET /v1/uhp HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(100 << 10)),
        format!("GET /v1/uhp HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1000)),
        format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100 << 10)),
    ] {
        let mut stream = public.connect();
        let _closed = stream.write_all(head.as_bytes());
        let answer = String::from_utf8_lossy(&rest(&mut stream)).into_owned();
        assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    assert_eq!(public.get("", "/v1/uhp").status, 200);
}

/// What `hangar serve` says when it does not start.
fn refused_start(config: &str, listen: &str) -> String {
    let root = scratch();
    let state = root.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("config.toml"), config).unwrap();
    let output = Command::new(program("hangar"))
        .args(["serve", "--listen", listen, "--state-dir"])
        .arg(&state)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(!state.join("run/warden.sock").exists(), "nothing was started");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn plaintext_leaves_the_host_only_when_the_operator_says_so() {
    let port = free_address().rsplit(':').next().unwrap().to_owned();
    let everywhere = format!("0.0.0.0:{port}");
    let refused = refused_start("", &everywhere);
    assert!(refused.contains("without TLS is refused") && refused.contains("hint:"), "{refused}");
    let half = refused_start("[server]\ntls_key = \"/nonexistent\"\n", &everywhere);
    assert!(half.contains("need each other"), "{half}");
    let missing = "[server]\ntls_key = \"/nonexistent\"\ntls_certificate = \"/nonexistent\"\n";
    let missing = refused_start(missing, &everywhere);
    assert!(missing.contains("server.tls_certificate"), "{missing}");
    let told = Checked::configured("[server]\nplaintext = true\n", &["--listen", &everywhere]);
    let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert_eq!(exchange(stream, "GET", "/v1/uhp", &[], b"").unwrap().status, 200);
    drop(told);
}

#[test]
fn a_server_with_a_certificate_speaks_tls_and_nothing_else() {
    let keys = scratch();
    let at = |name: &str| keys.path().join(name).to_str().unwrap().to_owned();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &at("key.pem"), "-out", &at("cert.pem")])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // The key is root's alone; the server reads it before it gives up its rights.
    let config = format!(
        "[server]\ntls_certificate = \"{}\"\ntls_key = \"{}\"\nheader_timeout_s = 1\n",
        at("cert.pem"),
        at("key.pem")
    );
    let public = Public::configured(&config);
    let token = public.token("x", "full");
    let curl = |version: &str| {
        let url = format!("https://{}/v1/sessions", public.address);
        let bearer = format!("Authorization: Bearer {token}");
        let output = Command::new("curl")
            .args([
                "-sS",
                "-i",
                "--noproxy",
                "*",
                "--cacert",
                &at("cert.pem"),
                version,
                "-H",
                &bearer,
                &url,
            ])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for version in ["--tlsv1.3", "--tlsv1.2"] {
        let answer = curl(version).to_ascii_lowercase();
        assert!(answer.starts_with("http/1.1 200"), "{answer}");
        assert!(answer.contains("strict-transport-security: max-age="), "{answer}");
    }
    // So does the command line, where it trusts the certificate.
    let hangar = |trusted: &str| {
        Command::new(program("hangar"))
            .args(["token", "list", "--server", &format!("https://{}", public.address)])
            .env("HANGAR_TOKEN", &token)
            .env("SSL_CERT_FILE", trusted)
            .output()
            .unwrap()
    };
    let asked = String::from_utf8(hangar(&at("cert.pem")).stderr).unwrap();
    assert!(asked.contains("local socket"), "the server refuses by name: {asked}");
    let untrusted = hangar("/etc/ssl/certs/ca-certificates.crt");
    let untrusted = String::from_utf8(untrusted.stderr).unwrap();
    assert!(untrusted.contains("that is trusted") && untrusted.contains("hint"), "{untrusted}");
    let plain = exchange(public.connect(), "GET", "/v1/uhp", &[], b"");
    assert!(plain.is_err(), "plaintext was answered");
    // Who connects and says nothing does not stay.
    rest(&mut public.connect());
    assert!(curl("--tlsv1.3").starts_with("HTTP/1.1 200"));
    let local: Answer = public.server.call("GET", "/v1/sessions", b"");
    assert_eq!(local.status, 200, "the socket on the host is as it was");
}
