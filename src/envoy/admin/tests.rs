use super::*;
use crate::envoy::http::tests::{
    Behaviour, LONG, SHORT, Server, chunked, nobody, raw, with_length,
};
use crate::inflight::Cause;

const TEXT: &str = include_str!("../../inflight/envoy/fixtures/clusters-1.40.txt");
const JSON: &str = include_str!("../../inflight/envoy/fixtures/clusters-1.40.json");

fn admin(server: &Server) -> Admin {
    Admin::new(server.address.clone()).with_timeout(LONG)
}

async fn clusters(behaviour: Behaviour) -> Reading<EnvoyRequests> {
    let server = Server::start(behaviour).await;
    admin(&server).clusters().await
}

#[tokio::test]
async fn clusters_in_either_form() {
    let expected = Reading::Known(EnvoyRequests {
        active: 1,
        total: 1,
    });
    for body in [TEXT, JSON] {
        let server = Server::start(chunked("200 OK", body)).await;
        assert_eq!(admin(&server).clusters().await, expected);
        let head = server.head();
        let asked = "GET /clusters?filter=%5E(inbound%7CInboundPassthroughCluster%7Cxds-grpc).* HTTP/1.1\r\n";
        assert!(head.starts_with(asked), "{head}");
    }
}

#[tokio::test]
async fn clusters_that_cannot_be_known() {
    let json = format!("{{\"x\":\"{}\"}}", "y".repeat(9 << 20));
    for (behaviour, cause) in [
        (chunked("200 OK", ""), Cause::Malformed),
        (with_length("200 OK", b""), Cause::Malformed),
        (chunked("200 OK", "OK\n"), Cause::Malformed),
        (chunked("200 OK", TEXT.trim_end()), Cause::Malformed),
        (chunked("200 OK", &json), Cause::Malformed),
        (chunked("500 Internal Server Error", TEXT), Cause::Status),
        (
            chunked("400 Bad Request", "Invalid re2 regex"),
            Cause::Status,
        ),
        (
            raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nxds-g"),
            Cause::Broken,
        ),
        (raw("nothing like it\r\n\r\n"), Cause::Malformed),
        (raw(""), Cause::Broken),
        (Behaviour::Reset, Cause::Broken),
    ] {
        assert_eq!(clusters(behaviour).await, Reading::Unknown(cause));
    }
    let server = Server::start(Behaviour::AnswerAndHang(Vec::new())).await;
    let hung = Admin::new(server.address.clone()).with_timeout(SHORT);
    assert_eq!(hung.clusters().await, Reading::Unknown(Cause::Timeout));
    let gone = Admin::new(nobody().await);
    assert_eq!(gone.clusters().await, Reading::Unknown(Cause::Refused));
}

/// What is whole lines up to the break would be a lower count: it must not be believed.
#[tokio::test]
async fn clusters_that_break_between_two_lines() {
    let line = "inbound|8012||::127.0.0.1:8012::rq_active::0\n";
    let answer = format!(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n",
        line.len()
    );
    assert_eq!(
        clusters(raw(&answer)).await,
        Reading::Unknown(Cause::Broken)
    );
}

#[tokio::test]
async fn server_info() {
    let answer = r#"{"version": "9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL", "state": "LIVE"}"#;
    let server = Server::start(chunked("200 OK", answer)).await;
    assert_eq!(
        admin(&server).server_info().await,
        Ok(Version::new(1, 40, 0))
    );
    assert!(server.head().starts_with("GET /server_info HTTP/1.1\r\n"));
    for (behaviour, error) in [
        (chunked("200 OK", "LIVE\n"), CallError::Malformed),
        (
            chunked("503 Service Unavailable", answer),
            CallError::Status(503),
        ),
    ] {
        let server = Server::start(behaviour).await;
        assert_eq!(admin(&server).server_info().await, Err(error));
    }
}

#[tokio::test]
async fn calls_of_a_drain() {
    let ok = || Server::start(chunked("200 OK", "OK\n"));
    let asked = |server: &Server, path: &str| {
        let head = server.head();
        assert!(
            head.starts_with(&format!("POST {path} HTTP/1.1\r\n")),
            "{head}"
        );
    };
    let server = ok().await;
    assert_eq!(
        admin(&server)
            .drain_inbound(Some(Version::new(1, 40, 0)))
            .await,
        Ok(())
    );
    asked(&server, "/drain_listeners?inboundonly&graceful&skip_exit");
    let server = ok().await;
    assert_eq!(admin(&server).drain_inbound(None).await, Ok(()));
    asked(&server, "/healthcheck/fail");
    let server = ok().await;
    assert_eq!(admin(&server).close_door().await, Ok(()));
    asked(&server, "/drain_listeners?inboundonly");
    let server = ok().await;
    assert_eq!(admin(&server).quit().await, Ok(()));
    asked(&server, "/quitquitquit");
}

#[tokio::test]
async fn calls_that_fail() {
    let server = Server::start(raw("")).await;
    assert_eq!(admin(&server).close_door().await, Err(CallError::Broken));
    assert_eq!(
        admin(&server).drain_inbound(None).await,
        Err(CallError::Broken)
    );
    // Envoy dies of this one.
    assert_eq!(admin(&server).quit().await, Ok(()));
    let server = Server::start(chunked("405 Method Not Allowed", "Method GET not allowed")).await;
    assert_eq!(admin(&server).quit().await, Err(CallError::Status(405)));
    assert_eq!(
        admin(&server).close_door().await,
        Err(CallError::Status(405))
    );
}
