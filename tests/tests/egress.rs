//! What builds reach through the proxy, and that there is no other way.

use hangar_tests::daemon::Daemon;
use hangar_tests::run::Place;
use serde_json::{Value, json};

/// What a build sees of a network. It prints for people: each line begins with what is shown.
const LOOK: &str = "set -eu
echo \"nameservers: $(grep -c nameserver /etc/resolv.conf || true)\"
echo \"routes: $(tail -n +2 /proc/net/route | wc -l) $(grep -vc ' lo$' /proc/net/ipv6_route || true)\"
echo \"interfaces: $(tail -n +3 /proc/net/dev | cut -d: -f1 | xargs)\"
python3 - <<'END'
import errno, os, socket, urllib.parse

def dial(family, kind, address):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(10)
            s.connect(address)
            return 'connected'
    except OSError as error:
        return errno.errorcode.get(error.errno, error)

four, six = socket.AF_INET, socket.AF_INET6
for address in '203.0.113.1', '10.0.0.1', '169.254.169.254':
    print('direct:', address, dial(four, socket.SOCK_STREAM, (address, 80)))
print('direct: udp', dial(four, socket.SOCK_DGRAM, ('203.0.113.1', 53)))
print('direct: ipv6', dial(six, socket.SOCK_STREAM, ('2001:db8::1', 80)))
try:
    print('lookup:', socket.getaddrinfo('example.org', 80))
except socket.gaierror as error:
    print('lookup:', error.strerror)
proxy = urllib.parse.urlsplit(os.environ['HTTPS_PROXY'])
print('proxy:', proxy.netloc, dial(four, socket.SOCK_STREAM, (proxy.hostname, proxy.port)))
END
";

/// Lines of a log that begin with what [`LOOK`] shows.
fn shown(log: &str) -> Vec<&str> {
    let names = ["nameservers:", "routes:", "interfaces:", "direct:", "lookup:", "proxy:"];
    log.lines().filter(|line| names.iter().any(|name| line.starts_with(name))).collect()
}

fn log(build: &Value) -> &str {
    build["log"].as_str().unwrap()
}

#[test]
fn installers_work_with_no_dns_and_no_route() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let package = r#"{"name": "x", "version": "1.0.0", "dependencies": {"ms": "2.1.3"}}"#;
    let files =
        [("requirements.txt", "six==1.17.0\n"), ("package.json", package), ("setup.sh", LOOK)];
    let id = daemon.environment("online", &files);
    let build = daemon.build(&id, &json!({}));
    assert_eq!(build["status"], "ready", "{}", log(&build));
    let expected = [
        "nameservers: 0",
        "routes: 0 0",
        "interfaces: lo",
        "direct: 203.0.113.1 ENETUNREACH",
        "direct: 10.0.0.1 ENETUNREACH",
        "direct: 169.254.169.254 ENETUNREACH",
        "direct: udp ENETUNREACH",
        "direct: ipv6 ENETUNREACH",
        "lookup: Temporary failure in name resolution",
        "proxy: 127.0.0.1:3128 connected",
    ];
    assert_eq!(shown(log(&build)), expected, "{}", log(&build));
    let packages = json!([
        {"manager": "npm", "name": "ms", "version": "2.1.3"},
        {"manager": "pip", "name": "six", "version": "1.17.0"},
    ]);
    let mut listed = build["packages"].as_array().unwrap().clone();
    listed.retain(|package| package["name"] != "setuptools");
    listed.sort_by_key(|package| package["name"].to_string());
    assert_eq!(Value::from(listed), packages);

    // A session of the version: what was installed works, and there is no proxy.
    let session = daemon.session(&json!({ "environment": id, "network": "loopback" }));
    let ended = session.bash(
        "python -c 'import six; print(six.__version__)'; node -p 'require(\"ms\")(\"2 days\")'
env | grep -ci proxy
python - <<'END'
import errno, socket
for address in ('127.0.0.1', 3128), ('203.0.113.1', 80):
    try:
        socket.create_connection(address, 10)
        print('connected')
    except OSError as error:
        print(errno.errorcode[error.errno])
END",
    );
    let expected = "1.17.0\n172800000\n0\nECONNREFUSED\nENETUNREACH\n";
    assert_eq!(ended.out(), expected, "{}", ended.err());
    // One with the proxy asks for the same as the build did, and no more.
    let session = daemon.session(&json!({ "environment": id, "network": "egress" }));
    let ended = session.bash(LOOK);
    assert_eq!(shown(&ended.out()), shown(log(&build)), "{}", ended.err());
    let fetch = "pip download -q --no-deps -d $WORKSPACE six==1.17.0 && ls $WORKSPACE";
    let ended = session.bash(fetch);
    assert_eq!(ended.out(), "six-1.17.0-py2.py3-none-any.whl\n", "{}", ended.err());
    // And one with nothing has not even itself.
    let session = daemon.session(&json!({ "network": "none" }));
    let ended = session.bash("echo > /dev/tcp/127.0.0.1/1");
    assert_eq!(ended.status(), "1");
    assert!(ended.err().contains("Network is unreachable"), "{}", ended.err());
    daemon.stop();
}

