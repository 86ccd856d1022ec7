//! Istio on the node: istiod with its own webhook, an ingress gateway, mTLS for everybody.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::cluster::Lab;
use crate::images::{ISTIO_HUB, ISTIO_TAG, sha256_hex};
use crate::node::output_of;
use crate::paths::Paths;

/// Where istiod and the gateway are.
pub(crate) const NAMESPACE: &str = "istio-system";
/// The gateway's Deployment and Service.
pub(crate) const GATEWAY: &str = "istio-ingressgateway";

/// istioctl takes 5 s on an idle machine.
const GENERATE_LIMIT: Duration = Duration::from_secs(120);
/// istiod takes 10 s, the gateway that it injects as long again.
const READY_LIMIT: Duration = Duration::from_secs(180);

/// What is set, beside the profile.
const VALUES: [&str; 15] = [
    "values.global.imagePullPolicy=IfNotPresent",
    "values.pilot.autoscaleEnabled=false",
    "values.gateways.istio-ingressgateway.autoscaleEnabled=false",
    // One small node carries it all.
    "values.pilot.resources.requests.cpu=10m",
    "values.pilot.resources.requests.memory=128Mi",
    "values.global.proxy.resources.requests.cpu=5m",
    "values.global.proxy.resources.requests.memory=32Mi",
    "components.ingressGateways[0].enabled=true",
    "components.ingressGateways[0].name=istio-ingressgateway",
    "meshConfig.accessLogFile=/dev/stdout",
    "meshConfig.enablePrometheusMerge=false",
    // As Knative's net-istio has it in each of its VirtualServices: what is lost is seen.
    "meshConfig.defaultHttpRetryPolicy.attempts=0",
    // An Envoy as it is published has none of Istio's own filters, and refuses all that names one.
    "values.telemetry.enabled=false",
    "values.pilot.env.PILOT_ENABLE_ALPN_FILTER=false",
    "values.pilot.env.PILOT_ENABLE_METADATA_EXCHANGE=false",
];

/// Installs it and waits until istiod and the gateway are available.
pub(crate) async fn install(lab: &Lab, paths: &Paths) -> Result<()> {
    let manifest = manifest(lab, paths).await?;
    lab.apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .await?;
    lab.apply_file(&manifest).await?;
    lab.wait_available(NAMESPACE, "istiod", READY_LIMIT).await?;
    lab.apply(&json!({
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {"mtls": {"mode": "STRICT"}},
    }))
    .await?;
    lab.apply(&access_log()).await?;
    lab.wait_available(NAMESPACE, GATEWAY, READY_LIMIT).await
}

/// What went well and took less than a second is not logged: under load it would be hundreds of lines a
/// second, each of which goes through containerd and the kubelet.
fn access_log() -> Value {
    json!({
        "apiVersion": "telemetry.istio.io/v1",
        "kind": "Telemetry",
        "metadata": {"name": "default", "namespace": NAMESPACE},
        "spec": {"accessLogging": [{
            "providers": [{"name": "envoy"}],
            "filter": {"expression": "response.code != 200 || request.duration > duration('1s')"},
        }]},
    })
}

/// What istioctl makes of its own charts; kept from run to run, since it takes as long as the rest.
async fn manifest(lab: &Lab, paths: &Paths) -> Result<PathBuf> {
    let istioctl = paths.part("istioctl");
    let mut command = lab.node().command(&istioctl);
    command.args(["manifest", "generate", "--set", "profile=minimal"]);
    command.args(["--set", &format!("hub={ISTIO_HUB}")]);
    command.args(["--set", &format!("tag={ISTIO_TAG}")]);
    for value in VALUES {
        command.args(["--set", value]);
    }
    let made_of = format!(
        "{VALUES:?} {ISTIO_HUB} {ISTIO_TAG} {}",
        identity(&istioctl)?
    );
    let file = format!("istio-{}.yaml", &sha256_hex(made_of.as_bytes())[..12]);
    let file = paths.dir.join(file);
    if !file.exists() {
        let manifest = output_of(command, GENERATE_LIMIT, "istioctl manifest generate").await?;
        fs::write(&file, manifest)?;
    }
    Ok(file)
}

fn identity(path: &Path) -> Result<String> {
    let stat = fs::metadata(path)?;
    Ok(format!(
        "{} {}.{}",
        stat.size(),
        stat.mtime(),
        stat.mtime_nsec()
    ))
}
