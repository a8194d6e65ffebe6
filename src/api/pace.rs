//! Bodies that a client cannot hold open by sending next to nothing.

use super::auth::Peer;
use crate::app::App;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// A body of which some bytes have to come in every span of time in which they are waited for. How
/// long the whole of it takes does not count.
struct Paced {
    body: Body,
    within: Duration,
    bytes_min: usize,
    deadline: Pin<Box<Sleep>>,
    /// Bytes are waited for; this many came since.
    came: Option<usize>,
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let min = self.bytes_min;
                self.came = self.came.map(|came| came + bytes).filter(|all| *all < min);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(other) => Poll::Ready(other.map(|frame| frame.map_err(Into::into))),
            Poll::Pending => {
                if self.came.is_none() {
                    self.came = Some(0);
                    let end = Instant::now() + self.within;
                    self.deadline.as_mut().reset(end);
                }
                ready!(self.deadline.as_mut().poll(context));
                let late = io::Error::new(io::ErrorKind::TimedOut, "the client sends too little");
                Poll::Ready(Some(Err(late.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Whether a body ended because too little of it came.
pub(super) fn is_late(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        let io = error.downcast_ref::<io::Error>();
        if io.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Gives the bodies of clients elsewhere a pace. Who is on this host may stop and go on.
pub(super) async fn pace(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Peer>() != Some(&Peer::Remote) {
        return next.run(request).await;
    }
    let server = &app.config.server;
    let (within, bytes_min) = (Duration::from_secs(server.stall_timeout_s), server.stall_bytes_min);
    let deadline = Box::pin(sleep_until(Instant::now()));
    let paced = |body| Body::new(Paced { body, within, bytes_min, deadline, came: None });
    next.run(request.map(paced)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    /// Collects a body of so many pieces, then of one byte every five milliseconds for ever.
    async fn collect(pieces: usize) -> Result<usize, axum::Error> {
        let quick = stream::iter(0..pieces).map(|_| Ok::<_, io::Error>(vec![0; 50]));
        let slow = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            Some((Ok::<_, io::Error>(vec![0]), ()))
        });
        let body = match pieces {
            0 => Body::from_stream(slow),
            _ => Body::from_stream(quick),
        };
        let deadline = Box::pin(sleep_until(Instant::now()));
        let within = Duration::from_millis(100);
        let body = Body::new(Paced { body, within, bytes_min: 1000, deadline, came: None });
        body.collect().await.map(|all| all.to_bytes().len())
    }

    #[tokio::test]
    async fn a_body_that_drips_ends_late_and_others_end() {
        assert_eq!(collect(100).await.unwrap(), 5000);
        assert_eq!(collect(1).await.unwrap(), 50, "it is short");
        assert!(is_late(&collect(0).await.unwrap_err()));
    }
}