/// Asks through the proxy as installers do, prints the answer and fails when there is none.
const FETCH: &str = "import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).status)
except urllib.error.HTTPError as error:
    sys.exit(f'{error.code} {error.reason}')
except OSError as error:
    sys.exit(str(error))
";

#[test]
fn a_build_that_dials_a_refused_address_is_told_which_and_why() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let id = daemon.environment("refused", &[]);
    let build = |setup: &str| {
        let files = format!("/v1/environments/{id}/files/setup.sh");
        let script = format!("cat > /tmp/fetch.py <<'END'\n{FETCH}END\n{setup}\n");
        let taken = hangar_tests::http::ask(
            &place.state().join("run/api.sock"),
            "PUT",
            &files,
            script.as_bytes(),
        );
        assert_eq!(taken.status, 200);
        daemon.build(&id, &json!({}))
    };
    for (url, target, why) in [
        ("http://10.0.0.1/x", "10.0.0.1:80", "10.0.0.1 is a private address"),
        ("http://169.254.169.254/x", "169.254.169.254:80", "is a cloud's metadata service"),
        ("https://127.0.0.1:9/x", "127.0.0.1:9", "127.0.0.1 is a loopback address"),
        ("http://[fd00:ec2::254]/x", "[fd00:ec2::254]:80", "is a cloud's metadata service"),
        ("http://2852039166/x", "169.254.169.254:80", "is a cloud's metadata service"),
        ("http://203.0.113.9:25/x", "203.0.113.9:25", "port 25, and mail is not sent"),
    ] {
        let build = build(&format!("no_proxy= NO_PROXY= exec python3 /tmp/fetch.py {url}"));
        assert_eq!(build["status"], "failed", "{url}: {}", log(&build));
        let reason = build["error"].as_str().unwrap();
        let begin = "`setup.sh` ended with status 1; the build tried to reach ";
        assert!(reason.starts_with(begin) && reason.contains(target), "{url}: {reason}");
        assert!(reason.contains("refused (") && reason.contains(why), "{url}: {reason}");
        let note = log(&build).lines().find(|line| line.contains("[hangar: the build tried"));
        assert!(note.is_some_and(|note| note.contains(target)), "{url}: {}", log(&build));
        // The client was told too, in the answer itself.
        assert!(log(&build).contains("403 "), "{url}: {}", log(&build));
    }
    // A build that does without what was refused is a build like any other, and the log tells.
    let build = build("python3 /tmp/fetch.py http://10.0.0.1/ || true");
    assert_eq!((&build["status"], &build["error"]), (&json!("ready"), &json!("")), "{build}");
    assert!(log(&build).contains("[hangar: the build tried to reach 10.0.0.1:80"), "{build}");
    daemon.stop();
}

#[test]
fn a_requirement_at_a_refused_address_fails_with_the_reason() {
    let place = Place::default();
    let daemon = Daemon::start(&place.state());
    let requirement = "x @ http://10.0.0.1/x-1.0-py3-none-any.whl\n";
    let id = daemon.environment("inside", &[("requirements.txt", requirement)]);
    let build = daemon.build(&id, &json!({}));
    assert_eq!(build["status"], "failed", "{}", log(&build));
    let reason = build["error"].as_str().unwrap();
    assert_eq!(
        reason,
        "`pip install -r requirements.txt` ended with status 1; \
         the build tried to reach 10.0.0.1:80: refused (10.0.0.1 is a private address, which \
         sessions cannot reach)"
    );
    daemon.stop();
}
