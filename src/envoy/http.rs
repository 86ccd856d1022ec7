//! A one-shot HTTP/1.1 client for the services of one's own pod: a connection a call, the whole call
//! within one timeout, the body handed on piece by piece and never kept.
//!
//! No pool and no retry: a service that is being ended must be seen as it is now.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, HOST, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::config::Address;
use crate::inflight::Cause;

#[cfg(test)]
pub(crate) mod tests;

/// How long a call may take, connecting included.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum CallError {
    /// The port refuses, or the unix socket is not there.
    #[error(
        "nobody listens; the process behind it has ended, has not started, or has another address"
    )]
    Refused,
    /// No whole answer in time.
    #[error("no whole answer in time; the process behind it hangs or has no CPU")]
    Timeout,
    /// The connection could not be made for another reason, or broke.
    #[error(
        "the connection broke before the answer was whole; the process behind it may be ending"
    )]
    Broken,
    /// A status other than 200.
    #[error("status {0} in place of 200; the other side does not know or does not allow this call")]
    Status(u16),
    /// Not an answer in HTTP, or not the answer to this call.
    #[error("an answer that does not parse; another service may have this address")]
    Malformed,
    /// A body over the call's limit.
    #[error("an answer over the size limit; another service may have this address")]
    TooLarge,
}

impl CallError {
    /// The error's short name in drain reports.
    pub fn name(self) -> &'static str {
        match self {
            CallError::Refused => "refused",
            CallError::Timeout => "timeout",
            CallError::Broken => "broken",
            CallError::Status(_) => "status",
            CallError::Malformed => "malformed",
            CallError::TooLarge => "too large",
        }
    }
}

impl From<CallError> for Cause {
    fn from(error: CallError) -> Cause {
        match error {
            CallError::Refused => Cause::Refused,
            CallError::Timeout => Cause::Timeout,
            CallError::Broken => Cause::Broken,
            CallError::Status(_) => Cause::Status,
            CallError::Malformed | CallError::TooLarge => Cause::Malformed,
        }
    }
}

/// One service.
#[derive(Clone, Debug)]
pub struct Client {
    address: Address,
    timeout: Duration,
}

impl Client {
    /// A client with the default timeout.
    pub fn new(address: Address) -> Client {
        Client {
            address,
            timeout: CALL_TIMEOUT,
        }
    }

