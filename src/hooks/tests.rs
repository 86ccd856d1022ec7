//! The hook server over real sockets; limits are shortened where a test waits for one.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::conn::Origin;
use super::*;
use crate::metrics::Metrics;

mod bounds;
mod finish;
mod holds;

/// Far more than anything here takes.
const LONG: Duration = Duration::from_secs(20);

/// A hook server and what is around it.
struct Rig {
    addr: SocketAddr,
    notices: mpsc::Receiver<Notice>,
    board: watch::Sender<Board>,
    metrics: Arc<Metrics>,
    server: Server,
}

fn rig() -> Rig {
    rig_with(Limits::default(), 64)
}

fn rig_with(limits: Limits, queue: usize) -> Rig {
    let bound = Bound::bind(0).unwrap().with_limits(limits);
    serve(bound, queue)
}

fn serve(bound: Bound, queue: usize) -> Rig {
    let addr = localhost(bound.addr().port());
    let (sender, notices) = mpsc::channel(queue);
    let (board, receiver) = watch::channel(Board {
        phase: Phase::Serving,
        ready: true,
        proxy_released: false,
        status: Arc::new(json!({"phase": "serving"})),
    });
    let metrics = Arc::new(Metrics::new());
    let server = bound.serve(sender, receiver, metrics.clone()).unwrap();
    Rig {
        addr,
        notices,
        board,
        metrics,
        server,
    }
}

fn localhost(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

async fn connect_from(source: IpAddr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// As Istio's Envoy connects.
async fn connect_as_envoy(to: SocketAddr) -> TcpStream {
    connect_from(Ipv4Addr::new(127, 0, 0, 6).into(), to).await
}

/// Sends `request` and returns all that comes until the server closes.
async fn until_closed(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(LONG, stream.read_to_string(&mut answer))
        .await
        .expect("the server closes")
        .unwrap();
    answer
}

/// One request on a connection of its own.
async fn ask(addr: SocketAddr, line: &str) -> String {
    let stream = TcpStream::connect(addr).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    until_closed(stream, &request).await
}

/// Reads one answer that has no body.
async fn empty_answer(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let read = timeout(LONG, stream.read_buf(&mut head)).await.unwrap();
        assert_ne!(read.unwrap(), 0, "closed after {head:?}");
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.contains("\r\ncontent-length: 0\r\n"), "{head}");
    head
}

async fn notice(rig: &mut Rig) -> Notice {
    timeout(LONG, rig.notices.recv())
        .await
        .unwrap()
        .expect("the server lives")
}

fn status(answer: &str) -> &str {
    answer.lines().next().unwrap_or_default()
}

fn metric(rig: &Rig, name: &str) -> f64 {
    let text = rig.metrics.encode(crate::metrics::Format::Prometheus);
    let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
    line.trim().parse().unwrap()
}

#[tokio::test]
async fn every_endpoint_answers() {
    let mut rig = rig();
    let live = ask(rig.addr, "GET /livez").await;
    assert_eq!(status(&live), "HTTP/1.1 200 OK");
    let ready = ask(rig.addr, "GET /readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200") && ready.ends_with("\r\n\r\nready\n"));
    let held = ask(rig.addr, "GET /released").await;
    assert!(held.starts_with("HTTP/1.1 503"), "{held}");
    assert!(matches!(
        notice(&mut rig).await,
        Notice::ReleasedPolled { released: false }
    ));
    let report = ask(rig.addr, "GET /status").await;
    assert!(report.contains("content-type: application/json\r\n"));
    assert!(report.ends_with("{\"phase\":\"serving\"}\n"), "{report}");

    rig.board.send_modify(|board| {
        board.phase = Phase::Draining;
        board.ready = false;
        board.proxy_released = true;
    });
    let ready = ask(rig.addr, "GET /readyz?verbose").await;
    assert!(ready.starts_with("HTTP/1.1 503") && ready.ends_with("\r\n\r\ndraining\n"));
    let released = ask(rig.addr, "GET /released").await;
    assert!(released.starts_with("HTTP/1.1 200"), "{released}");
    assert!(matches!(
        notice(&mut rig).await,
        Notice::ReleasedPolled { released: true }
    ));
    assert!(
        ask(rig.addr, "GET /livez")
            .await
            .starts_with("HTTP/1.1 200")
    );
}

