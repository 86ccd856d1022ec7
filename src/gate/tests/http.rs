//! HTTP through the whole of it: engines, pump, sockets, and the drain.

use bytes::Bytes;

use super::*;
use crate::gate::engine::Stage;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// Sends and reads until `end` has come.
async fn exchange(tcp: &mut TcpStream, bytes: &[u8], end: &str) -> String {
    within(tcp.write_all(bytes)).await.expect("sent");
    let mut got = Vec::new();
    while !got.ends_with(end.as_bytes()) {
        let read = within(tcp.read_buf(&mut got)).await.expect("answered");
        assert!(read > 0, "ended after {}", got.escape_ascii());
    }
    String::from_utf8(got).expect("text")
}

/// A client and a workload with a gate's pump between them; the workload has read a first request.
async fn asked(shared: &Arc<Shared>, request: &[u8]) -> (TcpStream, TcpStream) {
    let (listener, upstream) = workload().await;
    let (pump, mut client) = connection(shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    client.write_all(request).await.expect("sent");
    let (mut workload, _) = within(listener.accept()).await.expect("connected");
    let mut got = vec![0; request.len()];
    within(workload.read_exact(&mut got)).await.expect("came");
    assert_eq!(got, request);
    (client, workload)
}

#[tokio::test]
async fn requests_are_counted_while_they_last_and_the_last_says_close() {
    let shared = quiet();
    let (mut client, mut workload) = asked(&shared, GET).await;
    assert_eq!(shared.counter.active(Kind::Request), 1);
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    workload.write_all(reply).await.expect("sent");
    assert_eq!(exchange(&mut client, b"", "hi").await.as_bytes(), reply);
    until(|| shared.counter.in_flight() == 0).await;

    let asking = tokio::spawn(async move {
        let got = exchange(&mut client, GET, "hi").await;
        assert_eq!(rest(&mut client).await, b"");
        got
    });
    let mut got = [0; GET.len()];
    within(workload.read_exact(&mut got)).await.expect("came");
    shared.advance(Stage::Announcing);
    workload.write_all(reply).await.expect("sent");
    let got = within(asking).await.expect("no panic");
    assert!(got.contains("connection: close\r\n"), "{got}");
    until(|| shared.counter.in_flight() == 0).await;
    assert_eq!((shared.counter.total(), shared.counter.cut()), (2, 0));
}

#[tokio::test]
async fn a_workload_that_refuses_is_told_as_503_by_tidegate() {
    let shared = quiet();
    let (pump, mut client) = connection(&shared, nobody().await, Mode::Http).await;
    tokio::spawn(pump);
    client.write_all(GET).await.expect("sent");
    let got = String::from_utf8(rest(&mut client).await).expect("text");
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    assert!(got.contains("connection: close\r\n"), "{got}");
    assert!(got.contains("tidegate"), "{got}");
    until(|| shared.counter.in_flight() == 0).await;
}

#[tokio::test]
async fn a_workload_that_closes_without_a_reply_is_told_as_503() {
    let shared = quiet();
    let (mut client, workload) = asked(&shared, GET).await;
    drop(workload);
    let got = String::from_utf8(rest(&mut client).await).expect("text");
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    assert_eq!(shared.counter.cut(), 1);
}

#[tokio::test]
async fn a_reply_until_the_close_ends_with_it() {
    let shared = quiet();
    let (mut client, mut workload) = asked(&shared, GET).await;
    let reply = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
    workload.write_all(reply).await.expect("sent");
    drop(workload);
    assert_eq!(rest(&mut client).await, reply);
    assert_eq!((shared.counter.in_flight(), shared.counter.cut()), (0, 0));
}

#[tokio::test]
async fn a_request_after_the_close_gets_503_and_goes_nowhere() {
    let shared = quiet();
    let (mut client, mut workload) = asked(&shared, GET).await;
    let (pump, mut other) = connection(&shared, nobody().await, Mode::Http).await;
    other.write_all(GET).await.expect("sent");
    shared.advance(Stage::Closed);
    tokio::spawn(pump);
    let got = String::from_utf8(rest(&mut other).await).expect("text");
    assert!(got.starts_with("HTTP/1.1 503 "), "{got}");
    // What was in flight goes on.
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
    workload.write_all(reply).await.expect("sent");
    let got = String::from_utf8(rest(&mut client).await).expect("text");
    assert!(got.ends_with("\r\n\r\nhi"), "{got}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_bodies_are_spliced_and_the_connection_goes_on() {
    const BODY: usize = 5_000_001;
    let shared = quiet();
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {BODY}\r\n\r\n");
    let (client, workload) = asked(&shared, head.as_bytes()).await;
    let body: Vec<u8> = (0..BODY).map(|at| (at % 253) as u8).collect();
    let (mut from_gate, mut to_gate) = client.into_split();
    let (mut from_client, mut to_client) = workload.into_split();
    let (sent, echoed) = (body.clone(), body.clone());
    tokio::spawn(async move {
        to_gate.write_all(&sent).await.expect("sent");
        to_gate.write_all(GET).await.expect("sent");
        std::future::pending::<()>().await;
    });
    let mut got = vec![0; BODY + GET.len()];
    within(from_client.read_exact(&mut got))
        .await
        .expect("came");
    assert!(got[..BODY] == body && &got[BODY..] == GET);
    until(|| shared.counter.active(Kind::Request) == 2).await;
    let replies = tokio::spawn(async move {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {BODY}\r\n\r\n");
        let last = b"HTTP/1.1 204 No Content\r\n\r\n";
        for part in [head.as_bytes(), &echoed, last] {
            to_client.write_all(part).await.expect("sent");
        }
        head.len() + BODY + last.len()
    });
    let mut got = Vec::new();
    while !got.ends_with(b"204 No Content\r\n\r\n") {
        assert!(within(from_gate.read_buf(&mut got)).await.expect("came") > 0);
    }
    assert_eq!(got.len(), within(replies).await.expect("no panic"));
    until(|| shared.counter.in_flight() == 0).await;
    let (made, borrowed) = shared.pipes.count();
    assert!(
        made > 0 && borrowed == 0,
        "{made} made, {borrowed} borrowed"
    );
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_and_gets_a_close_frame_in_the_end() {
    let shared = quiet();
    let upgrade = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let (mut client, mut workload) = asked(&shared, upgrade).await;
    let switching =
        b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    workload.write_all(switching).await.expect("sent");
    workload.write_all(b"\x81\x02hi").await.expect("sent");
    let mut got = vec![0; switching.len() + 4];
    within(client.read_exact(&mut got)).await.expect("came");
    assert!(got.ends_with(b"\x81\x02hi"), "{}", got.escape_ascii());
    assert_eq!((tunnels(&shared.counter), shared.counter.total()), (1, 1));
    shared.advance(Stage::Draining);
    client.write_all(b"\x81\x82\0\0\0\0yo").await.expect("sent");
    let mut got = [0; 8];
    within(workload.read_exact(&mut got)).await.expect("came");
    shared.advance(Stage::EndingUpgrades);
    let mut close = [0; 4];
    within(client.read_exact(&mut close)).await.expect("came");
    assert_eq!((close[0], &close[2..]), (0x88, &1001u16.to_be_bytes()[..]));
}

#[tokio::test]
async fn http2_streams_are_counted_and_told_to_go() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (pump, client) = connection(&shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    let (answer, answers) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let (tcp, _) = listener.accept().await.expect("connected");
        let mut server = h2::server::handshake(tcp).await.expect("HTTP/2");
        let (_request, mut respond) = server.accept().await.expect("a stream").expect("a request");
        let replying = async {
            let _ = answers.await;
            let reply = ::http::Response::new(());
            let mut body = respond.send_response(reply, false).expect("sent");
            body.send_data(Bytes::from_static(b"hi"), true)
                .expect("sent");
        };
        let serving = async { while server.accept().await.is_some() {} };
        tokio::join!(replying, serving);
    });
    let (mut streams, connection) = h2::client::handshake(client).await.expect("HTTP/2");
    let ended = tokio::spawn(connection);
    let request = ::http::Request::get("http://x/")
        .body(())
        .expect("a request");
    streams = streams.ready().await.expect("open");
    let (reply, _) = streams.send_request(request, true).expect("sent");
    until(|| shared.counter.active(Kind::Stream) == 1).await;
    shared.advance(Stage::Draining);
    answer.send(()).expect("the workload waits");
    let mut reply = within(reply).await.expect("a reply");
    let body = within(reply.body_mut().data()).await.expect("a body");
    assert_eq!(body.expect("whole"), "hi");
    // The gate's GOAWAY, and then its end: without an error.
    within(ended).await.expect("no panic").expect("a clean end");
    until(|| shared.counter.in_flight() == 0).await;
    assert_eq!((shared.counter.total(), shared.counter.cut()), (1, 0));
}

#[tokio::test]
async fn what_is_no_http_is_a_tunnel_and_its_doubt_is_counted() {
    let metrics = Arc::new(Metrics::new());
    let config = GateConfig {
        mode: Mode::Http,
        routes: vec![Route {
            listen: 0,
            upstream: echo().await,
        }],
        tls: None,
        limits: Limits::default(),
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config).expect("bound");
    let addr = SocketAddr::from(([127, 0, 0, 1], bound.addrs()[0].port()));
    let gate = bound.serve(&metrics).expect("serves");
    let mut client = TcpStream::connect(addr).await.expect("connected");
    let odd = b"GET / HTTP/1.1\nbare: lf\n\n";
    assert_eq!(ask(&mut client, odd).await, odd);
    assert_eq!(tunnels(&gate.counter()), 1);
    drop(client);
    let counted = "tidegate_gate_doubts_total{doubt=\"bare-lf\"} 1";
    until(|| metric(&metrics, counted)).await;
}
