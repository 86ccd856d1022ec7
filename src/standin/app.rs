//! A user container: an HTTP/1.1 and h2c server with a raw TCP echo beside it.
//!
//! | request | answer |
//! |---|---|
//! | `?bytes=N` | a body of N bytes of [`super::body::pattern`]; 64 without |
//! | `?chunks=K` | the body in K pieces and without a content-length |
//! | `?sleep=MS` | all of it MS milliseconds later (real ones, never scaled) |
//! | `?headers=first` | the head at once, the body after the sleep |
//! | `Upgrade: websocket` | 101, then every byte back as it came; no WebSocket frames |
//!
//! A request's body is read to its end first; `x-received` tells its length. Not modelled:
//! start-up, probes, anything slow of itself.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::body::{Body, Broken, Fed, Guarded, full, pattern};
use super::gauge::{Gauge, Open};
use super::server::{Server, Service};
use super::{ANY_PORT, Process, Scope};

/// The longest piece of a body.
const PIECE: u64 = 64 * 1024;

/// How an app is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it serves HTTP.
    pub listen: SocketAddr,
    /// Where it echoes raw TCP.
    pub tcp: SocketAddr,
    /// What it does on SIGTERM.
    pub on_sigterm: OnSigterm,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            listen: ANY_PORT,
            tcp: ANY_PORT,
            on_sigterm: OnSigterm::Finishes,
        }
    }
}

/// An app's manners on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnSigterm {
    /// Stops accepting, ends when its requests and upgraded connections have; raw TCP is cut.
    Finishes,
    /// Ends at once and cuts everything.
    Exits,
    /// Takes no notice.
    Ignores,
}

/// A running app.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Where it serves HTTP.
    pub addr: SocketAddr,
    /// Where it echoes raw TCP.
    pub tcp: SocketAddr,
    /// The process.
    pub process: Process,
    busy: Gauge,
}

impl Handle {
    /// Requests and upgraded connections in it now.
    pub fn in_flight(&self) -> u64 {
        self.busy.value()
    }
}

/// Starts an app. An error is an address that cannot be had.
pub async fn start(config: Config) -> io::Result<Handle> {
    let Config {
        listen,
        tcp,
        on_sigterm,
    } = config;
    let (http, tcp) = (
        TcpListener::bind(listen).await?,
        TcpListener::bind(tcp).await?,
    );
    let (addr, tcp_addr) = (http.local_addr()?, tcp.local_addr()?);
    let busy = Gauge::new();
    let in_flight = busy.clone();
    let process = Process::start("app", move |scope| {
        run(scope, http, tcp, in_flight, on_sigterm)
    });
    Ok(Handle {
        addr,
        tcp: tcp_addr,
        process,
        busy,
    })
}

async fn run(
    mut scope: Scope,
    http: TcpListener,
    tcp: TcpListener,
    busy: Gauge,
    on_sigterm: OnSigterm,
) -> u8 {
    let service = App {
        scope: scope.clone(),
        busy: busy.clone(),
    };
    let server = Server::start(http, &scope, service);
    let echo_scope = scope.clone();
    let (stop_echo, stopped) = tokio::sync::oneshot::channel::<()>();
    scope.spawn(async move {
        tokio::select! {
            () = echo_tcp(tcp, echo_scope) => {}
            _ = stopped => {}
        }
    });
    scope.sigterm().await;
    match on_sigterm {
        OnSigterm::Finishes => {
            drop(stop_echo);
            server.shutdown().await;
            busy.zero().await;
            0
        }
        // What a shell says of a process that SIGTERM has ended.
        OnSigterm::Exits => 143,
        OnSigterm::Ignores => std::future::pending().await,
    }
}

async fn echo_tcp(listener: TcpListener, scope: Scope) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => scope.spawn(async move {
                // How an echo ended is its peer's to see.
                let _ = echo(stream).await;
            }),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn echo(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    tokio::io::copy(&mut read, &mut write).await?;
    tokio::io::AsyncWriteExt::shutdown(&mut write).await
}

#[derive(Clone)]
struct App {
    scope: Scope,
    busy: Gauge,
}

impl Service for App {
    async fn call(&self, mut request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let busy = self.busy.enter();
        if request.headers().contains_key(header::UPGRADE) {
            return self.upgrade(request, busy);
        }
        let wanted = match Wanted::of(request.uri().query().unwrap_or_default()) {
            Ok(wanted) => wanted,
            Err(text) => {
                let mut response = Response::new(full(text));
                *response.status_mut() = StatusCode::BAD_REQUEST;
                return Ok(response);
            }
        };
        let mut received = 0;
        while let Some(frame) = request.body_mut().frame().await {
            received += frame?.data_ref().map_or(0, bytes::Bytes::len);
        }
        if !wanted.headers_first {
            tokio::time::sleep(wanted.sleep).await;
        }
        let mut head = Response::builder().header("x-received", received);
        if wanted.chunks.is_none() {
            head = head.header(header::CONTENT_LENGTH, wanted.bytes);
        }
        let (pieces, body) = Fed::new();
        self.scope.spawn(async move {
            if wanted.headers_first {
                tokio::time::sleep(wanted.sleep).await;
            }
            let mut from = 0;
            while from < wanted.bytes {
                let length = wanted.piece().min(wanted.bytes - from);
                // A piece is at most PIECE bytes, which any usize holds.
                let piece = pattern(from, length as usize);
                if pieces.send(piece).await.is_err() {
                    return; // the client has gone
                }
                from += length;
            }
        });
        Ok(head.body(Guarded::new(body, busy).boxed_unsync())?)
    }
}

impl App {
    fn upgrade(
        &self,
        mut request: Request<Incoming>,
        busy: Open,
    ) -> Result<Response<Body>, Broken> {
        let upgraded = hyper::upgrade::on(&mut request);
        self.scope.spawn(async move {
            if let Ok(stream) = upgraded.await {
                // How an echo ended is its peer's to see.
                let _ = echo(TokioIo::new(stream)).await;
            }
            drop(busy);
        });
        Ok(Response::builder()
            .status(StatusCode::SWITCHING_PROTOCOLS)
            .header(header::CONNECTION, "Upgrade")
            .header(header::UPGRADE, "websocket")
            .body(full(""))?)
    }
}

/// What a query asks for.
struct Wanted {
    bytes: u64,
    chunks: Option<u64>,
    sleep: Duration,
    headers_first: bool,
}

impl Wanted {
    fn of(query: &str) -> Result<Wanted, String> {
        let mut wanted = Wanted {
            bytes: 64,
            chunks: None,
            sleep: Duration::ZERO,
            headers_first: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || {
                value
                    .parse::<u64>()
                    .map_err(|_| format!("{key} wants a number\n"))
            };
            match key {
                "bytes" => wanted.bytes = number()?,
                "chunks" => wanted.chunks = Some(number()?.max(1)),
                "sleep" => wanted.sleep = Duration::from_millis(number()?),
                "headers" => wanted.headers_first = value == "first",
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn piece(&self) -> u64 {
        self.chunks
            .map_or(PIECE, |chunks| self.bytes.div_ceil(chunks).clamp(1, PIECE))
    }
}

#[cfg(test)]
mod tests;
