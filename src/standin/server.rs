//! An HTTP server of a stand-in: HTTP/1.1 and h2c by prior knowledge on one port, closed the way
//! Go's `net/http` closes.

use std::future::Future;
use std::io;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::Scope;
use super::body::{Body, Broken};
use super::gauge::Gauge;

/// What answers requests. An error closes the connection without an answer.
pub(crate) trait Service: Clone + Send + Sync + 'static {
    /// The service for a new connection.
    fn connection(&self) -> Self {
        self.clone()
    }

    fn call(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Body>, Broken>> + Send;
}

/// A running server. It lives as long as the [`Scope`] it was started in.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    stop: watch::Sender<Stop>,
    /// All connections.
    open: Gauge,
    /// Those that a shutdown waits for: HTTP/1.1, until an upgrade.
    awaited: Gauge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    Serving,
    ListenerClosed,
    ShuttingDown,
}

impl Server {
    pub(crate) fn start<S: Service>(listener: TcpListener, scope: &Scope, service: S) -> Server {
        let server = Server {
            stop: watch::Sender::new(Stop::Serving),
            open: Gauge::new(),
            awaited: Gauge::new(),
        };
        scope.spawn(accept(listener, scope.clone(), server.clone(), service));
        server
    }

    /// Connections open now, upgraded ones aside.
    pub(crate) fn connections(&self) -> u64 {
        self.open.value()
    }

    /// Refuses new connections; what is open goes on.
    pub(crate) fn close_listener(&self) {
        self.advance(Stop::ListenerClosed);
    }

    /// Go's `Server.Shutdown`: refuses new connections, closes idle ones, waits for HTTP/1.1
    /// requests. Upgraded and h2c connections are hijacked ones to it: neither told nor waited for.
    pub(crate) async fn shutdown(&self) {
        self.advance(Stop::ShuttingDown);
        self.awaited.zero().await;
    }

    fn advance(&self, to: Stop) {
        self.stop.send_modify(|stop| *stop = to.max(*stop));
    }

    async fn reached(&self, stop: Stop) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.stop.subscribe().wait_for(|now| *now >= stop).await;
    }
}

async fn accept<S: Service>(listener: TcpListener, scope: Scope, server: Server, service: S) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = server.reached(Stop::ListenerClosed) => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (open, awaited) = (server.open.enter(), server.awaited.enter());
                let connection = serve(
                    stream,
                    scope.clone(),
                    server.clone(),
                    service.connection(),
                    awaited,
                );
                scope.spawn(async move {
                    connection.await;
                    drop(open);
                });
            }
            // Out of descriptors, say: do not spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Serves one connection. How it ended is the peer's to see.
async fn serve<S: Service>(
    stream: TcpStream,
    scope: Scope,
    server: Server,
    service: S,
    awaited: super::gauge::Open,
) {
    let h2 = tokio::select! {
        h2 = speaks_h2(&stream) => h2,
        () = server.reached(Stop::ShuttingDown) => return,
    };
    let Ok(h2) = h2 else { return };
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(stream);
    let answer = service_fn(move |request| {
        let service = service.clone();
        async move { service.call(request).await }
    });
    if h2 {
        drop(awaited);
        let _ = hyper::server::conn::http2::Builder::new(scope)
            .serve_connection(io, answer)
            .await;
        return;
    }
    let connection = hyper::server::conn::http1::Builder::new()
        .serve_connection(io, answer)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        () = server.reached(Stop::ShuttingDown) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Whether the first bytes are the HTTP/2 preface. No HTTP/1.1 method begins with `PRI`.
async fn speaks_h2(stream: &TcpStream) -> io::Result<bool> {
    const PREFACE: &[u8; 3] = b"PRI";
    let mut seen = [0; 3];
    loop {
        let length = stream.peek(&mut seen).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length == PREFACE.len() || seen[..length] != PREFACE[..length] {
            return Ok(seen[..length] == PREFACE[..]);
        }
        // One or two bytes of it: peek does not wait for more.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