#[tokio::test]
async fn a_poll_sees_the_release_at_once() {
    let patient = Limits {
        poll: LONG,
        ..Limits::default()
    };
    let mut rig = rig_with(patient, 4);
    let addr = rig.addr;
    let poll = tokio::spawn(async move { ask(addr, "GET /released").await });
    assert!(matches!(
        notice(&mut rig).await,
        Notice::ReleasedPolled { released: false }
    ));
    // What else is told does not end it.
    rig.board.send_modify(|board| board.phase = Phase::Draining);
    assert!(ask(addr, "GET /livez").await.contains(" 200 "));
    assert!(!poll.is_finished());

    rig.board.send_modify(|board| board.proxy_released = true);
    assert!(matches!(
        notice(&mut rig).await,
        Notice::ReleasedPolled { released: true }
    ));
    assert!(poll.await.unwrap().contains(" 200 "));
}

#[tokio::test]
async fn a_poll_holds_up_no_end() {
    let patient = Limits {
        poll: 2 * LONG,
        ..Limits::default()
    };
    let mut rig = rig_with(patient, 4);
    let addr = rig.addr;
    let poll = tokio::spawn(async move { ask(addr, "GET /released").await });
    notice(&mut rig).await;
    assert!(rig.server.finish(LONG).await, "all left");
    assert!(poll.await.unwrap().contains(" 503 "));
}

