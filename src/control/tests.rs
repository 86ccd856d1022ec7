//! The commands against a listener that answers whatever the test wants.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use tokio::net::TcpListener;
use tokio::sync::Notify;

use super::*;

const QUICK: Patience = Patience {
    overall: Duration::from_secs(10),
    retry: Duration::ZERO,
    pause: Duration::ZERO,
};

/// Answers each connection with `answer`, then closes; returns the port and what was asked first.
async fn answering(answer: &'static str) -> (u16, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert_ne!(stream.read_buf(&mut head).await.unwrap(), 0);
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(head).unwrap()
    });
    (port, asked)
}

/// A port that is bound and does not listen: it refuses, and nobody else can take it meanwhile.
fn held_port() -> (OwnedFd, u16) {
    let held = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    bind(&held, &any).unwrap();
    let bound: SocketAddr = getsockname(&held).unwrap().try_into().unwrap();
    (held, bound.port())
}

#[tokio::test]
async fn a_200_is_success_and_the_request_is_whole() {
    let (port, asked) = answering("HTTP/1.1 200 OK\r\n\r\n").await;
    ask(port, "POST /drain", QUICK).await.unwrap();
    assert_eq!(
        asked.await.unwrap(),
        format!(
            "POST /drain HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
        )
    );
}

#[tokio::test]
async fn a_refusal_is_told_with_its_body() {
    let (port, _asked) =
        answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 9\r\n\r\ndraining\n").await;
    let error = ask(port, "GET /readyz", QUICK).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("127.0.0.1:{port} answered 503: draining")
    );
}

#[tokio::test]
async fn a_stranger_on_the_port_is_named() {
    for answer in ["SSH-2.0-OpenSSH_9.9\r\n", "", "HTTP/1.1 2000 OK\r\n\r\n"] {
        let (port, _asked) = answering(answer).await;
        let error = ask(port, "POST /drain", QUICK).await.unwrap_err();
        assert!(matches!(error, AskError::Garbage { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(&port.to_string()) && text.contains("TIDEGATE_HOOK_PORT"));
    }
}

#[tokio::test]
async fn silence_ends_at_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let patience = Patience {
        overall: Duration::from_millis(100),
        ..QUICK
    };
    let error = ask(port, "GET /livez", patience).await.unwrap_err();
    assert!(matches!(error, AskError::Timeout { .. }), "{error}");
}

#[tokio::test]
async fn a_late_start_is_waited_for() {
    let (held, port) = held_port();
    let started = Arc::new(Notify::new());
    let patience = Patience {
        retry: Duration::from_secs(8),
        pause: Duration::from_millis(10),
        ..QUICK
    };
    let asking = tokio::spawn({
        let started = started.clone();
        async move {
            let refused = ask(port, "POST /drain", QUICK).await.unwrap_err();
            started.notify_one();
            (refused, ask(port, "POST /drain", patience).await)
        }
    });
    started.notified().await;
    listen(&held, 8).unwrap();
    let listener = std::net::TcpListener::from(held);
    listener.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(listener).unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    stream.shutdown().await.unwrap();
    let (refused, late) = asking.await.unwrap();
    assert!(refused.is_passing());
    assert!(refused.to_string().contains("TIDEGATE_HOOK_PORT"));
    late.unwrap();
}

#[test]
fn the_commands_say_no_by_exit_code() {
    let (_held, port) = held_port();
    assert_eq!(probe(port, Probe::Ready), 1);
    assert_eq!(probe(port, Probe::Live), 1);
    let began = Instant::now();
    assert_eq!(drain(port), exit::UNAVAILABLE);
    let took = began.elapsed();
    assert!(
        took >= DRAIN.retry - 2 * DRAIN.pause && took < DRAIN.overall + Duration::from_secs(1),
        "{took:?}"
    );
}

#[test]
fn status_lines() {
    for (line, expected) in [
        ("HTTP/1.1 200 OK\r\n", Some(200)),
        ("HTTP/1.0 503 no\r\n", Some(503)),
        ("HTTP/1.1 204\r\n", Some(204)),
        ("HTTP/1.1 20", None),
        ("HTTP/1.1 2000 OK\r\n", None),
        ("HTTP/1.1 +20 OK\r\n", None),
        ("HTTP/2 200\r\n", None),
        ("", None),
    ] {
        assert_eq!(status(line.as_bytes()), expected, "{line:?}");
    }
    assert_eq!(status(&[0xff, 0xfe, b'\r', b'\n']), None);
}
