//! What sessions and builds reach, and what they do not.

use super::{Place, stderr, stdout};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A server on all addresses of this host that counts who comes.
struct Service {
    port: u16,
    visits: Arc<AtomicUsize>,
}

impl Service {
    fn start() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let visits = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&visits);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhost");
            }
        });
        Self { port, visits }
    }

    fn visits(&self) -> usize {
        self.visits.load(Ordering::SeqCst)
    }
}

/// The address this host has towards others; no packet is sent.
fn outer_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("203.0.113.1:9").unwrap();
    socket.local_addr().unwrap().ip()
}

/// Asks for an address through the proxy of the session, or past it, and prints what comes.
const ASK: &str = "import sys, urllib.request
how, url = sys.argv[1:]
proxies = {} if how == 'past' else None
opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))
try:
    print(opener.open(url, timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.reason)
except Exception as error:
    print(type(error).__name__, error)
";

#[test]
fn this_host_is_out_of_reach_of_every_network() {
    let service = Service::start();
    let place = Place::with_server(&[]);
    let outer = outer_address();
    let ask = |network: &str, how: &str, host: &str| {
        let url = format!("http://{host}:{}/", service.port);
        let command = ["env", "-u", "NO_PROXY", "-u", "no_proxy", "python3", "-c", ASK, how, &url];
        let output = place.run(&["--quiet", "--network", network], &command);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    for host in ["127.0.0.1", "localhost", "2130706433", "0.0.0.0", &outer.to_string()] {
        let answer = ask("egress", "through", host);
        assert!(answer.starts_with("403 "), "{host}: {answer}");
    }
    for network in ["egress", "loopback", "none"] {
        for host in ["127.0.0.1".to_owned(), outer.to_string()] {
            let answer = ask(network, "past", &host);
            assert!(answer.starts_with("URLError"), "{network} {host}: {answer}");
        }
    }
    assert_eq!(service.visits(), 0);
    // The probe can do harm at all: from the host the same request is answered.
    let url = format!("http://127.0.0.1:{}/", service.port);
    let here = std::process::Command::new("python3").args(["-c", ASK, "past", &url]).output();
    assert_eq!(stdout(&here.unwrap()), "host\n");
    assert_eq!(service.visits(), 1);
}

#[test]
fn a_build_that_dials_a_refused_address_is_told_so() {
    let place = Place::without_server();
    let service = Service::start();
    let url = format!("http://{}:{}/", outer_address(), service.port);
    let script = format!("python3 -c \"{ASK}\" through {url}\nexit 1\n");
    place.write("dialling/setup.sh", &script.replace("$", "\\$"));
    let output = place.run_of("dialling", &[], &["true"]);
    assert_eq!(output.status.code(), Some(125));
    let said = stderr(&output);
    assert!(said.contains("403 "), "{said}");
    assert!(said.contains("which sessions cannot reach"), "{said}");
    assert_eq!(service.visits(), 0);
}

/// A field of `/proc/<pid>/status`.
fn status(pid: &str, field: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = text.lines();
    let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {field}")).trim().to_owned()
}

/// The processes whose parent is `parent`.
fn children(parent: &str) -> Vec<String> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok())
        .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
        .filter(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after_name = stat.rsplit(") ").next().unwrap_or_default();
            after_name.split(' ').nth(1) == Some(parent)
        })
        .collect()
}

fn command_line(pid: &str) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

#[test]
fn the_proxy_has_no_rights_no_files_and_only_sockets() {
    let place = Place::with_server(&[]);
    let made = place.json(&["session", "create", "--network", "egress", "--json"]);
    let server = place.server.as_ref().unwrap().id().to_string();
    let warden = children(&server).into_iter().find(|pid| command_line(pid).contains("warden"));
    let warden = warden.expect("the server has a warden");
    let is_proxy = |pid: &String| command_line(pid).starts_with("hangar\0egress\0");
    let mut proxies = Vec::new();
    place.wait(
        || {
            proxies = children(&warden).into_iter().filter(is_proxy).collect();
            // Once it is confined its files are not for others to see, root excepted.
            proxies.first().is_some_and(|pid| status(pid, "NoNewPrivs") == "1")
        },
        "the warden starts the proxy",
    );
    let pid = &proxies[0];
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(status(pid, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(pid, "Groups"), "");
    let uids = status(pid, "Uid");
    let uids: Vec<&str> = uids.split_whitespace().collect();
    assert!(uids.iter().all(|uid| *uid == uids[0] && *uid != "0"), "{uids:?}");
    assert_ne!(uids[0], status(&server, "Uid").split_whitespace().next().unwrap());
    // The C library reads the map of its own memory when it starts, and lets go of it.
    place.wait(|| open_files(pid).is_empty(), "the proxy has no file open but sockets");
    let id = made["id"].as_str().unwrap();
    assert!(place.hangar(["session", "rm", id]).status().unwrap().success());
}

/// What a process has open that is more than a socket, a pipe or nothing.
fn open_files(pid: &str) -> Vec<PathBuf> {
    let harmless = ["socket:", "anon_inode:", "/dev/null", "pipe:"];
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    entries
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|target| !harmless.iter().any(|kind| target.to_string_lossy().starts_with(kind)))
        .collect()
}

#[test]
fn the_proxy_is_started_by_the_warden_only() {
    let mut command = std::process::Command::new(hangar_tests::program("hangar"));
    let output = command.args(["egress", "--control-fd", "3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("started by the warden only"), "{}", stderr(&output));
}
