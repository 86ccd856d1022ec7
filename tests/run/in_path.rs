//! Drains with the sidecar's own gate in the path, over real sockets: what its clients see, and that the
//! last byte lets everybody go. How soon is printed: it depends on the machine.

use std::time::Duration;

use tidegate::config::Mode;
use tidegate::drain::Phase;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::pod::{InPath, LONG, Pod, timing, until};
use crate::{all_answered, drained_of_one};

const GET: &str = "GET / HTTP/1.1\r\nhost: pod\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";

async fn send(stream: &mut TcpStream, bytes: impl AsRef<[u8]>) {
    stream.write_all(bytes.as_ref()).await.unwrap();
}

async fn receive(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = timeout(LONG, stream.read_exact(&mut bytes)).await;
    read.expect("it comes").unwrap();
    bytes
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(LONG, stream.read_to_end(&mut bytes)).await;
    read.expect("it ends").unwrap();
    String::from_utf8(bytes).unwrap()
}

/// The drain has lasted as long as it must, and waits for what is in flight.
async fn overdue(pod: &Pod) {
    tokio::time::sleep(timing().min_drain + timing().quiet).await;
    assert_eq!(pod.status().await["phase"], "draining");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_byte_of_a_reply_lets_everybody_go() {
    let mut pod = Pod::start_with(Mode::Hold, timing(), InPath::Own).await;
    let mut client = pod.connect().await.unwrap();
    send(&mut client, GET).await;
    let mut workload = pod.accept().await;
    receive(&mut workload, GET.len()).await;
    pod.change(|world| (world.active, world.total) = (1, 1));

    pod.pre_stop().await;
    let holds = pod.hold(3).await;
    pod.reach(Phase::Draining).await;
    send(&mut workload, format!("{OK}hell")).await;
    overdue(&pod).await;
    pod.change(|world| world.active = 0);
    send(&mut workload, "o").await;
    let reply = rest(&mut client).await;
    let last_byte = Instant::now();
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\n";
    assert_eq!(reply, format!("{head}hello"));
    all_answered(holds).await;
    let after = last_byte.elapsed();
    println!("3 hooks answered {after:?} after the last byte");
    // A refused connection is safe to try elsewhere.
    until(async || pod.connect().await.is_err()).await;

    drop(workload);
    pod.workload_leaves();
    drained_of_one(pod).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_after_the_close_is_told_so() {
    let mut timing = timing();
    timing.max_drain = Some(Duration::from_secs(1));
    let mut pod = Pod::start_with(Mode::Hold, timing, InPath::Own).await;
    let mut client = pod.connect().await.unwrap();
    send(&mut client, GET).await;
    let mut workload = pod.accept().await;
    receive(&mut workload, GET.len()).await;
    send(&mut workload, format!("{OK}hell")).await;
    receive(&mut client, OK.len() + 4).await;
    // istio-proxy waits to be released, and does not ask again: the sidecar stays for it.
    assert_eq!(pod.ask("GET /released").await.0, 503);
    pod.pre_stop().await;
    pod.reach(Phase::ReleasingWorkload).await;

    // The deadline has come; what was in flight may end all the same.
    send(&mut client, GET).await;
    send(&mut workload, "o").await;
    let replies = rest(&mut client).await;
    let refusal = replies.strip_prefix("o").expect("the first reply is whole");
    let (head, body) = refusal.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.contains("\r\nconnection: close"), "{head}");
    assert!(body.contains("tidegate"), "{body}");
    let report = pod.end().await.0.report;
    assert_eq!((report.outcome.as_str(), report.cut), ("deadline", 1));
}

// ===== h2c =====

const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const PING: u8 = 0x6;
const GO_AWAY: u8 = 0x7;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const ACK: u8 = 0x1;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The next frame's kind, and its payload.
async fn next(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let head = receive(stream, 9).await;
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    (head[3], receive(stream, length as usize).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_after_its_client_was_told_goodbye() {
    let mut pod = Pod::start_with(Mode::Hold, timing(), InPath::Own).await;
    let mut client = pod.connect().await.unwrap();
    let opening = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        frame(SETTINGS, 0, 0, b""),
        // GET http /, as HPACK's static table has it.
        frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x82\x86\x84"),
    ]
    .concat();
    send(&mut client, &opening).await;
    let mut workload = pod.accept().await;
    assert_eq!(receive(&mut workload, opening.len()).await, opening);
    send(&mut workload, frame(SETTINGS, 0, 0, b"")).await;
    send(&mut workload, frame(HEADERS, END_HEADERS, 1, b"\x88")).await;
    assert_eq!(next(&mut client).await.0, SETTINGS);
    assert_eq!(next(&mut client).await.0, HEADERS);
    pod.change(|world| (world.active, world.total) = (1, 1));

    pod.pre_stop().await;
    let holds = pod.hold(3).await;
    let last_of = |(kind, payload): (u8, Vec<u8>)| {
        assert_eq!(kind, GO_AWAY);
        u32::from_be_bytes(payload[..4].try_into().expect("four"))
    };
    assert_eq!(last_of(next(&mut client).await), u32::MAX >> 1);
    let (kind, payload) = next(&mut client).await;
    assert_eq!(kind, PING);
    send(&mut client, frame(PING, ACK, 0, &payload)).await;
    assert_eq!(last_of(next(&mut client).await), 1);
    pod.reach(Phase::Draining).await;
    overdue(&pod).await;
    pod.change(|world| world.active = 0);
    send(&mut workload, frame(DATA, END_STREAM, 1, b"the last")).await;
    assert_eq!(next(&mut client).await, (DATA, b"the last".to_vec()));
    let last_byte = Instant::now();
    all_answered(holds).await;
    let after = last_byte.elapsed();
    println!("3 hooks answered {after:?} after the last frame");
    assert_eq!(rest(&mut client).await, "");
    drop(workload);
    pod.workload_leaves();
    let report = pod.end().await.0.report;
    assert_eq!((report.outcome.as_str(), report.cut), ("drained", 0));
}
