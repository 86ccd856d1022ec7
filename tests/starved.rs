//! The gate in a process that runs out of descriptors, and gets them back.

use std::fs::File;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tidegate::gate::{Bound, GateConfig, Limits, Mode, Route};
use tidegate::metrics::Metrics;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};

const LIMIT: Duration = Duration::from_secs(20);

/// The only test of its process, since the limit is the process's.
#[tokio::test]
async fn connections_wait_while_there_are_no_descriptors_and_are_served_once_there_are() {
    let workload = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let upstream = workload.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = workload.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    let route = Route {
        listen: 0,
        upstream,
    };
    let config = GateConfig {
        mode: Mode::Http,
        routes: vec![route],
        tls: None,
        limits: Limits {
            accept_backoff: Duration::from_millis(5),
            ..Limits::default()
        },
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config).expect("bound");
    let addr = SocketAddr::from(([127, 0, 0, 1], bound.addrs()[0].port()));
    let gate = bound.serve(&Arc::new(Metrics::new())).expect("serves");

    // One is through already.
    let mut early = TcpStream::connect(addr).await.expect("connected");
    echoed(&mut early).await;
    // The client of the next one has its descriptor; the gate gets none, for anything.
    let late = tokio::net::TcpSocket::new_v4().expect("a socket");
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(256);
    setrlimit(Resource::Nofile, limit).expect("a lower limit");
    let mut all = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        all.push(file);
    }
    let mut late = late.connect(addr).await.expect("by the kernel");
    late.write_all(b"\0late").await.expect("by the kernel");
    let mut back = [0; 5];
    let answered = timeout(Duration::from_millis(200), late.read(&mut back)).await;
    echoed(&mut early).await;
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    sleep(Duration::from_millis(300)).await;
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime) - cpu;
    drop(all);
    assert!(answered.is_err(), "it was served without a descriptor");
    assert!(
        spent.tv_sec == 0 && spent.tv_nsec < 150_000_000,
        "it spins: {spent:?}"
    );

    let read = timeout(LIMIT, late.read_exact(&mut back)).await;
    read.expect("in time").expect("served after all");
    assert_eq!(&back, b"\0late");
    drop((early, late));
    timeout(LIMIT, gate.counter().idle())
        .await
        .expect("in time");
    assert_eq!(gate.shutdown(Duration::from_secs(1)).await, 0);
}

async fn echoed(tcp: &mut TcpStream) {
    tcp.write_all(b"\0early").await.expect("sent");
    let mut back = [0; 6];
    let read = timeout(LIMIT, tcp.read_exact(&mut back)).await;
    read.expect("in time").expect("echoed");
}
