//! Tidegate's webhook, as its Deployment, its pods and its metrics show it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::LOOK;
use crate::cluster::Lab;
use crate::installed::{NAME, NAMESPACE};
use crate::node::output_of;

/// The webhook's port for metrics.
const METRICS: u16 = 8080;
const REVIEWS: &str = "tidegate_webhook_reviews_total";
/// A webhook is there 3 s after its pod was made, and gone 5 s after its pod was deleted.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);
/// How long `ctr` may take.
const SIGNAL_LIMIT: Duration = Duration::from_secs(20);

/// The names of its pods.
pub(super) async fn pods(lab: &Lab) -> Result<Vec<String>> {
    let names = |pods: Vec<Value>| pods.iter().map(name).collect();
    objects(lab).await.map(names)
}

/// Reviews by their result: how many, or how many more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reviews {
    pub(super) patched: u64,
    pub(super) unchanged: u64,
    /// Denied or failed.
    pub(super) bad: u64,
}

impl Reviews {
    /// Those that its pods have answered so far.
    pub(super) async fn so_far(lab: &Lab) -> Result<Reviews> {
        let mut sum = Reviews::default();
        for pod in pods(lab).await? {
            let of_pod = Reviews::of(lab, &pod).await?;
            sum.patched += of_pod.patched;
            sum.unchanged += of_pod.unchanged;
            sum.bad += of_pod.bad;
        }
        Ok(sum)
    }

    async fn of(lab: &Lab, pod: &str) -> Result<Reviews> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{METRICS}/proxy/metrics");
        let metrics = lab.kubectl(&["get", "--raw", &path]).await?.stdout();
        let mut reviews = Reviews::default();
        let lines = metrics
            .lines()
            .filter_map(|line| line.strip_prefix(REVIEWS));
        for line in lines {
            let (labels, count) = line.rsplit_once(' ').context("no number")?;
            let count: u64 = count.parse()?;
            match labels {
                "{result=\"patched\"}" => reviews.patched += count,
                "{result=\"unchanged\"}" => reviews.unchanged += count,
                _ => reviews.bad += count,
            }
        }
        Ok(reviews)
    }

    /// Those since then.
    pub(super) async fn since(self, lab: &Lab) -> Result<Reviews> {
        let now = Reviews::so_far(lab).await?;
        Ok(Reviews {
            patched: now.patched - self.patched,
            unchanged: now.unchanged - self.unchanged,
            bad: now.bad - self.bad,
        })
    }
}

/// The pod that answers the API server: it keeps its connection.
pub(super) async fn in_use(lab: &Lab, object: &Value) -> Result<String> {
    let mut before = Vec::new();
    for pod in pods(lab).await? {
        let reviews = Reviews::of(lab, &pod).await?;
        before.push((pod, reviews));
    }
    lab.dry_run(object).await?.object()?;
    for (pod, before) in before {
        if Reviews::of(lab, &pod).await? != before {
            return Ok(pod);
        }
    }
    bail!("no pod of the webhook's has answered")
}

/// Asks for so many replicas.
pub(super) async fn scale(lab: &Lab, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    let deployment = format!("deployment/{NAME}");
    lab.kubectl(&["scale", &deployment, "-n", NAMESPACE, &replicas])
        .await
        .map(drop)
}

/// Waits until it has so many pods, all of them ready and none of these.
pub(super) async fn settled(lab: &Lab, replicas: usize, gone: &[String]) -> Result<()> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let pods = objects(lab).await?;
        let stays = pods
            .iter()
            .all(|pod| is_ready(pod) && !gone.contains(&name(pod)));
        if pods.len() == replicas && stays {
            return Ok(());
        }
        if Instant::now() > deadline {
            let names: Vec<String> = pods.iter().map(name).collect();
            bail!("not {replicas} ready pods after {SETTLE_LIMIT:?}: {names:?}, without {gone:?}");
        }
        sleep(LOOK).await;
    }
}

/// Waits until the container of one of its pods has been started again.
pub(super) async fn until_restarted(lab: &Lab, pod: &str) -> Result<()> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let restarts = container(lab, pod).await?["restartCount"].take();
        if restarts.as_u64() > Some(0) {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!("{pod} was not restarted within {SETTLE_LIMIT:?}");
        }
        sleep(LOOK).await;
    }
}

/// Sends a signal to the process of one of its pods.
pub(super) async fn signal(lab: &Lab, pod: &str, signal: &str) -> Result<()> {
    let container = container(lab, pod).await?;
    let id = container["containerID"].as_str().unwrap_or_default();
    let id = id.strip_prefix("containerd://").context("no container")?;
    let mut command = lab.node().command("ctr");
    command.args([
        "--namespace",
        "k8s.io",
        "tasks",
        "kill",
        "--signal",
        signal,
        id,
    ]);
    output_of(command, SIGNAL_LIMIT, "ctr tasks kill")
        .await
        .map(drop)
}

/// What the kubelet says of the container of one of its pods.
async fn container(lab: &Lab, pod: &str) -> Result<Value> {
    let pods = objects(lab).await?;
    let pod = pods.into_iter().find(|object| name(object) == pod);
    let mut pod = pod.context("the webhook's pod is gone")?;
    Ok(pod["status"]["containerStatuses"][0].take())
}

async fn objects(lab: &Lab) -> Result<Vec<Value>> {
    let selector = "app.kubernetes.io/component=webhook";
    let arguments = ["get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json"];
    let mut list = lab.kubectl(&arguments).await?.json();
    serde_json::from_value(list["items"].take()).context("a list of pods")
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready && pod["metadata"]["deletionTimestamp"].is_null()
}
