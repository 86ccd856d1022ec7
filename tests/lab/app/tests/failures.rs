//! What the client says of answers that are not whole.

use std::convert::Infallible;
use std::net::SocketAddr;

use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tidegate::standin::ANY_PORT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::relay::Relay;
use super::{app, next, one, plan, start};
use crate::feed::fed;
use crate::grpc::{self, Tick};
use crate::record::{Outcome, Record};
use crate::serve::OnSigterm;

/// The app exits once so many bytes have gone to it and come from it.
async fn exits(ask: Value, asked: u64, answered: u64) -> Record {
    let app = app(OnSigterm::Exit).await;
    let mut relay = Relay::start(app.addr).await;
    let mut records = start(&plan(relay.addr, ask));
    relay.asked(asked).await;
    relay.answered(answered).await;
    app.process.sigterm();
    let record = next(&mut records).await;
    assert!(!record.whole);
    assert!(record.error.is_some());
    record
}

#[tokio::test]
async fn an_app_that_exits_before_the_head_loses_the_request() {
    let record = exits(json!({"kind": "slow", "seconds": 600}), 30, 0).await;
    assert_eq!((record.outcome, record.status), (Outcome::Lost, None));
    assert_eq!((record.first_byte, record.last_byte), (None, None));

    let ask = json!({"kind": "upload", "bytes": 1_000_000, "rate": 10_000});
    let record = exits(ask, 1_000, 0).await;
    assert_eq!((record.outcome, record.status), (Outcome::Lost, None));
}

#[tokio::test]
async fn an_app_that_exits_after_the_head_cuts_the_answer() {
    let slow = json!({"kind": "slow", "seconds": 600, "headers": "first"});
    let chunked = json!({"kind": "chunked", "chunks": 10_000, "every": 0.01});
    let big = json!({"kind": "big", "bytes": 50_000_000, "rate": 1_000_000});
    let stream = json!({"kind": "stream", "seconds": 600, "every": 0.01});
    let grpc = json!({"kind": "grpc", "seconds": 600, "every": 0.01});
    // So much that the head is in it, after h2's settings too.
    for (ask, answered) in [
        (slow, 1),
        (chunked, 3_000),
        (big, 100_000),
        (stream, 1_000),
        (grpc, 1_000),
    ] {
        let record = exits(ask, 1, answered).await;
        let seen = (record.outcome, record.status, record.grpc_status);
        assert_eq!(seen, (Outcome::Cut, Some(200), None), "{record:?}");
        assert!(record.last_byte >= record.first_byte && record.first_byte.is_some());
    }
}

#[tokio::test]
async fn an_app_that_exits_cuts_a_websocket() {
    let ask = json!({"kind": "websocket", "seconds": 600, "every": 0.01});
    let record = exits(ask, 1, 500).await;
    assert_eq!((record.outcome, record.status), (Outcome::Cut, Some(101)));
    assert!(record.bytes > 0);
}

#[tokio::test]
async fn a_port_that_nobody_listens_on_refuses_every_kind() {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    for ask in [
        json!({"kind": "slow", "seconds": 1}),
        json!({"kind": "grpc", "seconds": 1}),
        json!({"kind": "websocket", "seconds": 1}),
        json!({"kind": "load", "rps": 20, "seconds": 0.1}),
    ] {
        let record = one(addr, ask).await;
        assert_eq!(
            (record.outcome, record.status),
            (Outcome::Refused, None),
            "{record:?}"
        );
        if let Some(totals) = record.load {
            assert_eq!((totals.sent, totals.refused, totals.connections), (2, 2, 0));
        }
    }
}

#[tokio::test]
async fn a_deadline_that_passes_is_lost_or_cut() {
    let app = app(OnSigterm::Finish).await;
    for (headers, outcome) in [("last", Outcome::Lost), ("first", Outcome::Cut)] {
        let mut relay = Relay::start(app.addr).await;
        let ask = json!({"kind": "slow", "seconds": 600, "headers": headers});
        let mut plan = plan(relay.addr, ask);
        plan["requests"][0]["deadline"] = json!(3);
        let mut records = start(&plan);
        relay.asked(1).await;
        let record = next(&mut records).await;
        assert_eq!(record.outcome, outcome);
        assert!(record.error.unwrap().contains("deadline"));
    }
}

