//! Message bodies that a task feeds, piece by piece and with trailers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::mpsc;

/// A body that is sent.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A body of one piece.
pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// The sender's end of a body; the body ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::Sender<Frame<Bytes>>);

/// Nobody reads the body any more.
#[derive(Debug)]
pub(crate) struct Gone;

struct Fed(mpsc::Receiver<Frame<Bytes>>);

/// A body and its sender's end, which may be ahead by one piece.
pub(crate) fn fed() -> (Feed, Body) {
    let (sender, receiver) = mpsc::channel(1);
    (Feed(sender), Fed(receiver).boxed_unsync())
}

impl Feed {
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Gone> {
        let frame = Frame::data(piece.into());
        self.0.send(frame).await.map_err(|_| Gone)
    }

    pub(crate) async fn trailers(&self, trailers: HeaderMap) -> Result<(), Gone> {
        let frame = Frame::trailers(trailers);
        self.0.send(frame).await.map_err(|_| Gone)
    }

    /// What comes next; nothing, too, once the reader has gone.
    pub(crate) async fn next<T>(&self, from: &mut mpsc::Receiver<T>) -> Option<T> {
        tokio::select! {
            () = self.0.closed() => None,
            next = from.recv() => next,
        }
    }

    /// Sleeps, unless the reader goes first.
    pub(crate) async fn sleep(&self, time: Duration) -> Result<(), Gone> {
        tokio::select! {
            () = self.0.closed() => Err(Gone),
            () = tokio::time::sleep(time) => Ok(()),
        }
    }
}

impl HttpBody for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}
