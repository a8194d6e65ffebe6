//! Connections that a client cannot hold by taking nothing.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// How fast a slow client has to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// The time in which something has to be taken.
    pub(super) within: Duration,
    /// How much.
    pub(super) bytes_min: usize,
}

/// A connection that ends when bytes wait and the client does not take enough of them in time. It
/// may be idle for as long as nothing waits.
#[derive(Debug)]
pub(super) struct Paced<S> {
    stream: S,
    pace: Pace,
    deadline: Pin<Box<Sleep>>,
    /// Bytes wait; this many were taken since.
    taken: Option<usize>,
}

impl<S> Paced<S> {
    pub(super) fn new(stream: S, pace: Pace) -> Self {
        let deadline = Box::pin(sleep_until(Instant::now()));
        Self { stream, pace, deadline, taken: None }
    }

    fn took(&mut self, bytes: usize) {
        self.taken = self.taken.map(|taken| taken + bytes).filter(|all| *all < self.pace.bytes_min);
    }

    /// Nothing could be sent.
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.taken.is_none() {
            self.taken = Some(0);
            self.deadline.as_mut().reset(Instant::now() + self.pace.within);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes too little")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(Ok(count)) => {
                self.took(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.wait(context),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write_vectored(context, parts) {
            Poll::Ready(Ok(count)) => {
                self.took(count);
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => self.wait(context),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is asked for when everything was taken.
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => {
                self.taken = None;
                Poll::Ready(flushed)
            }
            Poll::Pending => self.wait(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const PACE: Pace = Pace { within: Duration::from_millis(50), bytes_min: 100 };

    #[tokio::test]
    async fn who_takes_nothing_is_left() {
        let (server, _client) = duplex(10);
        let mut server = Paced::new(server, PACE);
        let error = server.write_all(&[0; 11]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_takes_little_is_left() {
        let (server, mut client) = duplex(10);
        let mut server = Paced::new(server, PACE);
        let slow = tokio::spawn(async move {
            loop {
                client.read_u8().await.unwrap();
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let error = server.write_all(&[0; 1000]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        slow.abort();
    }
}
