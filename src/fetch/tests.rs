use super::*;
use crate::envoy::http::tests::{Behaviour, LONG, SHORT, Server, nobody, with_length};
use crate::inflight::Cause;

/// `average_concurrent_requests: 1, request_count: 2, process_uptime: 1`, as queue-proxy writes it.
const REPORT: [u8; 27] = [
    0x11, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f, //
    0x21, 0, 0, 0, 0, 0, 0, 0x00, 0x40, //
    0x31, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f,
];

async fn read(behaviour: Behaviour, timeout: Duration) -> Reading<QueueRequests> {
    let server = Server::start(behaviour).await;
    QueueMetrics::new(server.address.clone())
        .with_timeout(timeout)
        .read()
        .await
}

#[tokio::test]
async fn a_report() {
    let server = Server::start(with_length("200 OK", &REPORT)).await;
    let queue = QueueMetrics::new(server.address.clone()).with_timeout(LONG);
    let expected = QueueRequests {
        active: 1,
        arrived: 2,
        report: 1_000,
    };
    assert_eq!(queue.read().await, Reading::Known(expected));
    let head = server.head();
    assert!(head.starts_with("GET /metrics HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("accept: application/protobuf\r\n"), "{head}");
}

#[tokio::test]
async fn reports_that_cannot_be_known() {
    for (behaviour, timeout, cause) in [
        (with_length("200 OK", b""), LONG, Cause::Malformed),
        (
            with_length("200 OK", b"# HELP queue_average\n"),
            LONG,
            Cause::Malformed,
        ),
        (
            with_length("200 OK", &[0; REPORT_MAX as usize + 1]),
            LONG,
            Cause::Malformed,
        ),
        (
            with_length("503 Service Unavailable", &REPORT),
            LONG,
            Cause::Status,
        ),
        (Behaviour::Reset, LONG, Cause::Broken),
        (Behaviour::AnswerAndHang(Vec::new()), SHORT, Cause::Timeout),
    ] {
        assert_eq!(read(behaviour, timeout).await, Reading::Unknown(cause));
    }
    let gone = QueueMetrics::new(nobody().await);
    assert_eq!(gone.read().await, Reading::Unknown(Cause::Refused));
}
