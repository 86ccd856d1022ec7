//! Two pods under load: one is deleted, then both are replaced, one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::answers::Answer;
use super::play::{LOAD_CLIENTS, Played, READY_LIMIT, Ready};
use crate::cluster::NAMESPACE;
use crate::mesh;
use crate::record::PodRecord;

/// From the load's start to the first DELETE.
const BEFORE: Duration = Duration::from_secs(3);
/// From the last DELETE to the load's end: beyond Envoy's 5 s, and Tidegate's `min-drain` of 10 s.
const AFTER: Duration = Duration::from_secs(12);
/// The load is sent in pieces, since nobody knows how long new pods take to start.
const PIECE: Duration = Duration::from_secs(5);
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
    let over = AtomicBool::new(false);
    let replacing = async {
        let pods = replace(ready, &over).await;
        over.store(true, Ordering::Relaxed);
        pods
    };
    let (answers, pods) = tokio::join!(load(ready, &ways, &over), replacing);
    let mut others = Vec::new();
    for letter in ['d', 'e'] {
        let name = ready.member(letter);
        others.extend(ready.lab.record(NAMESPACE, &name));
        ready.lab.remove_pod(NAMESPACE, &name).await?;
    }
    Ok(Played {
        answers: Answer::merged(answers?),
        pods: pods?,
        others,
    })
}

/// Sends piece after piece until it is over; what became of all.
async fn load(ready: &Ready<'_>, ways: &[Way], over: &AtomicBool) -> Result<Vec<Answer>> {
    let plans: Vec<Value> = ways.iter().map(Way::plan).collect();
    let mut asking = FuturesUnordered::new();
    let mut answers = Vec::new();
    let mut due = Instant::now();
    loop {
        tokio::select! {
            () = sleep_until(due), if !over.load(Ordering::Relaxed) => {
                due += PIECE;
                let pieces = ways.iter().zip(&plans);
                asking.extend(pieces.map(|(way, plan)| ready.ask(way.client, plan)));
            }
            Some(piece) = asking.next() => answers.extend(piece?),
            else => return Ok(answers),
        }
    }
}

/// Deletes `a`, which a ReplicaSet would replace at once, and then replaces both that are left.
async fn replace(ready: &Ready<'_>, over: &AtomicBool) -> Result<Vec<PodRecord>> {
    let lab = ready.lab;
    sleep(BEFORE).await;
    let old = ['a', 'b', 'c'].map(|letter| ready.member(letter));
    lab.delete_pod(NAMESPACE, &old[0]).await?;
    new(ready, 'c').await?;
    for (new_one, old_one) in [('d', &old[1]), ('e', &old[2])] {
        new(ready, new_one).await?;
        lab.delete_pod(NAMESPACE, old_one).await?;
    }
    sleep(AFTER).await;
    over.store(true, Ordering::Relaxed);
    try_join_all(old.iter().map(|pod| ready.until_gone(pod))).await
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
                "kind": "load", "rps": rps, "seconds": PIECE.as_secs(), "delay": delay,
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
