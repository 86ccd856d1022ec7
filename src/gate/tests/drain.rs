//! The drain's stages, on a whole gate and on single connections.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::time::Instant;

use super::script::Script;
use super::*;
use crate::gate::engine::Stage;

#[tokio::test]
async fn idle_connections_are_closed_spread_over_the_announcement() {
    let spread = Duration::from_millis(200);
    let shared = shared(Limits::default(), spread);
    let upstream = echo().await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let (pump, client) = connection(&shared, upstream, Mode::Http).await;
        tokio::spawn(pump);
        clients.push(client);
    }
    let (pump, mut busy) = connection(&shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    ask(&mut busy, b"\0").await;
    shared.advance(Stage::Announcing);
    ask(&mut busy, b"\0").await;

    let began = Instant::now();
    shared.advance(Stage::Draining);
    let mut closed: Vec<Duration> = Vec::new();
    for mut client in clients {
        let task = tokio::spawn(async move {
            assert_eq!(rest(&mut client).await, b"");
            began.elapsed()
        });
        closed.push(within(task).await.expect("no panic"));
    }
    closed.sort();
    assert!(closed[0] < spread / 2, "{closed:?}");
    assert!(closed[19] > spread / 2, "{closed:?}");
    assert_eq!(ask(&mut busy, b"\0still").await, b"\0still");
    shared.advance(Stage::EndingUpgrades);
    assert_eq!(rest(&mut busy).await, b"");
    until(|| shared.counter.in_flight() == 0).await;
    assert_eq!(shared.counter.cut(), 1);
}

/// It has come for something, and what it sends may be on its way.
#[tokio::test]
async fn a_connection_that_comes_during_the_drain_has_time_to_ask() {
    let limits = Limits {
        head: Duration::from_millis(300),
        ..Limits::default()
    };
    let shared = shared(limits, Duration::ZERO);
    let upstream = echo().await;
    shared.advance(Stage::Draining);
    let (pump, mut silent) = connection(&shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    let began = Instant::now();
    let (pump, mut client) = connection(&shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    let closed = tokio::spawn(async move { rest(&mut silent).await });
    assert_eq!(within(closed).await.expect("no panic"), b"");
    assert!(began.elapsed() >= limits.head / 2, "{:?}", began.elapsed());

    let (pump, mut other) = connection(&shared, upstream, Mode::Http).await;
    tokio::spawn(pump);
    tokio::task::yield_now().await;
    assert_eq!(ask(&mut other, b"\0").await, b"\0");
    assert_eq!(rest(&mut client).await, b"");
}

/// What the kernel has by the time of the close is served, whether the runtime knows of it or not.
#[tokio::test]
async fn a_request_that_has_come_before_the_close_is_served() {
    let shared = quiet();
    let (listener, upstream) = workload().await;
    let (mut pump, mut client) = driven(&shared, upstream, Script::boxed(&shared.counter)).await;
    let turn = async |pump: &mut Pump| {
        poll_fn(|cx| Poll::Ready(Pin::new(&mut *pump).poll(cx).is_ready())).await
    };
    assert!(!turn(&mut pump).await);
    // Written and polled without a turn of the runtime's between.
    assert_eq!(client.try_write(b"request\n").expect("sent"), 8);
    shared.advance(Stage::Draining);
    assert!(!turn(&mut pump).await, "closed over a request");
    tokio::spawn(pump);
    let (mut workload, _) = within(listener.accept()).await.expect("connected");
    let mut got = [0; 14];
    within(workload.read_exact(&mut got)).await.expect("came");
    assert_eq!(&got, b"going\nrequest\n");
    workload.write_all(b"answer\n").await.expect("sent");
    let mut got = Vec::new();
    within(client.read_to_end(&mut got)).await.expect("closed");
    assert!(got.ends_with(b"answer\n"), "{}", got.escape_ascii());
}

#[tokio::test]
async fn what_is_in_flight_may_end_after_the_close_and_nothing_new_begins() {
    let (gate, addr, _metrics) = gate(Mode::Tcp, echo().await, Limits::default());
    let counter = gate.counter();
    let mut old = TcpStream::connect(addr).await.expect("connected");
    assert_eq!(ask(&mut old, b"old").await, b"old");
    // EndingUpgrades would end it.
    let stay = gate.counter().admit(Kind::Request).expect("open");
    gate.stage(Stage::Draining);
    assert_eq!(ask(&mut old, b"still").await, b"still");
    old.shutdown().await.expect("closed");
    assert_eq!(rest(&mut old).await, b"");
    until(|| tunnels(&counter) == 0).await;
    gate.stage(Stage::Closed);
    until(|| counter.is_closed()).await;
    until(|| std::net::TcpStream::connect(addr).is_err()).await;
    gate.stage(Stage::Serving);
    assert!(counter.is_closed(), "stages only advance");
    drop(stay);
    within(counter.idle()).await;
    assert_eq!(gate.shutdown(Duration::from_secs(1)).await, 0);
}

#[tokio::test]
async fn what_does_not_end_by_the_deadline_is_cut_and_counted() {
    let (listener, upstream) = workload().await;
    let (gate, addr, metrics) = gate(Mode::Tcp, upstream, Limits::default());
    let counter = gate.counter();
    let mut clients = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..3 {
        clients.push(TcpStream::connect(addr).await.expect("connected"));
        ends.push(within(listener.accept()).await.expect("connected").0);
    }
    until(|| tunnels(&counter) == 3).await;
    // A client that does not read what it gets: its rest cannot be written.
    let flood = vec![1; 16 << 20];
    let mut flooded = ends.pop().expect("three");
    let _ = timeout(Duration::from_millis(300), flooded.write_all(&flood)).await;
    let began = Instant::now();
    let cut = gate.shutdown(Duration::from_millis(200)).await;
    assert!(began.elapsed() < Duration::from_secs(2));
    assert_eq!(cut, 3);
    assert_eq!(counter.in_flight(), 0);
    assert!(counter.admit(Kind::Request).is_none());
    assert!(metric(&metrics, "tidegate_gate_cut_total 3"));
    let mut got = Vec::new();
    let torn = within(clients[2].read_to_end(&mut got)).await;
    assert!(torn.is_err(), "{} bytes looked like all", got.len());
}

#[tokio::test]
async fn a_gate_that_nobody_uses_ends_at_once() {
    let (gate, addr, _metrics) = gate(Mode::Http, nobody().await, Limits::default());
    let mut silent = TcpStream::connect(addr).await.expect("connected");
    let began = Instant::now();
    gate.stage(Stage::Closed);
    assert_eq!(rest(&mut silent).await, b"");
    drop(silent);
    assert_eq!(gate.shutdown(Duration::from_secs(10)).await, 0);
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_dropped_gate_ends_by_itself() {
    let (gate, addr, _metrics) = gate(Mode::Tcp, echo().await, Limits::default());
    let mut client = TcpStream::connect(addr).await.expect("connected");
    assert_eq!(ask(&mut client, b"x").await, b"x");
    drop(gate);
    // Cut after a while.
    let _ = within(client.read(&mut [0; 1])).await;
    until(|| std::net::TcpStream::connect(addr).is_err()).await;
}