/// Answers each connection with these bytes as soon as a request comes, and closes it.
async fn answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(bytes).await.unwrap();
        }
    });
    addr
}

#[tokio::test]
async fn a_5xx_that_nobody_asked_for_is_lost() {
    let addr = answering(b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2\r\n\r\nUC").await;
    for ask in [
        json!({"kind": "slow", "seconds": 1}),
        json!({"kind": "upload", "bytes": 10}),
        json!({"kind": "websocket", "seconds": 1}),
    ] {
        let record = one(addr, ask).await;
        assert_eq!((record.outcome, record.status), (Outcome::Lost, Some(503)));
        assert!(record.error.unwrap().contains("503"));
    }
    let asked_for = json!({"kind": "get", "path": "/healthz", "status": 503});
    assert_eq!(one(addr, asked_for).await.outcome, Outcome::Ok);

    let record = one(addr, json!({"kind": "load", "rps": 20, "seconds": 0.1})).await;
    assert_eq!(record.outcome, Outcome::Lost);
    let totals = record.load.unwrap();
    assert_eq!((totals.sent, totals.lost, totals.ok), (2, 2, 0));
    assert_eq!(totals.failures[0].status, Some(503));
}

#[tokio::test]
async fn a_clean_end_of_the_wrong_content_is_cut() {
    let ask = json!({"kind": "slow", "seconds": 0, "bytes": 4});
    let short =
        answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n\0\x1f\r\n0\r\n\r\n");
    let record = one(short.await, ask.clone()).await;
    assert_eq!((record.outcome, record.bytes), (Outcome::Cut, 2));
    assert_eq!(record.error.unwrap(), "2 bytes of 4, and a clean end");

    let other = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nABCD");
    let record = one(other.await, ask).await;
    assert_eq!((record.outcome, record.bytes), (Outcome::Cut, 4));
    assert_eq!(record.error.unwrap(), "the checksum is another");
}

/// A gRPC server that sends `ticks` messages and then these trailers; or only a head with `status`.
async fn grpc_server(status: Option<u32>, ticks: u32, trailers: Option<u32>) -> SocketAddr {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let answer = move |request: Request<hyper::body::Incoming>| async move {
        let _ = request.into_body().collect().await;
        let (feed, body) = fed();
        tokio::spawn(async move {
            for number in 1..=ticks {
                feed.send(grpc::framed(&Tick { number, at: 0 }))
                    .await
                    .unwrap();
            }
            if let Some(status) = trailers {
                let mut trailers = HeaderMap::new();
                trailers.insert(grpc::STATUS, HeaderValue::from(status));
                feed.trailers(trailers).await.unwrap();
            }
        });
        let mut response = Response::new(body);
        if let Some(status) = status {
            response
                .headers_mut()
                .insert(grpc::STATUS, HeaderValue::from(status));
        }
        Ok::<_, Infallible>(response)
    };
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service_fn(answer))
            .await;
    });
    addr
}

#[tokio::test]
async fn a_grpc_stream_needs_its_trailers_its_messages_and_status_0() {
    let ask = || json!({"kind": "grpc", "seconds": 3, "every": 1});
    for (head, ticks, trailers, outcome, status) in [
        (None, 3, Some(0), Outcome::Ok, Some(0)),
        (None, 3, None, Outcome::Cut, None),
        (None, 2, Some(0), Outcome::Cut, Some(0)),
        (None, 2, Some(14), Outcome::Cut, Some(14)),
        // Envoy's answer in the app's place.
        (Some(14), 0, None, Outcome::Lost, Some(14)),
    ] {
        let record = one(grpc_server(head, ticks, trailers).await, ask()).await;
        let seen = (record.outcome, record.grpc_status, record.whole);
        assert_eq!(
            seen,
            (outcome, status, outcome == Outcome::Ok),
            "{record:?}"
        );
    }
}
