//! The smoke test: one classic and one native pod are drained under a request.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;
use tokio::time::sleep;

use crate::cluster::{Lab, NAMESPACE};
use crate::pods::{self, Pod, Sidecar};
use crate::record::PodRecord;

const CLIENT: &str = "client";
const READY_LIMIT: Duration = Duration::from_secs(120);
/// The request: longer than any Envoy waits by itself.
const REQUEST: Duration = Duration::from_secs(15);
/// From the request to the DELETE.
const BEFORE_DELETE: Duration = Duration::from_secs(2);
const GONE_LIMIT: Duration = Duration::from_secs(120);

/// Fails where a request is lost, a hook fails, or Tidegate says anything but `drained`.
pub(crate) async fn run(lab: &Lab) -> Result<()> {
    let classic = Pod::new("classic").sidecar(Sidecar::Classic);
    let native = Pod::new("native").sidecar(Sidecar::Native);
    lab.create_pod(&pods::client(CLIENT)?).await?;
    for pod in [&classic, &native] {
        lab.apply(&pod.service()?).await?;
        lab.create_pod(&pod.object()?).await?;
    }
    for name in [CLIENT, "classic", "native"] {
        lab.wait_ready(NAMESPACE, name, READY_LIMIT).await?;
    }
    let (classic, native) = tokio::join!(drain(lab, "classic"), drain(lab, "native"));
    classic?;
    native
}

async fn drain(lab: &Lab, name: &str) -> Result<()> {
    let host = format!("{name}.{NAMESPACE}.svc.cluster.local");
    let target = format!("http://{host}");
    lab.until_reached(CLIENT, &target, &host).await?;
    let plan = json!({
        "target": target,
        "requests": [{
            "name": name,
            "ask": {"kind": "slow", "seconds": REQUEST.as_secs_f64(), "headers": "last"},
        }],
    });
    let request = lab.run_plan(CLIENT, &plan, GONE_LIMIT);
    let deletion = async {
        sleep(BEFORE_DELETE).await;
        lab.delete_pod(NAMESPACE, name).await
    };
    let (answers, deletion) = tokio::join!(request, deletion);
    deletion?;
    lab.wait_gone(NAMESPACE, name, GONE_LIMIT).await?;
    let record = lab.record(NAMESPACE, name)?;
    print_times(name, &record);
    for answer in answers? {
        ensure!(answer["outcome"] == "ok", "{name}: {answer}{record}");
    }
    let failed = record.events("FailedPreStopHook");
    ensure!(failed.is_empty(), "{name}: {failed:?}{record}");
    let report = record.report();
    let outcome = report.as_ref().map(|report| report.outcome.as_str());
    ensure!(outcome == Some("drained"), "{name}: {report:?}{record}");
    Ok(())
}

fn print_times(name: &str, record: &PodRecord) {
    let shown = |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.2}"));
    println!("{name}: seconds after the DELETE");
    for container in &record.containers {
        let life = container.last();
        println!(
            "  {:15} hook {:>6}  SIGTERM {:>6}  end {:>6}",
            container.name,
            shown(record.after_delete(life.and_then(|life| life.hook))),
            shown(record.after_delete(life.and_then(|life| life.kill))),
            shown(record.after_delete(container.exited())),
        );
    }
    println!(
        "  {:15} {:>34}",
        "pod gone",
        shown(record.after_delete(record.gone))
    );
}
