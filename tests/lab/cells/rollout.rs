//! Two pods under load: one is deleted, then both are replaced, one after the other.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::play::{LOAD_CLIENTS, Played, READY_LIMIT, Ready};
use crate::cluster::NAMESPACE;
use crate::mesh;
use crate::record::PodRecord;

/// From the load's start to the first DELETE.
const BEFORE: Duration = Duration::from_secs(3);
/// How long the load lasts: to the last DELETE, and beyond the time in which it matters.
const LOAD: Duration = Duration::from_secs(55);
/// What of it must be left when the last pod is deleted.
const AFTER: Duration = Duration::from_secs(10);
/// Requests a second of each client: short ones, and some that outlast an Envoy's 5 s.
const SHORT: (f64, f64) = (80.0, 0.05);
const LONG: (f64, f64) = (20.0, 8.0);

/// The gateway's part of the mesh's configuration: all hosts, on port 80.
pub(crate) fn gateway() -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "Gateway",
        "metadata": {"name": "gateway", "namespace": NAMESPACE},
        "spec": {
            "selector": {"istio": "ingressgateway"},
            "servers": [{"port": {"number": 80, "name": "http", "protocol": "HTTP"}, "hosts": ["*"]}],
        },
    })
}

/// Leads a host of the gateway's to a Service.
pub(crate) fn route(service: &str) -> Value {
    json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "VirtualService",
        "metadata": {"name": service, "namespace": NAMESPACE},
        "spec": {
            "hosts": [host(service)],
            "gateways": ["gateway"],
            "http": [{"route": [{"destination": {
                "host": format!("{service}.{NAMESPACE}.svc.cluster.local"),
                "port": {"number": 80},
            }}]}],
        },
    })
}

fn host(service: &str) -> String {
    format!("{service}.example.com")
}

pub(super) async fn play(ready: &Ready<'_>) -> Result<Played> {
    let ways = ways(ready).await?;
    for way in &ways {
        let Way {
            client,
            target,
            host,
            ..
        } = way;
        ready.lab.until_reached(client, target, host).await?;
    }
    let plans: Vec<Value> = ways.iter().map(Way::plan).collect();
    let asking = ways.iter().zip(&plans);
    let asking = try_join_all(asking.map(|(way, plan)| ready.ask(way.client, plan)));
    let (answers, pods) = tokio::join!(asking, replace(ready));
    for letter in ['d', 'e'] {
        ready
            .lab
            .remove_pod(NAMESPACE, &ready.member(letter))
            .await?;
    }
    Ok(Played {
        answers: answers?.into_iter().flatten().collect(),
        pods: pods?,
    })
}

/// Deletes `a`, which a ReplicaSet would replace at once, and then replaces both that are left.
async fn replace(ready: &Ready<'_>) -> Result<Vec<PodRecord>> {
    let lab = ready.lab;
    let begun = Instant::now();
    sleep(BEFORE).await;
    let old = ['a', 'b', 'c'].map(|letter| ready.member(letter));
    lab.delete_pod(NAMESPACE, &old[0]).await?;
    new(ready, 'c').await?;
    for (new_one, old_one) in [('d', &old[1]), ('e', &old[2])] {
        new(ready, new_one).await?;
        lab.delete_pod(NAMESPACE, old_one).await?;
    }
    let left = LOAD.saturating_sub(begun.elapsed());
    ensure!(
        left >= AFTER,
        "new pods took so long to start that the load ends {left:?} after the last DELETE"
    );
    let mut records = Vec::new();
    for pod in &old {
        records.push(ready.until_gone(pod).await?);
    }
    Ok(records)
}

async fn new(ready: &Ready<'_>, letter: char) -> Result<()> {
    let name = ready.member(letter);
    ready.create(&ready.pod(&name)).await?;
    ready.lab.wait_ready(NAMESPACE, &name, READY_LIMIT).await
}

/// A client and how it reaches the pods.
struct Way {
    name: &'static str,
    client: &'static str,
    target: String,
    host: String,
}

impl Way {
    fn plan(&self) -> Value {
        let load = |kind, (rps, delay): (f64, f64)| {
            json!({"name": format!("{}, {kind}", self.name), "ask": {
                "kind": "load", "rps": rps, "seconds": LOAD.as_secs(), "delay": delay,
            }})
        };
        json!({
            "target": self.target,
            "host": self.host,
            "requests": [load("short", SHORT), load("8 s", LONG)],
        })
    }
}

/// In a mesh, its gateway and a sidecar of its own; without one, the Service.
async fn ways(ready: &Ready<'_>) -> Result<[Way; 2]> {
    let [inside, outside] = LOAD_CLIENTS;
    let way = |name, client| Way {
        name,
        client,
        target: ready.target.clone(),
        host: ready.host.clone(),
    };
    if !ready.cell.configuration.is_mesh() {
        return Ok([way("one", outside), way("other", outside)]);
    }
    let gateway = Way {
        target: ready.lab.service(mesh::NAMESPACE, mesh::GATEWAY).await?,
        host: host(&ready.cell.service()),
        ..way("gateway", outside)
    };
    Ok([way("mesh", inside), gateway])
}
