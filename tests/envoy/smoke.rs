//! The harness itself: the namespace, Envoy in it, and the facts that the other tests stand on.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep};

use crate::bootstrap::{Admin, INBOUND, INBOUND_TCP, OTHER_SERVICE, OUTBOUND, QUEUE_PROXY};
use crate::envoy::Envoy;
use crate::{http, netns};

#[test]
fn clusters_counts_what_comes_in() {
    netns::test("smoke::clusters_counts_what_comes_in", || async {
        serve(QUEUE_PROXY, "from the workload").await;
        let envoy = Envoy::start().await;
        assert_eq!(count(&envoy, "rq_total").await, "0");

        let answer = http::get(INBOUND, "/").await.expect("an answer");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "from the workload")
        );
        assert_eq!(count(&envoy, "rq_total").await, "1");
        assert_eq!(count(&envoy, "rq_active").await, "0");
    });
}

#[test]
fn istio_hides_the_downstream_statistics() {
    netns::test("smoke::istio_hides_the_downstream_statistics", || async {
        let envoy = Envoy::start().await;
        let hidden = envoy
            .get("/stats?usedonly&filter=downstream_cx_active$")
            .await;
        assert_eq!((hidden.status, hidden.body.as_str()), (200, ""));
        let kept = envoy.get("/stats?filter=^listener_manager").await;
        assert!(kept.body.contains("listener_manager."), "{}", kept.body);
    });
}

#[test]
fn the_door_closes_inbound_only() {
    netns::test("smoke::the_door_closes_inbound_only", || async {
        serve(QUEUE_PROXY, "from the workload").await;
        serve(OTHER_SERVICE, "from another service").await;
        let envoy = Envoy::start().await;
        http::get(INBOUND, "/").await.expect("the door is open");

        let answer = envoy.post("/drain_listeners?inboundonly").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "OK\n"));
        refused(INBOUND).await;
        refused(INBOUND_TCP).await;

        let answer = http::get(OUTBOUND, "/").await.expect("outbound works");
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "from another service")
        );
        assert_eq!(answer.headers.get("connection"), None);
        assert_eq!(envoy.get("/ready").await.body, "LIVE\n");
    });
}

#[test]
fn the_admin_can_be_a_unix_socket() {
    netns::test("smoke::the_admin_can_be_a_unix_socket", || async {
        let envoy = Envoy::start_with_unix_admin().await;
        assert!(matches!(envoy.admin(), Admin::Unix(socket) if socket.exists()));
        let info = envoy.get("/server_info").await;
        assert!(info.body.contains("\"state\": \"LIVE\""), "{}", info.body);
    });
}

#[test]
fn envoy_quits_and_can_be_killed() {
    netns::test("smoke::envoy_quits_and_can_be_killed", || async {
        let mut envoy = Envoy::start().await;
        envoy.post("/quitquitquit").await;
        let status = envoy.wait_exit(Duration::from_secs(5)).await;
        assert!(status.success(), "{status}");

        let mut envoy = Envoy::start().await;
        let proc = format!("/proc/{}", envoy.pid());
        assert!(Path::new(&proc).exists());
        envoy.kill().await;
        assert!(!Path::new(&proc).exists());
    });
}

#[test]
#[should_panic(expected = "no test is called smoke::misspelt")]
fn a_name_that_runs_no_test_fails() {
    netns::test("smoke::misspelt", || async {});
}

#[test]
#[should_panic(expected = "has not ended within 1s and was killed")]
fn a_test_that_hangs_is_killed() {
    let name = "smoke::a_test_that_hangs_is_killed";
    netns::test_within(Duration::from_secs(1), name, std::future::pending::<()>);
}

/// Answers every request to `127.0.0.1:port` with `body`, until the test ends.
async fn serve(port: u16, body: &'static str) {
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .expect("the port is free in this namespace");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = move |_: Request<Incoming>| async move {
                Ok::<_, Infallible>(Response::new(body.to_owned()))
            };
            let connection = http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service_fn(answer)));
        }
    });
}

/// A counter of queue-proxy's endpoint, as `/clusters` writes it.
async fn count(envoy: &Envoy, counter: &str) -> String {
    let clusters = envoy.get("/clusters").await.body;
    let prefix = format!("inbound|{QUEUE_PROXY}||::127.0.0.1:{QUEUE_PROXY}::{counter}::");
    let value = clusters.lines().find_map(|line| line.strip_prefix(&prefix));
    value
        .unwrap_or_else(|| panic!("no {counter} in {clusters}"))
        .to_owned()
}

/// Waits until new connections to a port are refused: each worker closes its listener by itself.
async fn refused(port: u16) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match TcpStream::connect(("127.0.0.1", port)).await {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => return,
            other => assert!(Instant::now() < deadline, "{port} still accepts: {other:?}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}
