//! What all proxies stand before: fixed replies by HTTP/1.1 and h2c, and a WebSocket that echoes.

use std::collections::HashMap;
use std::convert::Infallible;

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;
use crate::measure::loads;

/// RFC 6455, section 1.3: a key and what it is answered with.
pub(crate) const WS_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
pub(crate) const WS_ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A head, or what is read of a body at a time.
const READ: usize = 64 * 1024;

/// A reply by HTTP/1.1.
struct Reply {
    keep: Bytes,
    close: Bytes,
}

/// Serves for ever, on one thread: `GET /BYTES`.
pub(crate) async fn serve(h1: u16, h2: u16) -> Result<()> {
    let sizes: Vec<usize> = loads().iter().map(|load| load.bytes).collect();
    let replies = sizes.iter().map(|&bytes| (path(bytes), reply(bytes)));
    let replies: &HashMap<String, Reply> = Box::leak(Box::new(replies.collect()));
    let bodies = sizes
        .iter()
        .map(|&bytes| (path(bytes), Bytes::from(vec![b'x'; bytes])));
    let bodies: &HashMap<String, Bytes> = Box::leak(Box::new(bodies.collect()));
    let h1 = TcpListener::bind(("127.0.0.1", h1)).await?;
    let h2 = TcpListener::bind(("127.0.0.1", h2)).await?;
    loop {
        tokio::select! {
            accepted = h1.accept() => {
                let (stream, _) = accepted?;
                // A client that hangs up is none of its business.
                tokio::spawn(async move { _ = http1(stream, replies).await; });
            }
            accepted = h2.accept() => {
                let (stream, _) = accepted?;
                tokio::spawn(async move { _ = http2(stream, bodies).await; });
            }
        }
    }
}

fn path(bytes: usize) -> String {
    format!("/{bytes}")
}

fn reply(bytes: usize) -> Reply {
    let whole = |connection: &str| {
        let mut reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\n\
             content-length: {bytes}\r\n{connection}\r\n"
        )
        .into_bytes();
        reply.resize(reply.len() + bytes, b'x');
        Bytes::from(reply)
    };
    Reply {
        keep: whole(""),
        close: whole("connection: close\r\n"),
    }
}

async fn http1(mut stream: TcpStream, replies: &HashMap<String, Reply>) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut input = BytesMut::with_capacity(READ);
    loop {
        while let Some(end) = memmem::find(&input, b"\r\n\r\n") {
            let head = input.split_to(end + 4);
            let head = std::str::from_utf8(&head)?;
            let path = head.split(' ').nth(1).unwrap_or_default();
            if path == "/websocket" {
                return echo(stream, input).await;
            }
            let reply = replies.get(path).ok_or("no such path")?;
            if closes(head) {
                stream.write_all(&reply.close).await?;
                stream.shutdown().await?;
                return Ok(());
            }
            stream.write_all(&reply.keep).await?;
        }
        if input.len() > READ || stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

fn closes(head: &str) -> bool {
    head.lines().any(|line| {
        line.split_once(':').is_some_and(|(name, value)| {
            name.eq_ignore_ascii_case("connection") && value.trim().eq_ignore_ascii_case("close")
        })
    })
}

/// Sends each frame back without its mask, which is zero.
async fn echo(mut stream: TcpStream, mut input: BytesMut) -> Result<()> {
    let hello = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
         sec-websocket-accept: {WS_ACCEPT}\r\n\r\n"
    );
    stream.write_all(hello.as_bytes()).await?;
    loop {
        while let Some((head, payload)) = frame(&input) {
            if input.len() < head + payload {
                break;
            }
            // The first two bytes and the length, less the mask's bit; then the payload.
            let mut reply = input.split_to(head + payload);
            let length = head - 4;
            reply[1] &= 0x7f;
            reply.copy_within(..length, 4);
            reply.advance(4);
            stream.write_all(&reply).await?;
        }
        input.reserve(READ);
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// How long the head, mask included, and the payload of the frame at the start of `input` are.
fn frame(input: &[u8]) -> Option<(usize, usize)> {
    let short = usize::from(*input.get(1)? & 0x7f);
    match short {
        126 => {
            let length = input.get(2..4)?.try_into().ok()?;
            Some((8, usize::from(u16::from_be_bytes(length))))
        }
        127 => {
            let length = input.get(2..10)?.try_into().ok()?;
            Some((14, usize::try_from(u64::from_be_bytes(length)).ok()?))
        }
        length => Some((6, length)),
    }
}

async fn http2(stream: TcpStream, bodies: &'static HashMap<String, Bytes>) -> Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(|request: Request<Incoming>| async move {
        let body = bodies.get(request.uri().path()).cloned();
        let status = match body {
            Some(_) => StatusCode::OK,
            None => StatusCode::NOT_FOUND,
        };
        let mut response = Response::new(Full::new(body.unwrap_or_default()));
        *response.status_mut() = status;
        Ok::<_, Infallible>(response)
    });
    http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await?;
    Ok(())
}
