//! One connection of a session: `CONNECT`, or one plain request, and the end.

use super::activity::{Activity, Watched};
use super::dial::{DialError, dial};
use super::policy::Policy;
use super::session::Session;
use super::target::Target;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

type Body = BoxBody<Bytes, hyper::Error>;

/// The longest head of a request or an answer, in bytes.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// The most fields in a head.
const FIELDS_MAX: usize = 100;

/// Serves one request; a `CONNECT` that is granted turns into a tunnel.
///
/// There is never a second request: with one, two parsers that disagree about where the first
/// one ends could be played against each other.
pub(super) async fn serve<P: Policy>(stream: TcpStream, session: Arc<Session<P>>) {
    let limits = session.limits;
    let activity = Activity::new();
    let work = async {
        let exchange = Arc::new(Exchange {
            session,
            activity: Arc::clone(&activity),
            upstream: Mutex::new(JoinSet::new()),
            tunnel: Mutex::new(None),
        });
        let answering = Arc::clone(&exchange);
        let service = service_fn(move |request| {
            let exchange = Arc::clone(&answering);
            async move { Ok::<_, Infallible>(exchange.answer(request).await) }
        });
        let served = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head_timeout)
            .keep_alive(false)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(FIELDS_MAX)
            .serve_connection(TokioIo::new(Watched::new(stream, Arc::clone(&activity))), service)
            .with_upgrades()
            .await;
        let tunnel = exchange.tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Ok(()), Some(tunnel)) = (served, tunnel) {
            tunnel.carry().await;
        }
    };
    tokio::select! {
        () = work => {}
        () = activity.ceased_for(limits.idle_timeout) => {}
    }
}

/// The one request of a connection and what it leads to; dropping it ends all of that.
struct Exchange<P> {
    session: Arc<Session<P>>,
    activity: Arc<Activity>,
    /// Drives the connection to the target of a plain request.
    upstream: Mutex<JoinSet<()>>,
    /// What begins once `CONNECT` is answered.
    tunnel: Mutex<Option<Tunnel>>,
}

struct Tunnel {
    client: hyper::upgrade::OnUpgrade,
    target: Watched<TcpStream>,
}

impl Tunnel {
    async fn carry(mut self) {
        let Ok(client) = self.client.await else { return };
        // Either side can break off at any time; there is nobody to tell.
        let _ended =
            tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut self.target).await;
    }
}

impl<P: Policy> Exchange<P> {
    async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let answered = match *request.method() {
            Method::CONNECT => self.open_tunnel(request).await,
            Method::GET | Method::HEAD | Method::POST => self.forward(request).await,
            _ => Err(Refused::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "the proxy takes CONNECT, GET, HEAD and POST",
            )),
        };
        answered.unwrap_or_else(|refused| refused.into_response())
    }

    async fn open_tunnel(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        let target = self.target(request.uri(), None)?;
        let stream = self.dial(&target).await?;
        let tunnel = Tunnel { client: hyper::upgrade::on(request), target: stream };
        *self.tunnel.lock().unwrap_or_else(PoisonError::into_inner) = Some(tunnel);
        Ok(Response::new(Full::default().map_err(|never| match never {}).boxed()))
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Response<Body>, Refused> {
        if request.uri().scheme_str() != Some("http") {
            return Err(Refused::new(
                StatusCode::BAD_REQUEST,
                "this is a proxy: ask for http://host/path, or CONNECT to a host and port",
            ));
        }
        let target = self.target(request.uri(), Some(80))?;
        let request = for_origin(request, &target)?;
        let stream = self.dial(&target).await?;
        let unanswered = |_| Refused::new(StatusCode::BAD_GATEWAY, "the target broke off");
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(FIELDS_MAX)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(unanswered)?;
        self.upstream.lock().unwrap_or_else(PoisonError::into_inner).spawn(async move {
            // Its error is seen by the request and by the reader of the body.
            let _ended = connection.await;
        });
        let mut response = sender.send_request(request).await.map_err(unanswered)?;
        remove_hop_by_hop(response.headers_mut());
        Ok(response.map(BodyExt::boxed))
    }

    fn target(&self, uri: &Uri, default_port: Option<u16>) -> Result<Target, Refused> {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        Target::parse(authority, default_port).map_err(|reason| {
            self.session.reports.refused(&self.session.id, authority, reason);
            Refused::new(StatusCode::FORBIDDEN, reason)
        })
    }

    async fn dial(&self, target: &Target) -> Result<Watched<TcpStream>, Refused> {
        match dial(target, &self.session).await {
            Ok(stream) => Ok(Watched::new(stream, Arc::clone(&self.activity))),
            Err(error) => {
                let status = match error {
                    DialError::Denied(_) => StatusCode::FORBIDDEN,
                    DialError::Silent(_) => StatusCode::GATEWAY_TIMEOUT,
                    DialError::Unresolved(_) | DialError::Failed(_) => StatusCode::BAD_GATEWAY,
                };
                if status == StatusCode::FORBIDDEN {
                    let reason = error.to_string();
                    self.session.reports.refused(&self.session.id, &target.to_string(), &reason);
                }
                Err(Refused::new(status, format!("{target}: {error}")))
            }
        }
    }
}

/// The request as the target gets it: the path alone, the host that was dialled, and nothing
/// that was meant for this proxy.
fn for_origin(
    mut request: Request<Incoming>,
    target: &Target,
) -> Result<Request<Incoming>, Refused> {
    let malformed = |_| Refused::new(StatusCode::BAD_REQUEST, "the request target is malformed");
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse::<Uri>().map_err(malformed)?;
    let host = target.to_string();
    let host = HeaderValue::try_from(host.strip_suffix(":80").unwrap_or(&host))
        .map_err(|_| Refused::new(StatusCode::BAD_REQUEST, "the host is malformed"))?;
    *request.uri_mut() = path;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    headers.insert(header::HOST, host);
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// Removes what is between two neighbours only (RFC 9110 §7.6.1). The framing of the body is
/// made anew by the sender.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|list| list.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name| *name != header::HOST && *name != header::CONTENT_LENGTH)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in [
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

/// An answer of the proxy itself.
struct Refused {
    status: StatusCode,
    sentence: String,
}

impl Refused {
    fn new(status: StatusCode, sentence: impl Into<String>) -> Self {
        Self { status, sentence: sentence.into() }
    }

    /// The sentence is the reason phrase too: installers print that and drop the body of a
    /// refused `CONNECT`.
    fn into_response(self) -> Response<Body> {
        let body = Full::from(format!("hangar egress: {}\n", self.sentence));
        let mut response = Response::new(body.map_err(|never| match never {}).boxed());
        *response.status_mut() = self.status;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if let Ok(phrase) = hyper::ext::ReasonPhrase::try_from(self.sentence.into_bytes()) {
            response.extensions_mut().insert(phrase);
        }
        response
    }
}
