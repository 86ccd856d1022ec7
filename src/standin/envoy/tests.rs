//! The admin interface and what a drain does to responses and the listener.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::standin::{How, app, client};

const LIMIT: Duration = Duration::from_secs(20);

async fn pod(version: &str) -> (app::Handle, Handle) {
    let app = app::start(app::Config::default()).await.expect("app");
    let config = Config {
        version: version.to_owned(),
        // 45 s are 450 ms.
        scale: Scale::new(0.01),
        ..Config::new(app.addr)
    };
    (app, start(config).await.expect("envoy"))
}

async fn admin(envoy: &Handle, method: Method, path: &str) -> (StatusCode, String) {
    let (status, body) = client::request(method, envoy.admin, path, LIMIT)
        .await
        .expect(path);
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

/// A request that asks for a kept connection, and whether the answer wants it closed.
async fn told_to_close(envoy: &Handle) -> bool {
    let mut stream = TcpStream::connect(envoy.inbound).await.expect("connects");
    stream
        .write_all(b"GET /?bytes=1 HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .expect("writes");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a head"));
    }
    String::from_utf8_lossy(&head).contains("connection: close")
}

async fn refused(addr: SocketAddr) {
    while TcpStream::connect(addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn clusters_count_live() {
    let (_app, envoy) = pod("1.40.0").await;
    let rq = |text: &str, name: &str| {
        let line = text
            .lines()
            .find(|line| line.contains(&format!("::{name}::")));
        line.and_then(|line| line.rsplit("::").next()?.parse::<u64>().ok())
    };
    let (status, idle) = admin(&envoy, Method::GET, "/clusters").await;
    assert_eq!(
        (status, rq(&idle, "rq_active")),
        (StatusCode::OK, None),
        "no host yet: {idle}"
    );
    let slow = client::request(Method::GET, envoy.inbound, "/?sleep=1500", LIMIT);
    let look = async {
        loop {
            let (_, text) = admin(&envoy, Method::GET, "/clusters").await;
            if rq(&text, "rq_active") == Some(1) {
                return text;
            }
        }
    };
    let (answer, busy) = tokio::join!(slow, look);
    assert_eq!(answer.expect("answer").0, StatusCode::OK);
    assert!(busy.contains(&format!(
        "inbound|8012||::{}::rq_total::1\n",
        envoy.state.config.upstream
    )));
    let (_, after) = admin(&envoy, Method::GET, "/clusters").await;
    assert_eq!(
        (rq(&after, "rq_active"), rq(&after, "rq_total")),
        (Some(0), Some(1))
    );
}

#[tokio::test]
async fn verbs_and_versions() {
    let (_app, envoy) = pod("1.38.1").await;
    for path in [
        "/drain_listeners?graceful",
        "/healthcheck/fail",
        "/quitquitquit",
    ] {
        let (status, text) = admin(&envoy, Method::GET, path).await;
        assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(text, "Method GET not allowed, POST required.");
    }
    assert!(envoy.posts().is_empty() && envoy.process.is_running());
    assert!(
        admin(&envoy, Method::GET, "/server_info")
            .await
            .1
            .contains("/1.38.1/")
    );
    assert_eq!(
        admin(&envoy, Method::GET, "/ready").await,
        (StatusCode::OK, "LIVE\n".into())
    );
    assert_eq!(
        admin(&envoy, Method::GET, "/nope").await.0,
        StatusCode::NOT_FOUND
    );
    let (status, text) = admin(&envoy, Method::POST, "/drain_listeners?skip_exit").await;
    assert_eq!(
        (status, text.as_str()),
        (StatusCode::BAD_REQUEST, "skip_exit requires graceful\n")
    );
    assert!(!told_to_close(&envoy).await);
    admin(&envoy, Method::POST, "/healthcheck/fail").await;
    assert!(told_to_close(&envoy).await);
    assert_eq!(admin(&envoy, Method::GET, "/ready").await.1, "DRAINING\n");
    admin(&envoy, Method::POST, "/healthcheck/ok").await;
    assert!(!told_to_close(&envoy).await);
    let paths: Vec<_> = envoy.posts().into_iter().map(|post| post.path).collect();
    assert_eq!(
        paths,
        [
            "/drain_listeners?skip_exit",
            "/healthcheck/fail",
            "/healthcheck/ok"
        ]
    );
}

#[tokio::test]
async fn a_graceful_drain_closes_the_listener_after_its_time() {
    let (_app, envoy) = pod("1.40.0").await;
    let start = Instant::now();
    admin(
        &envoy,
        Method::POST,
        "/drain_listeners?inboundonly&graceful=false",
    )
    .await;
    assert!(told_to_close(&envoy).await);
    refused(envoy.inbound).await;
    assert!(start.elapsed() >= Duration::from_millis(450));
    assert_eq!(admin(&envoy, Method::GET, "/ready").await.1, "LIVE\n");
}

#[tokio::test]
async fn skip_exit_keeps_the_listener_until_a_plain_drain() {
    let (_app, envoy) = pod("1.40.0").await;
    admin(
        &envoy,
        Method::POST,
        "/drain_listeners?inboundonly&graceful&skip_exit",
    )
    .await;
    admin(
        &envoy,
        Method::POST,
        "/drain_listeners?inboundonly&graceful",
    )
    .await;
    // Twice the drain time: the second graceful drain has no effect.
    tokio::time::sleep(Duration::from_millis(900)).await;
    assert!(told_to_close(&envoy).await);
    admin(&envoy, Method::POST, "/drain_listeners?inboundonly").await;
    refused(envoy.inbound).await;

    let (_app, old) = pod("1.28.7").await;
    admin(
        &old,
        Method::POST,
        "/drain_listeners?inboundonly&graceful&skip_exit",
    )
    .await;
    refused(old.inbound).await;
}

#[tokio::test]
async fn a_graceful_drain_ends_upgraded_connections_from_1_40_on() {
    for (version, cut) in [("1.39.2", false), ("1.40.0", true)] {
        let (_app, envoy) = pod(version).await;
        let mut stream = TcpStream::connect(envoy.inbound).await.expect("connects");
        let upgrade =
            b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        stream.write_all(upgrade).await.expect("writes");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.expect("a head"));
        }
        assert!(head.starts_with(b"HTTP/1.1 101"), "{}", head.escape_ascii());

        let start = Instant::now();
        let drain = "/drain_listeners?inboundonly&graceful";
        admin(&envoy, Method::POST, drain).await;
        if cut {
            let read = stream.read(&mut [0]).await;
            assert!(!matches!(read, Ok(1..)), "{read:?}");
            assert!(start.elapsed() >= Duration::from_millis(300));
        } else {
            refused(envoy.inbound).await;
            stream.write_all(b"!").await.expect("writes");
            assert_eq!(stream.read_u8().await.expect("echo"), b'!');
        }
    }
}

