//! One HTTP/1.1 connection from its first byte to its last, and the small answers that all ports give.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// What a peer may still send to a connection that we have ended.
const LINGER_BYTES: u64 = 256 * 1024;

/// An answer: small, and whole before it is sent.
pub(crate) type Answer = Response<Full<Bytes>>;

/// Serves a connection until it ends, or until `finishing` returns and it has nothing to say; gives
/// the stream back, to be ended by [`linger`].
pub(crate) async fn serve<I, F, A>(
    builder: &http1::Builder,
    io: I,
    answer: F,
    finishing: impl Future<Output = ()>,
) -> I
where
    I: AsyncRead + AsyncWrite + Unpin,
    F: Fn(Request<Incoming>) -> A + Unpin,
    A: Future<Output = Answer>,
{
    let service = service_fn(|request| {
        let answer = answer(request);
        Box::pin(async move { Ok::<_, Infallible>(answer.await) })
    });
    let mut conn = builder.serve_connection(TokioIo::new(io), service);
    // A connection that ends with an error has been told so by hyper, where it could be told.
    let ended = tokio::select! {
        _ = poll_fn(|cx| conn.poll_without_shutdown(cx)) => true,
        () = finishing => false,
    };
    if !ended {
        // hyper would drop a request that sits in the socket unread, so: one last read, after the
        // runtime has had a look at which sockets are readable.
        tokio::task::yield_now().await;
        let ended = poll_fn(|cx| Poll::Ready(conn.poll_without_shutdown(cx).is_ready())).await;
        if !ended {
            Pin::new(&mut conn).graceful_shutdown();
            let _ = poll_fn(|cx| conn.poll_without_shutdown(cx)).await;
        }
    }
    conn.into_parts().io.into_inner()
}

/// Ends our side and reads what the peer still sends until it ends its own: a socket closed with
/// unread bytes is reset, and the reset can overtake the answer. Takes at most twice `limit`.
pub(crate) async fn linger<I>(mut io: I, limit: Duration)
where
    I: AsyncRead + AsyncWrite + Unpin,
{
    if let Ok(Ok(())) = timeout(limit, io.shutdown()).await {
        let rest =
            async { tokio::io::copy(&mut io.take(LINGER_BYTES), &mut tokio::io::sink()).await };
        let _ = timeout(limit, rest).await;
    }
}

// ===== answers =====

/// Plain text.
pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = typed("text/plain; charset=utf-8", body);
    *answer.status_mut() = status;
    answer
}

/// 200 with a type of its own.
pub(crate) fn typed(content_type: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    answer
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// 405, and the verb that is right.
pub(crate) fn wrong_verb(right: &'static str) -> Answer {
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, format!("use {right}\n"));
    answer
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static(right));
    answer
}

/// Ends the connection with this answer.
pub(crate) fn close_after(answer: &mut Answer) {
    answer
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
}
