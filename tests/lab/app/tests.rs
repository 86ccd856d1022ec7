//! App and client against each other on loopback, and the client against what is broken.

mod app;
mod control;
mod failures;
mod kinds;
mod pause;
mod relay;
mod units;
#[path = "../../support/wait.rs"]
mod wait;

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::standin::ANY_PORT;
use tokio::sync::mpsc;

use crate::client;
use crate::plan::Plan;
use crate::record::Record;
use crate::serve::{self, App, OnSigterm};
use wait::within;

/// The longest that anything here takes.
const LIMIT: Duration = Duration::from_secs(60);

async fn app(on_sigterm: OnSigterm) -> App {
    let listen = ANY_PORT;
    serve::start(serve::Config { listen, on_sigterm })
        .await
        .unwrap()
}

/// A plan of one request, named `r`.
fn plan(target: SocketAddr, ask: Value) -> Value {
    json!({"target": format!("http://{target}"), "requests": [{"name": "r", "ask": ask}]})
}

/// Starts a plan; its records come as they end.
fn start(plan: &Value) -> mpsc::Receiver<Record> {
    let plan = Plan::parse(plan.to_string().as_bytes(), None).unwrap();
    let (sender, records) = mpsc::channel(16);
    tokio::spawn(client::run(plan, sender));
    records
}

async fn next(records: &mut mpsc::Receiver<Record>) -> Record {
    within(LIMIT, "a record", records.recv()).await.unwrap()
}

/// What became of one request.
async fn one(target: SocketAddr, ask: Value) -> Record {
    next(&mut start(&plan(target, ask))).await
}
