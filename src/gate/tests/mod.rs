//! The gate on real sockets: one connection's pump in the test's own runtime, or a whole gate.

mod bulk;
mod counter;
mod detect;
mod drain;
mod http;
mod limits;
mod pump;
mod script;
mod tls;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::conn;
use super::counter::{Counter, Kind};
use super::engine::Engine;
use super::limits::Limits;
use super::listen::{Bound, GateConfig, Mode, Route};
use super::metrics::Metrics as Figures;
use super::pump::Pump;
use super::server::Gate;
use super::shared::{Seat, Shared};
use super::side::Side;
use crate::metrics::{Format, Metrics};

/// What is waited for comes, or the test fails.
async fn within<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(20);
    timeout(limit, what).await.expect("it happens in time")
}

/// Two ends of a TCP connection.
async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    let (here, there) = tokio::join!(TcpStream::connect(addr), listener.accept());
    (here.expect("connected"), there.expect("accepted").0)
}

/// A workload: its listener, and where it listens.
async fn workload() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    (listener, addr)
}

/// A workload that sends everything back.
async fn echo() -> SocketAddr {
    let (listener, addr) = workload().await;
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
                let _ = write.shutdown().await;
            });
        }
    });
    addr
}

/// An address at which nobody listens.
async fn nobody() -> SocketAddr {
    workload().await.1
}

fn shared(limits: Limits, announce: Duration) -> Arc<Shared> {
    Arc::new(Shared::new(limits, announce, None, Figures::default()))
}

/// What all connections share, by default.
fn quiet() -> Arc<Shared> {
    shared(Limits::default(), Duration::ZERO)
}

/// A connection to `upstream`, and its client.
async fn connection(shared: &Arc<Shared>, upstream: SocketAddr, mode: Mode) -> (Pump, TcpStream) {
    let (client, ours) = pair().await;
    let seat = Seat::take(shared, upstream).expect("a place");
    (conn::begin(ours, seat, mode).expect("admitted"), client)
}

/// The same with an engine of the test's own.
async fn driven(
    shared: &Arc<Shared>,
    upstream: SocketAddr,
    engine: Box<dyn Engine>,
) -> (Pump, TcpStream) {
    let (client, ours) = pair().await;
    let seat = Seat::take(shared, upstream).expect("a place");
    (Pump::new(seat, Side::Plain(ours), engine, false), client)
}

/// A gate with one route to `upstream`, where it listens, and its metrics.
fn gate(mode: Mode, upstream: SocketAddr, limits: Limits) -> (Gate, SocketAddr, Arc<Metrics>) {
    let config = GateConfig {
        mode,
        routes: vec![Route {
            listen: 0,
            upstream,
        }],
        tls: None,
        limits,
        announce: Duration::from_millis(100),
    };
    serve(&config)
}

fn serve(config: &GateConfig) -> (Gate, SocketAddr, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let bound = Bound::bind(config).expect("bound");
    let addr = SocketAddr::from(([127, 0, 0, 1], bound.addrs()[0].port()));
    (bound.serve(&metrics).expect("serves"), addr, metrics)
}

/// Returns once `what` holds; looked at often, since counters tell nobody.
async fn until(what: impl Fn() -> bool) {
    within(async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Sends `bytes` and reads as many back.
async fn ask(tcp: &mut TcpStream, bytes: &[u8]) -> Vec<u8> {
    within(async {
        tcp.write_all(bytes).await.expect("sent");
        let mut back = vec![0; bytes.len()];
        tcp.read_exact(&mut back).await.expect("answered");
        back
    })
    .await
}

/// All that still comes.
async fn rest(tcp: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    within(tcp.read_to_end(&mut all)).await.expect("it ends");
    all
}

fn metric(metrics: &Metrics, line: &str) -> bool {
    let text = metrics.encode(Format::Prometheus);
    text.lines().any(|other| other == line)
}

fn tunnels(counter: &Counter) -> u64 {
    counter.active(Kind::Tunnel)
}
