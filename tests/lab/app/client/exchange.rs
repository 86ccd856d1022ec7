//! One HTTP request on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::Read;
use crate::feed::Body;
use crate::plan::{Http, Target};
use crate::record::{Failure, Seen};

/// The receive buffer of a slow reader, so that its slowness is felt at the other end.
const SMALL_BUFFER: u32 = 64 * 1024;

/// How a request is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exchange<'a> {
    pub(super) target: &'a Target,
    pub(super) http: Http,
    /// Reads no more than so many bytes a second.
    pub(super) rate: Option<u64>,
    /// The status that is expected.
    pub(super) wanted: u16,
}

impl Exchange<'_> {
    /// Sends `request` and reads the answer to its end; well if that is a clean one. The result is the
    /// answer's headers and trailers. Pieces of a body with another status than the wanted are not
    /// given to `read`.
    pub(super) async fn run(
        self,
        request: Request<Body>,
        seen: &mut Seen,
        mut read: impl Read,
    ) -> Result<(HeaderMap, Option<HeaderMap>), Failure> {
        let stream = connect(self.target, self.rate.map(|_| SMALL_BUFFER)).await?;
        // Drives the connection; cut when this is dropped.
        let mut driver = JoinSet::new();
        let response = match self.http {
            Http::One => send_h1(stream, request, &mut driver).await,
            Http::Two => send_h2(stream, request, &mut driver).await,
        };
        let response = response.map_err(|error| Failure::broken(&error))?;
        let status = response.status().as_u16();
        seen.head(status);
        let (head, mut body) = response.into_parts();
        let begun = Instant::now();
        let mut trailers = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::broken(&error))?;
            match frame.into_data() {
                Ok(piece) => {
                    seen.more(piece.len());
                    if status == self.wanted {
                        read(&piece).map_err(Failure::Broken)?;
                    }
                }
                Err(frame) => trailers = frame.into_trailers().ok().or(trailers),
            }
            if let Some(rate) = self.rate {
                let due = seen.bytes as f64 / rate as f64;
                sleep_until(begun + Duration::from_secs_f64(due)).await;
            }
        }
        Ok((head.headers, trailers))
    }
}

async fn send_h1(
    stream: TcpStream,
    request: Request<Body>,
    driver: &mut JoinSet<()>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    driver.spawn(async move {
        // An error is seen by the request.
        let _ = connection.await;
    });
    sender.send_request(request).await
}

async fn send_h2(
    stream: TcpStream,
    request: Request<Body>,
    driver: &mut JoinSet<()>,
) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    driver.spawn(async move {
        let _ = connection.await;
    });
    sender.send_request(request).await
}

/// Connects to the first address that takes it.
pub(super) async fn connect(target: &Target, buffer: Option<u32>) -> Result<TcpStream, Failure> {
    let failed = |error: std::io::Error| Failure::Connect(format!("{}: {error}", target.connect));
    let mut last = std::io::Error::other("the name has no address");
    for addr in lookup_host(&target.connect).await.map_err(failed)? {
        match connect_to(addr, buffer).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

async fn connect_to(addr: SocketAddr, buffer: Option<u32>) -> std::io::Result<TcpStream> {
    let socket = if addr.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    if let Some(size) = buffer {
        socket.set_recv_buffer_size(size)?;
    }
    let stream = socket.connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
