//! What sessions and builds reach, and what they do not.

use super::{Place, stderr, stdout};
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, UdpSocket};
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
