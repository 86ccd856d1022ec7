//! A client for one small request: to Envoy's admin, through Envoy, or to Tidegate.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(5);

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

/// `GET` over a new connection to `127.0.0.1:port`.
pub(crate) async fn get(port: u16, path: &str) -> anyhow::Result<Answer> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    exchange(stream, Method::GET, path).await
}

/// One request over a connection that is closed afterwards.
pub(crate) async fn exchange<S>(stream: S, method: Method, path: &str) -> anyhow::Result<Answer>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", "localhost")
        .body(Empty::<Bytes>::new())?;
    timeout(LIMIT, async {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender; what goes wrong is in the answer's error.
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await?.into_parts();
        let body = body.collect().await?.to_bytes();
        Ok(Answer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    })
    .await?
}
