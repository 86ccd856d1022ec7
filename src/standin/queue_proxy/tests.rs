//! queue-proxy's drain, as measured on the real one.

use std::time::Duration;

use hyper::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::*;
use crate::standin::{How, app, client};

const LIMIT: Duration = Duration::from_secs(20);
/// 30 s are 300 ms.
const FAST: f64 = 0.01;

async fn pod(scale: f64) -> (app::Handle, Handle) {
    let app = app::start(app::Config::default()).await.expect("app");
    let config = Config {
        scale: Scale::new(scale),
        ..Config::new(app.addr)
    };
    let proxy = start(config).await.expect("queue-proxy");
    (app, proxy)
}

async fn get(addr: SocketAddr, path: &str) -> (StatusCode, Bytes) {
    client::request(Method::GET, addr, path, LIMIT)
        .await
        .expect("an answer")
}

/// One request with a header, and its answer as it came.
async fn try_raw(addr: SocketAddr, header: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let head = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{header}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

async fn raw(addr: SocketAddr, header: &str) -> String {
    try_raw(addr, header).await.expect("an answer")
}

async fn closed(addr: SocketAddr) {
    while TcpStream::connect(addr).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn proxies_and_answers_502_when_the_app_has_gone() {
    let (app, proxy) = pod(1.0).await;
    let (status, body) = get(proxy.serving, "/?bytes=70000&chunks=3").await;
    assert_eq!((status, body.len()), (StatusCode::OK, 70_000));
    app.process.kill();
    app.process.exited().await;
    assert_eq!(get(proxy.serving, "/").await.0, StatusCode::BAD_GATEWAY);
    assert_eq!(get(proxy.admin, "/metrics").await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn probes_tell_of_a_drain_and_do_not_prolong_it() {
    let (_app, proxy) = pod(FAST).await;
    for probe in ["k-network-probe: queue", "user-agent: kube-probe/1.36"] {
        assert!(
            raw(proxy.serving, probe).await.starts_with("HTTP/1.1 200"),
            "{probe}"
        );
    }
    assert!(
        raw(proxy.serving, "k-network-probe: what")
            .await
            .starts_with("HTTP/1.1 400")
    );
    let start = Instant::now();
    proxy.process.sigterm();
    while raw(proxy.serving, "k-network-probe: queue")
        .await
        .starts_with("HTTP/1.1 200")
    {}
    // Were probes to count, there would be no end.
    let probing = async {
        while let Ok(answer) = try_raw(proxy.serving, "user-agent: kube-probe/1.36").await
            && !answer.is_empty()
        {
            assert!(answer.starts_with("HTTP/1.1 503") && answer.ends_with("shutting down\n"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    probing.await;
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert_eq!(proxy.process.exited().await.how, How::Exited(0));
}

#[tokio::test]
async fn requests_in_flight_are_waited_for_and_arrivals_prolong_the_quiet_period() {
    let (_app, proxy) = pod(2.0 * FAST).await;
    let start = Instant::now();
    let slow = get(proxy.serving, "/?sleep=2500&bytes=7");
    let rest = async {
        proxy.process.sigterm();
        let hook = get(proxy.admin, "/wait-for-drain");
        let late = async {
            tokio::time::sleep(Duration::from_millis(150)).await;
            assert_eq!(get(proxy.serving, "/").await.0, StatusCode::OK);
        };
        let (hook, ()) = tokio::join!(hook, late);
        assert_eq!(hook.0, StatusCode::OK);
        let quiet = start.elapsed();
        assert!(quiet >= Duration::from_millis(750), "150 + 600: {quiet:?}");
        closed(proxy.serving).await;
        assert!(proxy.process.is_running(), "a request is in flight");
    };
    let ((status, body), ()) = tokio::join!(slow, rest);
    assert_eq!((status, body.len()), (StatusCode::OK, 7));
    assert_eq!(proxy.process.exited().await.how, How::Exited(0));
}

#[tokio::test]
async fn a_hook_without_sigterm_is_reset() {
    let (_app, proxy) = pod(FAST).await;
    let start = Instant::now();
    assert_eq!(get(proxy.admin, "/wait-for-drain").await.0, StatusCode::OK);
    let reset = start.elapsed();
    assert!(reset >= Duration::from_millis(10), "{reset:?}");
    assert!(
        raw(proxy.serving, "k-network-probe: queue")
            .await
            .starts_with("HTTP/1.1 200")
    );
    assert!(proxy.process.is_running());
    let again = Instant::now();
    proxy.process.sigterm();
    proxy.process.exited().await;
    assert!(
        again.elapsed() >= Duration::from_millis(300),
        "a whole quiet period follows"
    );
}

#[tokio::test]
async fn upgrades_are_cut_after_their_own_limit_and_a_second_sigterm_ends_all() {
    let (app, proxy) = pod(FAST).await;
    let mut upgraded = TcpStream::connect(proxy.serving).await.expect("connects");
    let head = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n+";
    upgraded.write_all(head.as_bytes()).await.expect("writes");
    while upgraded.read_u8().await.expect("the 101, then the echo") != b'+' {}
    let start = Instant::now();
    proxy.process.sigterm();
    let mut rest = Vec::new();
    let _ = upgraded.read_to_end(&mut rest).await;
    assert!(
        start.elapsed() >= Duration::from_millis(900),
        "30 s + 60 s: {:?}",
        start.elapsed()
    );
    assert_eq!(proxy.process.exited().await.how, How::Exited(0));

    let second = start_over(&app).await;
    second.process.sigterm();
    second.process.sigterm();
    assert_eq!(second.process.exited().await.how, How::Exited(1));
}

async fn start_over(app: &app::Handle) -> Handle {
    start(Config::new(app.addr)).await.expect("queue-proxy")
}

#[tokio::test]
async fn metrics_show_what_is_in_flight() {
    let (_app, proxy) = pod(FAST).await;
    // Field 2 (average concurrency) is a double with tag 0x11.
    let in_flight =
        |report: &Bytes| report.windows(1).any(|tag| tag[0] == 0x11) && report.len() > 25;
    let idle = get(proxy.metrics, "/metrics").await.1;
    assert!(!in_flight(&idle), "{idle:?}");
    let slow = get(proxy.serving, "/?sleep=600000");
    let look = async {
        while !in_flight(&get(proxy.metrics, "/metrics").await.1) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        _ = slow => panic!("answered before its time"),
        () = look => {}
    }
}