    /// The same client with a timeout of its own.
    pub fn with_timeout(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// `GET path`: hands the body of a 200 to `sink` as it comes, at most `limit` bytes.
    ///
    /// `Ok` means that the body was whole. An answer that ends with its connection is
    /// [`CallError::Malformed`], since nothing tells its end from a cut.
    pub async fn get(
        &self,
        path: &str,
        accept: Option<&'static str>,
        limit: u64,
        sink: impl FnMut(&[u8]),
    ) -> Result<(), CallError> {
        let request = request(Method::GET, path, accept)?;
        let exchange = self.exchange(request, async |response| pour(response, limit, sink).await);
        self.in_time(exchange)
            .await
            .map_err(|failure| failure.error)
    }

    /// `POST path`, without a body. The answer's head decides, its body is not waited for.
    pub async fn post(&self, path: &str) -> Result<(), CallError> {
        self.post_head(path).await.map_err(|failure| failure.error)
    }

    /// `POST path` to a service that ends by it: a connection that breaks after the request was sent
    /// is success too.
    pub async fn post_last(&self, path: &str) -> Result<(), CallError> {
        match self.post_head(path).await {
            Err(failure) if failure.sent && failure.error == CallError::Broken => Ok(()),
            other => other.map_err(|failure| failure.error),
        }
    }

    /// Connects and hangs up: whether anybody listens.
    pub async fn connect(&self) -> Result<(), CallError> {
        let connected = async { self.stream().await.map(drop).map_err(Failure::from) };
        self.in_time(connected)
            .await
            .map_err(|failure| failure.error)
    }

    async fn post_head(&self, path: &str) -> Result<(), Failure> {
        let request = request(Method::POST, path, None)?;
        self.in_time(self.exchange(request, async |_| Ok(()))).await
    }

    async fn in_time(
        &self,
        call: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        match tokio::time::timeout(self.timeout, call).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout.into()),
        }
    }

    async fn stream(&self) -> Result<Box<dyn Stream>, CallError> {
        match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(connect_error)?;
                // Linux connects a socket to itself where the kernel picks the port it calls as its own.
                if stream.local_addr().ok() == Some(*address) {
                    return Err(CallError::Refused);
                }
                Ok(Box::new(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(connect_error)?;
                Ok(Box::new(stream))
            }
        }
    }

    async fn exchange(
        &self,
        request: Request<Empty<Bytes>>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<(), CallError>,
    ) -> Result<(), Failure> {
        let stream = TokioIo::new(self.stream().await?);
        let (mut sender, connection) = http1::handshake(stream).await.map_err(Failure::from)?;
        let conversation = async move {
            let response = sender.send_request(request).await?;
            match response.status() {
                StatusCode::OK => Ok(read(response).await?),
                status => Err(CallError::Status(status.as_u16()).into()),
            }
        };
        alongside(connection, conversation).await
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Drives a connection for as long as the conversation over it lasts; its own end is told by the
/// conversation.
async fn alongside<T>(connection: impl Future, conversation: impl Future<Output = T>) -> T {
    let mut connection = pin!(connection);
    let mut conversation = pin!(conversation);
    let mut ended = false;
    poll_fn(|context| {
        // First: what it reads, the conversation can have at once.
        ended = ended || connection.as_mut().poll(context).is_ready();
        conversation.as_mut().poll(context)
    })
    .await
}

fn request(
    method: Method,
    path: &str,
    accept: Option<&'static str>,
) -> Result<Request<Empty<Bytes>>, CallError> {
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost");
    if let Some(accept) = accept {
        request = request.header(ACCEPT, accept);
    }
    // Only a path that is no URI fails, and all paths are constants.
    request.body(Empty::new()).map_err(|_| CallError::Malformed)
}

async fn pour(
    response: Response<Incoming>,
    limit: u64,
    mut sink: impl FnMut(&[u8]),
) -> Result<(), CallError> {
    let chunked = response.headers().contains_key(TRANSFER_ENCODING);
    let mut body = response.into_body();
    if !chunked && body.size_hint().exact().is_none() {
        return Err(CallError::Malformed);
    }
    let mut left = limit;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| hyper_error(&error))?;
        if let Some(data) = frame.data_ref() {
            left = left
                .checked_sub(data.len() as u64)
                .ok_or(CallError::TooLarge)?;
            sink(data);
        }
    }
    Ok(())
}

// ---- errors ---------------------------------------------------------------------------------

/// An error, and whether the request may have reached the other side.
struct Failure {
    error: CallError,
    sent: bool,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Failure {
        Failure { error, sent: false }
    }
}

impl From<hyper::Error> for Failure {
    fn from(error: hyper::Error) -> Failure {
        Failure {
            error: hyper_error(&error),
            // Cancelled: hyper never wrote it.
            sent: !error.is_canceled(),
        }
    }
}

fn connect_error(error: io::Error) -> CallError {
    match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::NotFound => CallError::Refused,
        ErrorKind::TimedOut => CallError::Timeout,
        _ => CallError::Broken,
    }
}

/// hyper tells a bad head apart; of a body it hands on an I/O error, whose kind tells a bad chunk
/// from a break.
fn hyper_error(error: &hyper::Error) -> CallError {
    let source = std::error::Error::source(error);
    let kind = source
        .and_then(|source| source.downcast_ref::<io::Error>())
        .map(io::Error::kind);
    let bad_chunk = matches!(kind, Some(ErrorKind::InvalidInput | ErrorKind::InvalidData));
    if error.is_parse() || bad_chunk {
        CallError::Malformed
    } else {
        CallError::Broken
    }
}