#[tokio::test]
async fn quit_is_abrupt_and_a_dead_upstream_is_a_503() {
    let (app, envoy) = pod("1.40.0").await;
    let slow = client::request(Method::GET, envoy.inbound, "/?sleep=600000", LIMIT);
    let quit = async {
        while envoy.active() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(admin(&envoy, Method::POST, "/quitquitquit").await.1, "OK\n");
    };
    let (answer, ()) = tokio::join!(slow, quit);
    assert!(
        matches!(answer, Err(client::Error::Broken(_))),
        "{answer:?}"
    );
    assert_eq!(envoy.process.exited().await.how, How::Exited(0));

    let other = start(Config::new(app.addr)).await.expect("envoy");
    app.process.kill();
    app.process.exited().await;
    let answer: (StatusCode, Bytes) = client::request(Method::GET, other.inbound, "/", LIMIT)
        .await
        .expect("answer");
    assert_eq!(
        (answer.0, other.unavailable()),
        (StatusCode::SERVICE_UNAVAILABLE, 1)
    );
}

#[tokio::test]
async fn connections_are_shown_only_where_asked_for() {
    let (app, hidden) = pod("1.40.0").await;
    assert_eq!(admin(&hidden, Method::GET, "/stats?usedonly").await.1, "");
    let config = Config {
        connection_stats: true,
        ..Config::new(app.addr)
    };
    let shown = start(config).await.expect("envoy");
    let _open = TcpStream::connect(shown.inbound).await.expect("connects");
    while !admin(&shown, Method::GET, "/stats")
        .await
        .1
        .contains("15006.downstream_cx_active: 1")
    {}
}
