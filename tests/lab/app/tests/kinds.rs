//! Each kind of request, when all is well.

use serde_json::{Value, json};

use super::{app, next, one, plan, start};
use crate::record::{Outcome, Record};
use crate::serve::OnSigterm;

/// Sends it with both protocols; each must be whole and `bytes` long.
async fn both(ask: Value, bytes: u64) -> Vec<Record> {
    let app = app(OnSigterm::Finish).await;
    let mut plan = plan(app.addr, ask);
    let mut records = Vec::new();
    for http in ["1.1", "2"] {
        plan["requests"][0]["http"] = json!(http);
        let record = next(&mut start(&plan)).await;
        assert_eq!(record.error, None, "HTTP/{http}");
        assert_eq!(record.outcome, Outcome::Ok);
        assert!(record.whole);
        assert_eq!((record.status, record.bytes), (Some(200), bytes));
        records.push(record);
    }
    records
}

#[tokio::test]
async fn slow_with_the_head_first() {
    for record in both(
        json!({"kind": "slow", "seconds": 0.4, "headers": "first"}),
        1000,
    )
    .await
    {
        let (first, last) = (record.first_byte.unwrap(), record.last_byte.unwrap());
        assert!(last - first >= 100, "{record:?}");
    }
}

#[tokio::test]
async fn slow_with_the_head_last() {
    for record in both(
        json!({"kind": "slow", "seconds": 0.4, "bytes": 70_000}),
        70_000,
    )
    .await
    {
        assert!(
            record.first_byte.unwrap() - record.started >= 399,
            "{record:?}"
        );
    }
}

#[tokio::test]
async fn chunked() {
    both(
        json!({"kind": "chunked", "chunks": 7, "every": 0.02}),
        7_000,
    )
    .await;
}

#[tokio::test]
async fn a_stream() {
    both(
        json!({"kind": "stream", "seconds": 0.2, "every": 0.04}),
        5 * 16,
    )
    .await;
}

#[tokio::test]
async fn a_big_body_and_a_slow_reader() {
    let ask = json!({"kind": "big", "bytes": 2_000_000, "rate": 4_000_000});
    for record in both(ask, 2_000_000).await {
        assert!(
            record.ended - record.first_byte.unwrap() >= 499,
            "{record:?}"
        );
    }
    both(json!({"kind": "big"}), 12_000_000).await;
}

#[tokio::test]
async fn an_upload() {
    let ask = json!({"kind": "upload", "bytes": 100_000, "rate": 400_000});
    for record in both(ask, 100_000).await {
        assert!(
            record.first_byte.unwrap() - record.started >= 249,
            "{record:?}"
        );
    }
}

#[tokio::test]
async fn a_grpc_stream() {
    let app = app(OnSigterm::Finish).await;
    let record = one(
        app.addr,
        json!({"kind": "grpc", "seconds": 0.2, "every": 0.04}),
    )
    .await;
    assert_eq!(record.error, None);
    assert_eq!(record.outcome, Outcome::Ok);
    assert_eq!((record.status, record.grpc_status), (Some(200), Some(0)));
}

#[tokio::test]
async fn a_websocket() {
    let app = app(OnSigterm::Finish).await;
    let record = one(
        app.addr,
        json!({"kind": "websocket", "seconds": 0.2, "every": 0.04}),
    )
    .await;
    assert_eq!(record.error, None);
    assert_eq!(record.outcome, Outcome::Ok);
    let bytes = 5 * "message 1 of 5".len() as u64;
    assert_eq!((record.status, record.bytes), (Some(101), bytes));
}

#[tokio::test]
async fn a_load_keeps_its_connections() {
    let app = app(OnSigterm::Finish).await;
    let ask = json!({"kind": "load", "rps": 100, "seconds": 0.6, "delay": 0.005, "bytes": 300});
    let record = one(app.addr, ask).await;
    assert_eq!(record.error, None);
    assert_eq!(record.outcome, Outcome::Ok);
    assert_eq!(record.bytes, 60 * 300);
    let totals = record.load.unwrap();
    assert_eq!((totals.sent, totals.ok, totals.skipped), (60, 60, 0));
    assert!(totals.connections < 60, "{totals:?}");
    assert!(totals.p50_ms >= 4 && totals.max_ms >= totals.p99_ms);
}

#[tokio::test]
async fn requests_of_a_plan_run_beside_each_other_and_start_when_told() {
    let app = app(OnSigterm::Finish).await;
    let plan = json!({
        "target": format!("http://{}", app.addr),
        "requests": [
            {"name": "long", "ask": {"kind": "slow", "seconds": 1}},
            {"name": "late", "after": 0.2, "ask": {"kind": "get", "path": "/healthz"}},
        ],
    });
    let mut records = start(&plan);
    let (late, long) = (next(&mut records).await, next(&mut records).await);
    assert_eq!((late.name.as_str(), long.name.as_str()), ("late", "long"));
    assert!(late.started - long.started >= 100);
    assert!(records.recv().await.is_none());
}
