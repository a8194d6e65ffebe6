//! The proxy over real sockets. What is dialled here is on loopback, so most tests run with a
//! policy that lets loopback pass; those about refusals run with the shipped one.

use super::policy::{Denied, NamedList, Policy};
use super::session::Limits;
use super::{EgressError, take_orders};
use hangar_runtime::ids::SessionId;
use hangar_runtime::wire::egress::{Order, Report};
use hangar_runtime::wire::{pair, receive, send};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Lets loopback pass and nothing else, so that no test leaves the machine.
struct LoopbackOnly;

impl Policy for LoopbackOnly {
    fn check(&self, address: IpAddr, _port: u16) -> Result<(), Denied> {
        match address.is_loopback() {
            true => Ok(()),
            false => Err(Denied { address, reason: "not loopback" }),
        }
    }
}

/// A proxy with one session, and the warden's end of its control socket.
struct Proxy {
    control: Arc<OwnedFd>,
    session: SessionId,
    address: SocketAddr,
    task: JoinHandle<Result<(), EgressError>>,
}

impl Proxy {
    async fn start(policy: impl Policy, limits: Limits) -> Self {
        let (near, far) = pair().unwrap();
        let task = tokio::spawn(take_orders(far, policy, limits));
        let session = SessionId::parse(&format!("hsess{}", "a".repeat(32))).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self { control: Arc::new(near), session, address, task };
        assert_eq!(proxy.report().await, Report::Ready);
        let order = Order::Serve { session: proxy.session.clone() };
        send(&*proxy.control, &order, &[listener.as_fd()]).unwrap();
        proxy
    }

    async fn report(&self) -> Report {
        let control = Arc::clone(&self.control);
        tokio::task::spawn_blocking(move || receive::<Report>(&*control).unwrap().0).await.unwrap()
    }

    /// Sends the bytes and returns everything that comes back.
    async fn exchange(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        // A reset after the answer is an end like any other.
        let _end = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    async fn connect_to(&self, target: SocketAddr) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
        stream
    }
}

/// A server that counts its connections, keeps what it was sent and answers each with `answer`.
struct Origin {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: tokio::sync::mpsc::UnboundedReceiver<String>,
}

impl Origin {
    async fn start(answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
        let counter = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    let mut piece = [0; 4096];
                    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                        match stream.read(&mut piece).await {
                            Ok(0) | Err(_) => break,
                            Ok(count) => request.extend_from_slice(&piece[..count]),
                        }
                    }
                    let _ = sender.send(String::from_utf8_lossy(&request).into_owned());
                    let _ = stream.write_all(answer).await;
                });
            }
        });
        Self { address, connections, requests }
    }
}

