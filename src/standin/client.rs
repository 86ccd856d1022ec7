//! One HTTP/1.1 request on a connection of its own.

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The longest body that [`request`] reads.
const BODY_MAX: usize = 1 << 20;

/// Why a request got no whole answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection: nothing was sent, another endpoint may be tried.
    #[error("cannot connect to {addr}: {source}")]
    Connect {
        /// Where to.
        addr: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The connection broke before the answer was whole.
    #[error("no whole answer: {0}")]
    Broken(#[from] hyper::Error),
    /// The body is not as it should be.
    #[error("bad body: {0}")]
    Body(String),
    /// The path or a header is not valid.
    #[error("not a valid request: {0}")]
    Request(#[from] hyper::http::Error),
    /// No whole answer in time.
    #[error("no whole answer within {0:?}")]
    Timeout(Duration),
}

/// Sends a request without a body and reads the whole answer, at most 1 MiB, within `limit`.
pub async fn request(
    method: Method,
    addr: SocketAddr,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Bytes), Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::HOST, addr.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = exchange(addr, request, |response| async {
        let status = response.status();
        let body = Limited::new(response.into_body(), BODY_MAX).collect().await;
        Ok((
            status,
            body.map_err(|error| Error::Body(error.to_string()))?
                .to_bytes(),
        ))
    });
    tokio::time::timeout(limit, exchange)
        .await
        .map_err(|_| Error::Timeout(limit))?
}

/// Sends `request` on a fresh connection and lets `read` read the answer; the connection lives no
/// longer than that.
pub(crate) async fn exchange<T, F>(
    addr: SocketAddr,
    request: Request<Empty<Bytes>>,
    read: impl FnOnce(Response<Incoming>) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let stream = TcpStream::connect(addr)
        .await
        .map_err(|source| Error::Connect { addr, source })?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async move { read(sender.send_request(request).await?).await };
    tokio::pin!(connection);
    tokio::pin!(exchange);
    tokio::select! {
        result = &mut exchange => return result,
        _ = &mut connection => {}
    }
    // The connection has ended; what it had received can still be read.
    exchange.await
}
