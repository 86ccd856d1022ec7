//! What the app answers, and its three manners on SIGTERM.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::standin::How;
use crate::standin::body::pattern;
use crate::standin::client;

const LIMIT: Duration = Duration::from_secs(20);

async fn app(on_sigterm: OnSigterm) -> Handle {
    start(Config {
        on_sigterm,
        ..Config::default()
    })
    .await
    .expect("app starts")
}

/// An upgraded connection, past its 101.
async fn websocket(addr: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(addr).await.expect("connects");
    let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n";
    stream.write_all(head.as_bytes()).await.expect("writes");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.expect("the head of a 101"));
    }
    assert!(
        answer.starts_with(b"HTTP/1.1 101"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    stream
}

#[tokio::test]
async fn bodies_are_the_pattern_in_any_framing() {
    let app = app(OnSigterm::Finishes).await;
    for path in [
        "/?bytes=200000",
        "/?bytes=200000&chunks=7",
        "/?bytes=200000&headers=first&sleep=1",
    ] {
        let (status, body) = client::request(Method::GET, app.addr, path, LIMIT)
            .await
            .expect(path);
        assert_eq!(status, StatusCode::OK);
        assert!(body == pattern(0, 200_000), "{path}");
    }
    assert_eq!(pattern(0, 700).slice(500..), pattern(500, 200));
    let (status, _) = client::request(Method::GET, app.addr, "/?bytes=many", LIMIT)
        .await
        .expect("answers");
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(app.in_flight(), 0);
}

#[tokio::test]
async fn headers_first_arrive_before_the_body() {
    let app = app(OnSigterm::Finishes).await;
    let request = Request::get("/?headers=first&sleep=600000").header("host", "a");
    let request = request.body(Empty::<Bytes>::new()).expect("request");
    client::exchange(app.addr, request, |response| async move {
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-length"], "64");
        Ok(())
    })
    .await
    .expect("the head comes at once");
}

#[tokio::test]
async fn h2c_by_prior_knowledge_reads_a_request_body() {
    let app = app(OnSigterm::Finishes).await;
    let stream = TcpStream::connect(app.addr).await.expect("connects");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("handshake");
    let driver = tokio::spawn(connection);
    let request = Request::post(format!("http://{}/?bytes=5", app.addr));
    let request = request
        .body(Full::new(Bytes::from_static(b"four")))
        .expect("request");
    let response = sender.send_request(request).await.expect("response");
    assert_eq!(response.headers()["x-received"], "4");
    let body = response
        .into_body()
        .collect()
        .await
        .expect("body")
        .to_bytes();
    assert_eq!(body, pattern(0, 5));
    driver.abort();
}

#[tokio::test]
async fn upgrades_and_tcp_echo() {
    let app = app(OnSigterm::Finishes).await;
    let tcp = TcpStream::connect(app.tcp).await.expect("connects");
    for mut stream in [websocket(app.addr).await, tcp] {
        stream.write_all(b"ping").await.expect("writes");
        let mut echo = [0; 4];
        stream.read_exact(&mut echo).await.expect("echo");
        assert_eq!(&echo, b"ping");
    }
}

#[tokio::test]
async fn finishes_ends_with_its_last_request() {
    let app = app(OnSigterm::Finishes).await;
    let mut upgraded = websocket(app.addr).await;
    let _idle = TcpStream::connect(app.addr).await.expect("connects");
    let raw = TcpStream::connect(app.tcp).await.expect("connects");
    let request = client::request(Method::GET, app.addr, "/?sleep=1000&bytes=9", LIMIT);
    let sigterm = async {
        while app.in_flight() < 2 {
            tokio::task::yield_now().await;
        }
        app.process.sigterm();
        while TcpStream::connect(app.addr).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let (answer, ()) = tokio::join!(request, sigterm);
    assert_eq!(answer.expect("in flight, so finished").1.len(), 9);
    assert!(app.process.is_running(), "an upgraded connection is open");
    upgraded.write_all(b"x").await.expect("writes");
    assert_eq!(upgraded.read_u8().await.expect("still echoes"), b'x');
    drop(upgraded);
    assert_eq!(app.process.exited().await.how, How::Exited(0));
    drop(raw);
}

#[tokio::test]
async fn exits_cuts_and_ignores_does_not_care() {
    let exits = app(OnSigterm::Exits).await;
    let request = client::request(Method::GET, exits.addr, "/?sleep=600000", LIMIT);
    let sigterm = async {
        while exits.in_flight() == 0 {
            tokio::task::yield_now().await;
        }
        exits.process.sigterm();
    };
    let (answer, ()) = tokio::join!(request, sigterm);
    assert!(
        matches!(answer, Err(client::Error::Broken(_))),
        "{answer:?}"
    );
    assert_eq!(exits.process.exited().await.how, How::Exited(143));

    let ignores = app(OnSigterm::Ignores).await;
    ignores.process.sigterm();
    client::request(Method::GET, ignores.addr, "/", LIMIT)
        .await
        .expect("serves on");
    ignores.process.kill();
    ignores.process.exited().await;
    let refused = client::request(Method::GET, ignores.addr, "/", LIMIT).await;
    assert!(
        matches!(refused, Err(client::Error::Connect { .. })),
        "{refused:?}"
    );
}
