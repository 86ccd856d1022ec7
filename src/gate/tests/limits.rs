//! What the gate gives to anybody, and its ports.

use super::*;
use crate::gate::listen::BindError;

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_counted() {
    let limits = Limits {
        connections: 2,
        ..Limits::default()
    };
    let (gate, addr, metrics) = gate(Mode::Tcp, echo().await, limits);
    let mut first = TcpStream::connect(addr).await.expect("connected");
    let mut second = TcpStream::connect(addr).await.expect("connected");
    ask(&mut first, b"1").await;
    ask(&mut second, b"2").await;
    let mut third = TcpStream::connect(addr).await.expect("by the kernel");
    assert_eq!(rest(&mut third).await, b"");
    assert!(metric(
        &metrics,
        "tidegate_gate_connections_refused_total 1"
    ));
    assert!(metric(&metrics, "tidegate_gate_connections_open 2"));
    assert!(metric(&metrics, "tidegate_gate_active{kind=\"tunnel\"} 2"));
    drop(first);
    until(|| metric(&metrics, "tidegate_gate_connections_open 1")).await;
    let mut fourth = TcpStream::connect(addr).await.expect("connected");
    assert_eq!(ask(&mut fourth, b"4").await, b"4");
    assert!(metric(&metrics, "tidegate_gate_connections_total 3"));
    assert!(metric(&metrics, "tidegate_gate_admitted_total 3"));
    drop((second, fourth));
    let counter = gate.counter();
    within(counter.idle()).await;
    assert_eq!(gate.shutdown(Duration::from_secs(1)).await, 0);
}

#[test]
fn without_a_gate_there_are_no_figures_of_it() {
    let text = Metrics::new().encode(Format::Prometheus);
    assert!(!text.contains("tidegate_gate_"), "{text}");
}

#[tokio::test]
async fn an_idle_client_is_given_up_after_the_limit_and_not_before() {
    let limits = Limits {
        idle: Duration::from_millis(100),
        ..Limits::default()
    };
    let shared = shared(limits, Duration::ZERO);
    let (pump, mut client) = connection(&shared, nobody().await, Mode::Http).await;
    let began = tokio::time::Instant::now();
    tokio::spawn(pump);
    assert_eq!(rest(&mut client).await, b"");
    assert!(began.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_tunnel_may_be_silent_for_as_long_as_it_likes() {
    let limits = Limits {
        idle: Duration::from_millis(1),
        head: Duration::from_millis(1),
        ..Limits::default()
    };
    let shared = shared(limits, Duration::ZERO);
    let (pump, mut client) = connection(&shared, echo().await, Mode::Tcp).await;
    tokio::spawn(pump);
    assert_eq!(ask(&mut client, b"1").await, b"1");
    let read = timeout(Duration::from_millis(50), client.read(&mut [0; 1])).await;
    assert!(read.is_err(), "it was closed");
    assert_eq!(ask(&mut client, b"2").await, b"2");
}

#[test]
fn a_taken_port_is_named_with_its_cure() {
    let taken = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let config = GateConfig {
        mode: Mode::Http,
        routes: vec![Route {
            listen: port,
            upstream: SocketAddr::from(([127, 0, 0, 1], 1)),
        }],
        tls: None,
        limits: Limits::default(),
        announce: Duration::ZERO,
    };
    let error = Bound::bind(&config).err().expect("taken");
    assert!(matches!(error, BindError::Taken(other) if other == port));
    assert!(error.to_string().contains("tidegate.dev/gate"), "{error}");
}

#[tokio::test]
async fn every_route_leads_to_its_own_workload() {
    let (one, two) = (workload().await, workload().await);
    let config = GateConfig {
        mode: Mode::Tcp,
        routes: [one.1, two.1]
            .map(|upstream| Route {
                listen: 0,
                upstream,
            })
            .to_vec(),
        tls: None,
        limits: Limits::default(),
        announce: Duration::ZERO,
    };
    let bound = Bound::bind(&config).expect("bound");
    let ports: Vec<_> = bound.addrs().iter().map(SocketAddr::port).collect();
    let _gate = bound.serve(&Arc::new(Metrics::new())).expect("serves");
    for (port, (listener, _)) in ports.into_iter().zip([one, two]) {
        let _client = TcpStream::connect(("127.0.0.1", port))
            .await
            .expect("connected");
        let (tcp, _) = within(listener.accept()).await.expect("connected");
        assert!(tcp.nodelay().is_ok());
    }
}
