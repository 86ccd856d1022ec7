//! The control server.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tidegate::standin::ANY_PORT;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::relay::Relay;
use super::wait::within;
use super::{LIMIT, app};
use crate::control;
use crate::serve::OnSigterm;

/// Posts a plan; what comes back is the answer with its head.
async fn post(control: SocketAddr, plan: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(control).await.unwrap();
    let request = format!(
        "POST /run HTTP/1.1\r\nhost: control\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{plan}",
        plan.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

/// The next line that is a record.
async fn record(answer: &mut BufReader<TcpStream>) -> Value {
    loop {
        let mut line = String::new();
        let read = within(LIMIT, "a line", answer.read_line(&mut line))
            .await
            .unwrap();
        assert_ne!(read, 0, "no more lines");
        if line.starts_with('{') {
            return serde_json::from_str(&line).unwrap();
        }
    }
}

#[tokio::test]
async fn records_come_as_they_end() {
    let app = app(OnSigterm::Finish).await;
    let (addr, _control) = control::start(ANY_PORT).await.unwrap();
    let mut relay = Relay::start(app.addr).await;
    let plan = json!({
        "requests": [
            {"name": "never", "target": format!("http://{}", relay.addr), "ask": {"kind": "slow", "seconds": 600}},
            {"name": "first", "target": format!("http://{}", app.addr), "ask": {"kind": "slow", "seconds": 0.1}},
        ],
    });
    let mut answer = post(addr, &plan.to_string()).await;
    let first = record(&mut answer).await;
    assert_eq!(first["name"], "first");
    assert_eq!(first["outcome"], "ok");
    assert_eq!(first["status"], 200);
    assert_eq!(first["error"], Value::Null);
    relay.asked(1).await;
    // Whoever does not listen any more does not want the rest.
    drop(answer);
    relay.closed().await;
}

#[tokio::test]
async fn a_plan_that_is_none_is_refused_with_the_reason() {
    let (addr, _control) = control::start(ANY_PORT).await.unwrap();
    for (plan, why) in [
        ("{", "not a plan"),
        (
            r#"{"requests": [{"name": "a", "ask": {"kind": "slow", "seconds": 1}}]}"#,
            "no target",
        ),
    ] {
        let mut text = String::new();
        let mut answer = post(addr, plan).await;
        within(LIMIT, "the answer", answer.read_to_string(&mut text))
            .await
            .unwrap();
        assert!(text.starts_with("HTTP/1.1 400 "), "{text}");
        assert!(text.contains(why), "{text}");
    }
}