#[tokio::test]
async fn a_tunnel_carries_bytes_both_ways_and_both_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let (mut read, mut write) = proxy.connect_to(target).await.into_split();
    let expected = sent.clone();
    let writer = tokio::spawn(async move {
        write.write_all(&sent).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    read.read_to_end(&mut back).await.unwrap();
    assert!(back == expected, "{} bytes came back of {}", back.len(), expected.len());
    writer.await.unwrap();
    echo.await.unwrap();
}

#[tokio::test]
async fn a_plain_request_reaches_the_host_that_was_dialled() {
    let mut origin = Origin::start(
        b"HTTP/1.1 200 Fine\r\nContent-Length: 5\r\nKeep-Alive: x\r\nX-Own: y\r\n\r\nhello",
    )
    .await;
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let target = origin.address;
    let answer = proxy
        .exchange(
            format!(
                "GET http://{target}/a/b?c=d HTTP/1.1\r\nHost: other.example\r\n\
                 Proxy-Authorization: secret\r\nConnection: X-Hop, keep-alive\r\nX-Hop: 1\r\n\
                 TE: trailers\r\nUpgrade: h2c\r\nX-Kept: 1\r\n\r\n"
            )
            .as_bytes(),
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
    assert!(answer.to_lowercase().contains("x-own: y"), "{answer}");
    assert!(!answer.to_lowercase().contains("keep-alive: x"), "{answer}");
    let request = origin.requests.recv().await.unwrap().to_lowercase();
    assert!(request.starts_with("get /a/b?c=d http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("host: {target}\r\n")), "{request}");
    assert!(request.contains("x-kept: 1\r\n"), "{request}");
    for gone in ["other.example", "secret", "x-hop", "te:", "upgrade"] {
        assert!(!request.contains(gone), "{gone} in {request}");
    }
}

#[tokio::test]
async fn a_second_request_on_a_connection_is_never_served() {
    let origin = Origin::start(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let one = format!("GET http://{}/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.address);
    let answer = proxy.exchange(format!("{one}{one}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert_eq!(origin.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn what_is_no_request_to_a_proxy_is_refused() {
    let origin = Origin::start(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let target = origin.address;
    for (request, status) in [
        ("GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), "400"),
        (format!("GET https://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n"), "400"),
        (format!("GET ftp://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n"), "400"),
        (format!("TRACE http://{target}/ HTTP/1.1\r\nHost: x\r\n\r\n"), "405"),
        (format!("GET http://{target}/ HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200)), "431"),
        (format!("GET http://{target}/{} HTTP/1.1\r\n\r\n", "a".repeat(70_000)), "4"),
        (
            format!(
                "POST http://{target}/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
            ),
            "400",
        ),
        ("\0\0\0\0\r\n\r\n".to_owned(), "400"),
        ("CONNECT index.example\0.example:443 HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("CONNECT allowed.example@127.0.0.1:443 HTTP/1.1\r\n\r\n".to_owned(), "403"),
        ("CONNECT index.example HTTP/1.1\r\n\r\n".to_owned(), "403"),
    ] {
        let answer = proxy.exchange(request.as_bytes()).await;
        let start: String = request.chars().take(60).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{start:?}: {answer}");
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 0);
}

/// The shipped policy, through every way of writing this host's loopback; the twin that shows
/// the target could be reached is the same request under the other policy.
#[tokio::test]
async fn this_host_is_refused_however_it_is_written() {
    let origin = Origin::start(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let port = origin.address.port();
    let refusing = Proxy::start(NamedList, Limits::default()).await;
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "localhost",
        "LOCALHOST.",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "[::1]",
        "[64:ff9b::127.0.0.1]",
    ] {
        let authority = format!("{host}:{port}");
        for request in [
            format!("CONNECT {authority} HTTP/1.1\r\nHost: index.example\r\n\r\n"),
            format!("GET http://{authority}/ HTTP/1.1\r\nHost: index.example\r\n\r\n"),
        ] {
            let answer = refusing.exchange(request.as_bytes()).await;
            assert!(answer.starts_with("HTTP/1.1 403 "), "{authority}: {answer}");
            assert!(answer.contains("which sessions cannot reach"), "{authority}: {answer}");
            match refusing.report().await {
                Report::Refused { session, target, reason } => {
                    assert_eq!(session, refusing.session);
                    assert!(target.ends_with(&format!(":{port}")), "{target}");
                    assert!(reason.contains("which sessions cannot reach"), "{reason}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 0);
    let dialling = Proxy::start(LoopbackOnly, Limits::default()).await;
    for host in ["127.0.0.1", "127.1", "0x7f.1", "localhost"] {
        let request = format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n");
        let answer = dialling.exchange(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{host}: {answer}");
    }
    assert_eq!(origin.connections.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn targets_that_do_not_answer_are_told_apart_from_refusals() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let answer = proxy.exchange(format!("CONNECT {closed} HTTP/1.1\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let answer = proxy.exchange(b"CONNECT no-such-name.invalid:443 HTTP/1.1\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert!(answer.contains("does not resolve"), "{answer}");
}

#[tokio::test]
async fn silent_clients_and_idle_tunnels_are_closed() {
    let limits = Limits {
        head_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(LoopbackOnly, limits).await;
    let mut slow = TcpStream::connect(proxy.address).await.unwrap();
    slow.write_all(b"CONNECT 127").await.unwrap();
    let mut rest = Vec::new();
    let _end = slow.read_to_end(&mut rest).await;
    let mut tunnel = proxy.connect_to(listener.local_addr().unwrap()).await;
    let (mut far, _) = listener.accept().await.unwrap();
    assert_eq!(tunnel.read_to_end(&mut rest).await.unwrap_or(0), 0);
    assert_eq!(far.read_to_end(&mut rest).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn connections_of_a_session_are_bounded_and_a_free_place_is_used() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let proxy = Proxy::start(LoopbackOnly, limits).await;
    let first = proxy.connect_to(target).await;
    let (first_far, _) = listener.accept().await.unwrap();
    let _second = proxy.connect_to(target).await;
    let mut third = TcpStream::connect(proxy.address).await.unwrap();
    third.write_all(format!("CONNECT {target} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut byte = [0];
    let early = tokio::time::timeout(Duration::from_millis(200), third.read(&mut byte)).await;
    assert!(early.is_err(), "a third connection was served beside two: {early:?}");
    drop((first, first_far));
    assert_eq!(third.read(&mut byte).await.unwrap(), 1);
}

#[tokio::test]
async fn forgetting_a_session_ends_its_listener_and_connections() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    let mut tunnel = proxy.connect_to(listener.local_addr().unwrap()).await;
    send(&*proxy.control, &Order::Forget { session: proxy.session.clone() }, &[]).unwrap();
    let mut rest = Vec::new();
    assert_eq!(tunnel.read_to_end(&mut rest).await.unwrap_or(0), 0);
    assert!(TcpStream::connect(proxy.address).await.is_err());
    // The proxy lives on and serves the session again.
    let again = std::net::TcpListener::bind(proxy.address).unwrap();
    let order = Order::Serve { session: proxy.session.clone() };
    send(&*proxy.control, &order, &[again.as_fd()]).unwrap();
    drop(again);
    proxy.connect_to(listener.local_addr().unwrap()).await;
}

#[tokio::test]
async fn the_end_of_the_control_socket_ends_the_proxy() {
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    drop(proxy.control);
    proxy.task.await.unwrap().unwrap();
    assert!(TcpStream::connect(proxy.address).await.is_err());
}

#[tokio::test]
async fn an_order_without_its_listener_ends_the_proxy() {
    let proxy = Proxy::start(LoopbackOnly, Limits::default()).await;
    send(&*proxy.control, &Order::Serve { session: proxy.session.clone() }, &[]).unwrap();
    assert!(matches!(proxy.task.await.unwrap(), Err(EgressError::Descriptors(0))));
}
