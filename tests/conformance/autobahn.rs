//! Autobahn's WebSocket cases 1 to 7, against a WebSocket echo.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::accept_async;
use tokio_tungstenite::tungstenite::Error;

use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::tools::tool;
use crate::verdicts::{Verdicts, judge};
use crate::{netns, process};

/// It takes ten seconds on an idle machine.
const LIMIT: Duration = Duration::from_secs(150);
/// Cases 1 to 7, as they are numbered: framing, pings, reserved bits, opcodes, fragments, UTF-8,
/// closing.
const CASES: [&str; 7] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*"];
/// So many these are.
const CASE_COUNT: usize = 246;

#[test]
fn cases_1_to_7() {
    netns::test_within(LIMIT, "autobahn::cases_1_to_7", || async {
        let _echo = echo_server().await;
        let mut proxy = Proxy::start(Mode::Http).await;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let server = |agent: &str, port: u16| json!({"agent": agent, "url": format!("ws://127.0.0.1:{port}")});
        let spec = json!({
            "outdir": "reports",
            "servers": [server("direct", BACKEND), server("through", LISTEN)],
            "cases": CASES,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        });
        std::fs::write(folder.path().join("spec.json"), spec.to_string()).expect("a file");
        let mut command = process::command(tool("wstest"));
        command
            .args(["--mode", "fuzzingclient", "--spec", "spec.json"])
            .current_dir(folder.path());
        let ended = process::run("wstest", command, LIMIT).await;
        proxy.must_run();
        let report = std::fs::read(folder.path().join("reports/index.json"));
        let report = report.unwrap_or_else(|error| panic!("wstest: {error}: {}", ended.output));
        let report: Value = serde_json::from_slice(&report).expect("Autobahn's report is JSON");
        let (direct, through) = (read(&report["direct"]), read(&report["through"]));
        assert_eq!(direct.len(), CASE_COUNT, "{}", ended.output);
        judge("autobahn", &direct, &through, |verdict| {
            let passed = ["OK, closing OK", "NON-STRICT, closing OK", "INFORMATIONAL"];
            passed.iter().any(|start| verdict.starts_with(start))
        });
    });
}

/// How a case ended: the messages, the closing, and the close code that came.
fn read(agent: &Value) -> Verdicts {
    let cases: BTreeMap<String, Value> =
        serde_json::from_value(agent.clone()).expect("an object of cases");
    cases
        .into_iter()
        .map(|(name, case)| {
            let text = |key: &str| case[key].as_str().expect("a word").to_owned();
            let (messages, closing) = (text("behavior"), text("behaviorClose"));
            let code = &case["remoteCloseCode"];
            (name, format!("{messages}, closing {closing} with {code}"))
        })
        .collect()
}

async fn echo_server() -> JoinSet<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, BACKEND)).await;
    let listener = listener.expect("a port of the namespace");
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            // How it ended is the client's to judge.
            connections.spawn(async move { drop(echo(stream).await) });
            while connections.try_join_next().is_some() {}
        }
    });
    server
}

/// Returns every message until the closing handshake, which the socket itself answers.
async fn echo(stream: TcpStream) -> Result<(), Error> {
    let mut socket = accept_async(stream).await?;
    while let Some(message) = socket.next().await {
        let message = message?;
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}
