//! Tidegate in the cluster, as `tidegate install` and `kubectl apply` leave it, with the webhook's
//! process beside the API server in place of its pods.
//!
//! What nodes and controllers would do is done here: the Secret is mounted, the process is started
//! with the arguments of the Deployment, and an EndpointSlice leads from the Service to it. The objects
//! themselves are applied as they were printed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::harness::knative_pod;
use crate::netns::POD_IP;
use crate::pods;
use crate::program::{self, Program};
use crate::wait::{until, within};

/// The namespace that `tidegate install` makes, and the name of all that it puts there.
pub(crate) const NAMESPACE: &str = "tidegate";
pub(crate) const NAME: &str = "tidegate-webhook";
/// Where the probes of this harness go.
const PROBES: &str = "probes";

const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
const TLS_DIR: &str = "/etc/tidegate/tls";
const PORT: u16 = 8443;
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
const REVIEWS: &str = "tidegate_webhook_reviews_total";

/// How long the webhook may take to start, or to answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The installed webhook.
pub(crate) struct Installed {
    process: Option<Program>,
    arguments: Vec<String>,
    dir: TempDir,
}

impl Installed {
    /// Installs it with these flags, and waits until the API server calls it.
    pub(crate) async fn start(cluster: &Cluster, flags: &[&str]) -> Installed {
        apply(cluster, flags).await;
        let dir = TempDir::new().expect("a temporary directory");
        mount_secret(cluster, dir.path()).await;
        cluster.apply(&endpoints()).await;
        let mut installed = Installed {
            process: None,
            arguments: arguments(cluster, dir.path()).await,
            dir,
        };
        installed.start_process().await;
        cluster.namespace(PROBES, &json!({})).await;
        installed.until_called(cluster).await;
        installed
    }

    async fn start_process(&mut self) {
        let mut command = program::command(TIDEGATE);
        command.args(&self.arguments);
        let mut process = Program::start(NAME, command, self.dir.path());
        until(LIMIT, "the webhook listens", || {
            process.must_run();
            // At once, either way: it is on loopback.
            std::net::TcpStream::connect(HEALTH).is_ok()
        })
        .await;
        self.process = Some(process);
    }

    async fn until_called(&self, cluster: &Cluster) {
        let mut pod = knative_pod("probe");
        pod["metadata"]["namespace"] = json!(PROBES);
        cluster
            .until_noticed("the webhook injects", &pod, |outcome| {
                outcome.success && pods::container(&outcome.json(), "tidegate").is_some()
            })
            .await;
    }

    /// Kills the process; its objects stay.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Starts the process again, and waits until the API server has found it.
    pub(crate) async fn restart(&mut self, cluster: &Cluster) {
        self.start_process().await;
        self.until_called(cluster).await;
    }

    /// How many reviews it has answered, whatever the answer.
    pub(crate) async fn reviews(&self) -> u64 {
        let metrics = within(LIMIT, "the webhook's metrics", get("/metrics")).await;
        let lines = metrics.lines().filter(|line| line.starts_with(REVIEWS));
        let values = lines.map(|line| line.rsplit_once(' ').expect("a value").1);
        let values: Vec<u64> = values.map(|v| v.parse().expect("a number")).collect();
        assert!(!values.is_empty(), "no {REVIEWS} in {metrics}");
        values.iter().sum()
    }
}

/// Applies what `tidegate install` prints, as it is.
pub(crate) async fn apply(cluster: &Cluster, flags: &[&str]) {
    let mut command = program::command(TIDEGATE);
    let output = command.arg("install").args(flags).output().await;
    let output = output.expect("tidegate starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let manifests = String::from_utf8(output.stdout).expect("YAML is UTF-8");
    let applied = cluster.kubectl_with(&manifests, &["apply", "-f", "-"]);
    applied.await.stdout();
}

/// An object of the webhook's.
pub(crate) async fn get_object(cluster: &Cluster, kind: &str) -> Value {
    let arguments = ["get", kind, NAME, "--namespace", NAMESPACE, "-o", "json"];
    cluster.kubectl(&arguments).await.json()
}

/// As the kubelet would.
async fn mount_secret(cluster: &Cluster, dir: &Path) {
    let secret = get_object(cluster, "secret").await;
    for (name, contents) in secret["data"].as_object().expect("a Secret's data") {
        let contents = STANDARD.decode(contents.as_str().expect("base64"));
        fs::write(dir.join(name), contents.expect("base64")).expect("a file of the Secret");
    }
}

/// The arguments of the Deployment's container, for the Secret's own place here.
async fn arguments(cluster: &Cluster, dir: &Path) -> Vec<String> {
    let deployment = get_object(cluster, "deployment").await;
    let arguments = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
    let arguments = arguments.as_array().expect("a list").iter();
    let dir = dir.to_str().expect("a temporary directory in UTF-8");
    let arguments = arguments.map(|argument| argument.as_str().expect("a text"));
    arguments.map(|a| a.replace(TLS_DIR, dir)).collect()
}

/// From the Service to the process: an endpoint may not be a loopback address.
fn endpoints() -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": NAME},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [POD_IP], "conditions": {"ready": true}}],
        "ports": [{"name": "https", "port": PORT, "protocol": "TCP"}],
    })
}

async fn get(path: &str) -> String {
    let stream = TcpStream::connect(HEALTH).await;
    let stream = TokioIo::new(stream.expect("the webhook listens"));
    let (mut client, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .expect("HTTP");
    let request = Request::get(path)
        .header("host", "webhook")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let answer = async {
        let response = client.send_request(request).await.expect("an answer");
        let body = response.into_body().collect().await;
        drop(client);
        body.expect("a whole answer").to_bytes()
    };
    let (body, _) = tokio::join!(answer, connection);
    String::from_utf8(body.to_vec()).expect("UTF-8")
}
