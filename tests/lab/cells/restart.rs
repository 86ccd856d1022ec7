//! The user container fails its livenessProbe under load and is started again; then the pod goes.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::answers::Answer;
use super::play::{Played, Ready};
use crate::cluster::NAMESPACE;

/// Seconds from the load's start.
const SLOW_AT: f64 = 4.0;
const FAIL_AT: f64 = 5.0;
const LOAD: u64 = 30;
const RESTART_LIMIT: Duration = Duration::from_secs(60);
/// What the livenessProbe asks for.
const HEALTH: &str = "/healthz";

/// A user's livenessProbe.
pub(crate) fn probe() -> Value {
    json!({
        "httpGet": {"path": HEALTH, "port": 8080},
        "periodSeconds": 1,
        "failureThreshold": 3,
    })
}

pub(super) async fn play(ready: &Ready<'_>) -> Result<Played> {
    let pod = ready.cell.service();
    let slow =
        ready.cell.kind.requests.iter().map(
            |request| json!({"name": request.name, "after": SLOW_AT, "ask": request.ask.plan()}),
        );
    let mut requests: Vec<Value> = slow.collect();
    requests.extend([
        json!({"name": "load", "ask": {"kind": "load", "rps": 20, "seconds": LOAD, "delay": 0.05}}),
        json!({"name": "fail", "after": FAIL_AT, "ask": {
            "kind": "get", "method": "POST", "path": "/fail-liveness",
        }}),
    ]);
    let plan = json!({"target": ready.target, "host": ready.host, "requests": requests});
    let restarted = ready
        .lab
        .wait_started(NAMESPACE, &pod, "user-container", 2, RESTART_LIMIT);
    let (answers, restarted) = tokio::join!(ready.ask(ready.client(), &plan), restarted);
    restarted?;
    // What the restart has left in queue-proxy's drain is over before the pod goes.
    sleep(Duration::from_secs(2)).await;
    ready.lab.delete_pod(NAMESPACE, &pod).await?;
    let pod = ready.until_gone(&pod).await?;
    let mut answers: Vec<Answer> = answers?;
    answers.retain(|answer| answer.name != "fail");
    Ok(Played {
        answers,
        pods: vec![pod],
        others: Vec::new(),
    })
}
