//! Message bodies: a known pattern, a body fed by a task, a body that holds a guard until its end.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::mpsc;

/// What may go wrong on the way of a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Message(#[from] hyper::http::Error),
}

/// A response body.
pub(crate) type Body = UnsyncBoxBody<Bytes, Broken>;

/// A body of one piece.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// `length` bytes of the pattern that [`crate::standin::app`] answers with, from byte `from` on:
/// byte `i` is the low byte of `i * 31 + i / 251`, so that no piece looks like its neighbour.
pub fn pattern(from: u64, length: usize) -> Bytes {
    (from..)
        .take(length)
        .map(|i| (i.wrapping_mul(31).wrapping_add(i / 251) & 0xff) as u8)
        .collect()
}

/// A body whose pieces a task sends; it ends when the sender is dropped.
pub(crate) struct Fed(mpsc::Receiver<Bytes>);

impl Fed {
    /// The sender's end and the body; a sender that is ahead by one piece waits.
    pub(crate) fn new() -> (mpsc::Sender<Bytes>, Fed) {
        let (sender, receiver) = mpsc::channel(1);
        (sender, Fed(receiver))
    }
}

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.0
            .poll_recv(cx)
            .map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A body that holds `guard` until it has ended, failed or been given up.
pub(crate) struct Guarded<B, G> {
    body: B,
    guard: Option<G>,
}

impl<B, G> Guarded<B, G> {
    pub(crate) fn new(body: B, guard: G) -> Self {
        Guarded {
            body,
            guard: Some(guard),
        }
    }
}

impl<B, G> HttpBody for Guarded<B, G>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<Broken>,
    G: Unpin,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.guard = None;
        }
        polled.map(|frame| frame.map(|result| result.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
