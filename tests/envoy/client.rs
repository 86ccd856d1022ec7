//! Clients of the pod: requests whose answers are compared byte by byte, streams, slow readers.

use std::io;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tidegate::standin::body::pattern;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep};

use crate::bootstrap::INBOUND;

/// A connection to the pod, or to what is beyond Envoy.
pub(crate) enum Client {
    H1(http1::SendRequest<Empty<Bytes>>),
    H2(http2::SendRequest<Empty<Bytes>>),
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    /// When its last byte was read.
    pub(crate) ended: Instant,
}

impl Client {
    /// A new connection that speaks HTTP/1.1.
    pub(crate) async fn h1(port: u16) -> io::Result<Client> {
        let (sender, connection) = http1::handshake(TokioIo::new(connect(port).await?))
            .await
            .map_err(io::Error::other)?;
        // It ends with the sender; what goes wrong is in the answer's error.
        tokio::spawn(connection);
        Ok(Client::H1(sender))
    }

    /// A new connection that speaks HTTP/2, by prior knowledge.
    pub(crate) async fn h2(port: u16) -> io::Result<Client> {
        let stream = TokioIo::new(connect(port).await?);
        let (sender, connection) = http2::handshake(TokioExecutor::new(), stream)
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Client::H2(sender))
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) async fn head(&mut self, path: &str) -> anyhow::Result<Response<Incoming>> {
        Ok(match self {
            Client::H1(sender) => {
                let request = Request::get(path).header("host", "pod");
                sender.ready().await?;
                sender.send_request(request.body(Empty::new())?).await?
            }
            Client::H2(sender) => {
                let request = Request::get(format!("http://pod{path}"));
                sender.ready().await?;
                sender.send_request(request.body(Empty::new())?).await?
            }
        })
    }

    /// Sends a request and reads its whole answer.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Reply> {
        finish(self.head(path).await?).await
    }
}

/// Reads the rest of an answer.
pub(crate) async fn finish(response: Response<Incoming>) -> anyhow::Result<Reply> {
    let (head, body) = response.into_parts();
    let status = head.status.as_u16();
    let body = body.collect().await.with_context(|| format!("{status}"))?;
    Ok(Reply {
        status,
        headers: head.headers,
        body: body.to_bytes(),
        ended: Instant::now(),
    })
}

impl Reply {
    /// Checks that it is a 200 with `bytes` bytes of the app's pattern.
    pub(crate) fn whole(self, bytes: usize) -> anyhow::Result<Reply> {
        ensure!(self.status == 200, "status {}: {self:?}", self.status);
        let length = self.body.len();
        ensure!(length == bytes, "{length} of {bytes} bytes");
        ensure!(self.body == pattern(0, bytes), "the bytes differ");
        Ok(self)
    }
}

