//! A socket whose peer must take an answer within a limit and, where that is asked for, send a
//! request's head within another.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// How long a peer may stay silent between requests, and how long a head may take once it has begun.
///
/// hyper has one timer for both, which is right where both may be short. A client that keeps
/// connections for reuse must be the one to give them up, or its next request meets our close.
#[derive(Debug)]
pub(crate) struct Reading {
    idle: Duration,
    head: Duration,
    /// Odd while a request is being answered; even while one is awaited.
    turns: AtomicU64,
}

impl Reading {
    /// Nothing is limited before the first [`Reading::awaits`]: a TLS handshake has its own limit.
    pub(crate) fn new(idle: Duration, head: Duration) -> Arc<Reading> {
        Arc::new(Reading {
            idle,
            head,
            turns: AtomicU64::new(1),
        })
    }

    /// The next request is awaited from now on.
    pub(crate) fn awaits(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// A request's head is whole.
    pub(crate) fn began(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }
}

/// The limit that runs on what is read.
#[derive(Debug)]
struct Patience {
    reading: Arc<Reading>,
    /// The turn that `until` belongs to.
    turn: u64,
    head_begun: bool,
    until: Pin<Box<Sleep>>,
}

impl Patience {
    fn check(&mut self, cx: &mut Context<'_>, progress: bool) -> Poll<()> {
        let turn = self.reading.turns.load(Ordering::Relaxed);
        if turn % 2 == 1 {
            return Poll::Pending;
        }
        if turn != self.turn {
            self.turn = turn;
            self.head_begun = false;
            let idle = self.reading.idle;
            self.until.as_mut().reset(Instant::now() + idle);
        }
        if progress {
            if !self.head_begun {
                self.head_begun = true;
                let head = self.reading.head;
                self.until.as_mut().reset(Instant::now() + head);
            }
            return Poll::Pending;
        }
        self.until.as_mut().poll(cx)
    }
}

/// A socket with limits.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TcpStream,
    write: Duration,
    /// Runs from the first byte that the kernel did not take until nothing is left to write.
    stalled: Option<Pin<Box<Sleep>>>,
    patience: Option<Patience>,
}

impl Stream {
    /// Limits what is written: from the first byte that the kernel will not take until it has taken
    /// all.
    pub(crate) fn new(tcp: TcpStream, write: Duration) -> Stream {
        Stream {
            tcp,
            write,
            stalled: None,
            patience: None,
        }
    }

    /// Limits what is read as well.
    pub(crate) fn with_reading(mut self, reading: Arc<Reading>) -> Stream {
        self.patience = Some(Patience {
            until: Box::pin(sleep(reading.idle)),
            turn: 0,
            head_begun: false,
            reading,
        });
        self
    }

    /// The socket.
    pub(crate) fn into_inner(self) -> TcpStream {
        self.tcp
    }

    fn bounded(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            let limit = self.write;
            let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
            ready!(stalled.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        written
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.tcp).poll_read(cx, buf);
        if let Some(patience) = &mut self.patience
            && patience.check(cx, read.is_ready()).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write(cx, buf);
        self.bounded(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs);
        self.bounded(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    /// hyper flushes once it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stalled = None;
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