#[tokio::test]
async fn metrics_come_in_both_forms() {
    let rig = rig();
    let plain = ask(rig.addr, "GET /metrics").await;
    assert!(plain.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert!(plain.contains("# TYPE tidegate_hooks_answered_total counter\n"));
    assert!(!plain.contains("# EOF"));
    let stream = TcpStream::connect(rig.addr).await.unwrap();
    let open = until_closed(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\n\r\n",
    )
    .await;
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0;"));
    assert!(open.ends_with("# EOF\n"), "{open}");
}

#[tokio::test]
async fn what_the_pod_polls_is_told_and_what_the_network_polls_is_not() {
    let mut rig = rig();
    let stream = connect_as_envoy(rig.addr).await;
    let request = "GET /released HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(until_closed(stream, request).await.contains(" 503 "));
    ask(rig.addr, "POST /drain").await;
    assert!(matches!(notice(&mut rig).await, Notice::Drain));
}

#[tokio::test]
async fn unknown_paths_are_404() {
    let mut rig = rig();
    for path in [
        "/",
        "/livez/",
        "/drain/",
        "//livez",
        "/wait-for-drain/x",
        "/LIVEZ",
        "*",
    ] {
        for verb in ["GET", "POST", "OPTIONS"] {
            let answer = ask(rig.addr, &format!("{verb} {path}")).await;
            assert_eq!(status(&answer), "HTTP/1.1 404 Not Found", "{verb} {path}");
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_eq!(body.matches('\n').count(), 1, "one line: {body}");
        }
    }
    assert!(rig.notices.try_recv().is_err());
}

#[tokio::test]
async fn wrong_verbs_are_405_and_say_which_is_right() {
    let mut rig = rig();
    let gets = [
        "/wait-for-drain",
        "/released",
        "/readyz",
        "/livez",
        "/metrics",
        "/status",
    ];
    let wrong = gets
        .iter()
        .flat_map(|path| ["POST", "PUT", "DELETE", "BREW"].map(|verb| (verb, *path, "GET")))
        .chain([("GET", "/drain", "POST"), ("PUT", "/drain", "POST")]);
    for (verb, path, right) in wrong {
        let answer = ask(rig.addr, &format!("{verb} {path}")).await;
        assert_eq!(
            status(&answer),
            "HTTP/1.1 405 Method Not Allowed",
            "{verb} {path}"
        );
        assert!(
            answer.contains(&format!("\r\nallow: {right}\r\n")),
            "{answer}"
        );
    }
    assert!(rig.notices.try_recv().is_err());
}

#[tokio::test]
async fn a_drain_is_the_pods_own() {
    let mut rig = rig();
    let answer = ask(rig.addr, "POST /drain").await;
    assert_eq!(status(&answer), "HTTP/1.1 200 OK");
    assert!(matches!(notice(&mut rig).await, Notice::Drain));

    let request = "POST /drain HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let mut strangers = vec![connect_as_envoy(rig.addr).await];
    match outer_address() {
        Some(ip) => {
            let addr = SocketAddr::from((ip, rig.addr.port()));
            strangers.push(connect_from(ip, addr).await);
            strangers.push(connect_from(Ipv4Addr::LOCALHOST.into(), addr).await);
        }
        None => eprintln!("no address but loopback here: that part is skipped"),
    }
    for stream in strangers {
        let peer = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let answer = until_closed(stream, request).await;
        assert_eq!(status(&answer), "HTTP/1.1 403 Forbidden", "{peer:?}");
    }
    assert!(
        rig.notices.try_recv().is_err(),
        "a stranger drained the pod"
    );
}

/// An address of this machine that is not a loopback one; connecting to it stays on the machine.
fn outer_address() -> Option<IpAddr> {
    let probe = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    probe.connect("192.0.2.1:9").ok()?;
    let ip = probe.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

#[tokio::test]
async fn the_commands_reach_the_server() {
    use crate::control::{self, Probe};
    let mut rig = rig();
    let port = rig.addr.port();
    let run = |command: fn(u16) -> u8| tokio::task::spawn_blocking(move || command(port));
    let ready = || run(|port| control::probe(port, Probe::Ready));
    assert_eq!(ready().await.unwrap(), 0);
    assert_eq!(run(control::drain).await.unwrap(), 0);
    assert!(matches!(notice(&mut rig).await, Notice::Drain));
    rig.board.send_modify(|board| board.ready = false);
    assert_eq!(ready().await.unwrap(), 1);
    let live = run(|port| control::probe(port, Probe::Live));
    assert_eq!(live.await.unwrap(), 0);
}

#[test]
fn who_is_the_pod() {
    for (peer, local, expected) in [
        ("127.0.0.1:1", "127.0.0.1:2", Origin::Pod),
        ("[::1]:1", "[::1]:2", Origin::Pod),
        ("[::ffff:127.0.0.1]:1", "[::ffff:127.0.0.1]:2", Origin::Pod),
        ("127.0.0.6:1", "127.0.0.1:2", Origin::Network),
        (
            "[::ffff:127.0.0.6]:1",
            "[::ffff:127.0.0.1]:2",
            Origin::Network,
        ),
        // Envoy's IPv6 passthrough source.
        ("[::6]:1", "[::1]:2", Origin::Network),
        ("127.0.0.1:1", "10.0.0.7:2", Origin::Network),
        (
            "[::ffff:127.0.0.1]:1",
            "[::ffff:10.0.0.7]:2",
            Origin::Network,
        ),
        ("10.0.0.7:1", "10.0.0.7:2", Origin::Network),
        ("[fd00::2]:1", "[fd00::2]:2", Origin::Network),
    ] {
        let local = Some(local.parse().unwrap());
        assert_eq!(Origin::of(peer.parse().unwrap(), local), expected, "{peer}");
    }
    assert_eq!(Origin::of(localhost(1), None), Origin::Network);
}

#[tokio::test]
async fn both_families_are_served() {
    let rig = rig();
    assert!(ask(rig.addr, "GET /livez").await.contains(" 200 "));
    let six = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, rig.addr.port()));
    match std::net::TcpListener::bind("[::1]:0") {
        Ok(_) => assert!(ask(six, "POST /drain").await.contains(" 200 ")),
        Err(_) => eprintln!("no IPv6 here: that part is skipped"),
    }
}

#[test]
fn a_taken_port_says_what_to_do() {
    let first = Bound::bind(0).unwrap();
    let port = first.addr().port();
    let error = Bound::bind(port).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "port {port} is taken; set tidegate.dev/hook-port (TIDEGATE_HOOK_PORT) to a free one"
        )
    );
    // Taken on one address only is taken all the same.
    let one = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = one.local_addr().unwrap().port();
    assert!(matches!(Bound::bind(port), Err(BindError::Taken(p)) if p == port));
}

#[test]
fn container_names() {
    use super::routes::container;
    let longest = "c".repeat(63);
    for (query, expected) in [
        (None, ""),
        (Some("container=user-container"), "user-container"),
        (Some("x=1&container=queue-proxy&y"), "queue-proxy"),
        (Some("container="), ""),
        (Some("Container=a"), ""),
        (Some("container=a%0Ab"), ""),
        (Some(&*format!("container={longest}")), &*longest),
        (Some(&*format!("container={longest}c")), ""),
    ] {
        assert_eq!(container(query), expected, "{query:?}");
    }
}