async fn connect(port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A request under way; its end is when its last byte came.
pub(crate) type Pending = JoinHandle<anyhow::Result<Instant>>;

/// A slow request, its head and body `sleep` after it began.
pub(crate) fn slow(sleep: Duration) -> Pending {
    tokio::spawn(async move {
        let path = format!("/?sleep={}&bytes=100000", sleep.as_millis());
        let mut client = Client::h1(INBOUND).await?;
        let reply = client.get(&path).await?.whole(100_000)?;
        Ok(reply.ended)
    })
}

/// A request whose head is here when this returns, and whose body comes `sleep` after it began.
pub(crate) async fn head_first(client: Client, sleep: Duration) -> Pending {
    let mut client = client;
    let path = format!(
        "/?sleep={}&bytes=100000&headers=first&chunks=10",
        sleep.as_millis()
    );
    let response = client.head(&path).await.expect("the head comes at once");
    assert_eq!(response.status(), 200);
    tokio::spawn(async move {
        let reply = finish(response).await?.whole(100_000)?;
        drop(client);
        Ok(reply.ended)
    })
}

/// The end of a request that must be whole.
pub(crate) async fn ended(pending: Pending) -> Instant {
    let result = pending.await.expect("the client does not panic");
    result.unwrap_or_else(|error| panic!("a request was lost: {error:#}"))
}

/// An upgraded connection, or a raw one, whose far end echoes.
pub(crate) struct Echo(TcpStream);

impl Echo {
    /// Raw TCP to `port`.
    pub(crate) async fn tcp(port: u16) -> anyhow::Result<Echo> {
        let mut echo = Echo(connect(port).await?);
        echo.ping().await?;
        Ok(echo)
    }

    /// A WebSocket to `port`, as far as proxies care: the upgrade, then bytes.
    pub(crate) async fn websocket(port: u16) -> anyhow::Result<Echo> {
        let mut stream = connect(port).await?;
        let head = "GET / HTTP/1.1\r\nHost: pod\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await?);
        }
        let answer = String::from_utf8_lossy(&answer);
        ensure!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        let mut echo = Echo(stream);
        echo.ping().await?;
        Ok(echo)
    }

    /// Sends some bytes and reads them back.
    async fn ping(&mut self) -> anyhow::Result<()> {
        let sent = pattern(0, 1_000);
        self.0.write_all(&sent).await?;
        let mut back = vec![0; sent.len()];
        self.0.read_exact(&mut back).await?;
        ensure!(back == sent, "the echo differs");
        Ok(())
    }

    /// Talks for as long as this, then hangs up.
    pub(crate) fn talk(mut self, long: Duration) -> Pending {
        tokio::spawn(async move {
            let end = Instant::now() + long;
            let mut beat = interval(Duration::from_millis(200));
            while Instant::now() < end {
                beat.tick().await;
                self.ping().await?;
            }
            Ok(Instant::now())
        })
    }
}

/// A large answer, read slowly: 16 KiB every 2 ms.
pub(crate) struct SlowReader {
    stream: TcpStream,
    bytes: usize,
    head: String,
    read: Vec<u8>,
}

impl SlowReader {
    /// Asks for `bytes` bytes and reads the first piece of the answer.
    pub(crate) async fn begin(bytes: usize) -> anyhow::Result<SlowReader> {
        let mut stream = connect(INBOUND).await?;
        let head = format!("GET /?bytes={bytes} HTTP/1.1\r\nHost: pod\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        let mut reader = SlowReader {
            stream,
            bytes,
            head: String::from_utf8_lossy(&head).to_lowercase(),
            read: Vec::with_capacity(bytes),
        };
        reader.piece().await?;
        Ok(reader)
    }

    /// Reads on until so many bytes are here.
    pub(crate) async fn read_to(&mut self, bytes: usize) -> anyhow::Result<()> {
        while self.read.len() < bytes && self.piece().await? > 0 {}
        Ok(())
    }

    /// Reads one piece, at most 16 KiB.
    pub(crate) async fn piece(&mut self) -> anyhow::Result<usize> {
        let mut piece = [0; 16 * 1024];
        let length = self.stream.read(&mut piece).await;
        let length = length.with_context(|| format!("after {} bytes", self.read.len()))?;
        self.read.extend_from_slice(&piece[..length]);
        sleep(Duration::from_millis(2)).await;
        Ok(length)
    }

    /// Reads all of it; every byte must be right.
    pub(crate) fn rest(mut self) -> Pending {
        tokio::spawn(async move {
            self.read_to(self.bytes).await?;
            let (read, bytes) = (self.read.len(), self.bytes);
            ensure!(self.head.starts_with("http/1.1 200"), "{}", self.head);
            ensure!(
                self.head.contains(&format!("content-length: {bytes}\r\n")),
                "{}",
                self.head
            );
            ensure!(read == bytes, "{read} of {bytes} bytes");
            ensure!(self.read == pattern(0, bytes), "the bytes differ");
            Ok(Instant::now())
        })
    }
}
