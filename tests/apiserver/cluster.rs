//! An API server and its etcd in the test's namespace, on the ports they have in a cluster; killed
//! when dropped.
//!
//! There is neither a node nor a controller: a pod that was created stays pending. What a controller
//! would make and a pod needs, a namespace's ServiceAccount, [`Cluster::namespace`] makes.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::kubectl::{Kubectl, Outcome};
use crate::netns::{self, POD_IP};
use crate::pki::{self, Authority, Identity};
use crate::program::{self, Program};

/// How long both may take to be ready; it takes 2 s on an idle machine.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long the API server may take to act on a webhook's configuration; it takes a few seconds.
const NOTICE_LIMIT: Duration = Duration::from_secs(40);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

const ETCD: &str = "http://127.0.0.1:2379";
const ETCD_PEER: &str = "http://127.0.0.1:2380";
const API_SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6443);
const SERVICES: &str = "10.96.0.0/16";

/// A running API server.
pub(crate) struct Cluster {
    kubectl: Kubectl,
    // Dropped in this order: the API server, what it writes to, the files of both.
    apiserver: Program,
    etcd: Program,
    _dir: TempDir,
}

impl Cluster {
    /// Starts one and waits until it is ready.
    pub(crate) async fn start() -> Cluster {
        netns::add_pod_ip().await;
        let dir = TempDir::new().expect("a temporary directory");
        let authority = Authority::new("the tests' cluster");
        let kubeconfig = kubeconfig(&authority, dir.path());
        let mut cluster = Cluster {
            kubectl: Kubectl::new(vec![binary("kubectl").into()], dir.path(), kubeconfig),
            etcd: start_etcd(dir.path()),
            apiserver: start_apiserver(&authority, dir.path()),
            _dir: dir,
        };
        cluster.wait_until_ready().await;
        cluster
    }

    async fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + START_LIMIT;
        while !self.is_ready().await {
            self.etcd.must_run();
            self.apiserver.must_run();
            assert!(
                Instant::now() < deadline,
                "the API server is not ready after {START_LIMIT:?}: {}",
                self.apiserver.log_tail()
            );
            sleep(LOOK).await;
        }
    }

    async fn is_ready(&self) -> bool {
        // A connection costs less than a kubectl.
        TcpStream::connect(API_SERVER).await.is_ok()
            && self.kubectl(&["get", "--raw", "/readyz"]).await.success
    }

    /// Runs kubectl.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Outcome {
        self.kubectl.run(arguments, None).await
    }

    /// Runs kubectl with this for `-f -`.
    pub(crate) async fn kubectl_with(&self, input: &str, arguments: &[&str]) -> Outcome {
        self.kubectl.run(arguments, Some(input)).await
    }

    /// Applies an object; panics where the API server refuses it.
    pub(crate) async fn apply(&self, object: &Value) {
        self.kubectl_with(&object.to_string(), &["apply", "-f", "-"])
            .await
            .stdout();
    }

    /// Makes a namespace with labels, and the ServiceAccount that its pods run as.
    pub(crate) async fn namespace(&self, name: &str, labels: &Value) {
        self.apply(&json!({
            "apiVersion": "v1",
            "kind": "List",
            "items": [
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}},
                {
                    "apiVersion": "v1",
                    "kind": "ServiceAccount",
                    "metadata": {"name": "default", "namespace": name},
                },
            ],
        }))
        .await;
    }

    /// Creates an object, or a List of them.
    pub(crate) async fn create(&self, object: &Value) -> Outcome {
        let arguments = ["create", "-f", "-", "-o", "json"];
        self.kubectl_with(&object.to_string(), &arguments).await
    }

    /// Lets the API server say what it would create.
    pub(crate) async fn dry_run(&self, object: &Value) -> Outcome {
        let arguments = ["create", "--dry-run=server", "-f", "-", "-o", "json"];
        self.kubectl_with(&object.to_string(), &arguments).await
    }

    /// Tries to create `pod`, until what would come of it shows that a webhook's configuration has
    /// been noticed.
    pub(crate) async fn until_noticed(
        &self,
        what: &str,
        pod: &Value,
        noticed: impl Fn(&Outcome) -> bool,
    ) {
        let deadline = Instant::now() + NOTICE_LIMIT;
        loop {
            let outcome = self.dry_run(pod).await;
            if noticed(&outcome) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{what}: not within {NOTICE_LIMIT:?}: {outcome:?}"
            );
            sleep(LOOK).await;
        }
    }
}

// ===== the two programs =====

fn start_etcd(dir: &Path) -> Program {
    let mut command = command("etcd");
    command
        .args([
            "--listen-client-urls",
            ETCD,
            "--advertise-client-urls",
            ETCD,
        ])
        .args(["--listen-peer-urls", ETCD_PEER])
        .args(["--initial-advertise-peer-urls", ETCD_PEER])
        .args(["--initial-cluster", &format!("default={ETCD_PEER}")])
        .arg("--unsafe-no-fsync")
        .arg("--data-dir")
        .arg(dir.join("etcd"));
    Program::start("etcd", command, dir)
}

fn start_apiserver(authority: &Authority, dir: &Path) -> Program {
    let server = authority.server(&["127.0.0.1"]);
    let (cert, key) = write(dir, "apiserver", &server);
    let accounts = pki::key();
    let mut command = command("kube-apiserver");
    command
        .args(["--etcd-servers", ETCD])
        .args(["--bind-address", "127.0.0.1"])
        .args(["--secure-port", &API_SERVER.port().to_string()])
        // It may not be loopback's; nobody calls it.
        .args(["--advertise-address", &POD_IP.to_string()])
        .arg("--tls-cert-file")
        .arg(cert)
        .arg("--tls-private-key-file")
        .arg(key)
        .arg("--client-ca-file")
        .arg(file(dir, "ca.crt", &authority.pem()))
        .arg("--service-account-key-file")
        .arg(file(dir, "accounts.pub", &accounts.public_key_pem()))
        .arg("--service-account-signing-key-file")
        .arg(file(dir, "accounts.key", &accounts.serialize_pem()))
        .args(["--service-account-issuer", "https://kubernetes.default.svc"])
        .args(["--service-cluster-ip-range", SERVICES])
        .args(["--authorization-mode", "RBAC"])
        // Without kube-proxy a Service's address leads nowhere: call a webhook's endpoints.
        .arg("--enable-aggregator-routing")
        .arg("--cert-dir")
        .arg(dir);
    Program::start("kube-apiserver", command, dir)
}

/// Where kubectl finds the API server, as its administrator.
fn kubeconfig(authority: &Authority, dir: &Path) -> PathBuf {
    let (cert, key) = write(
        dir,
        "admin",
        &authority.client("the tests", "system:masters"),
    );
    let ca = file(dir, "ca.crt", &authority.pem());
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "tests",
            "cluster": {"server": format!("https://{API_SERVER}"), "certificate-authority": ca},
        }],
        "users": [{"name": "admin", "user": {"client-certificate": cert, "client-key": key}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
        "current-context": "tests",
    });
    file(dir, "kubeconfig", &config.to_string())
}

fn write(dir: &Path, name: &str, identity: &Identity) -> (PathBuf, PathBuf) {
    (
        file(dir, &format!("{name}.crt"), &identity.cert),
        file(dir, &format!("{name}.key"), &identity.key),
    )
}

fn file(dir: &Path, name: &str, contents: &str) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, contents).expect("a file in the temporary directory");
    path
}

/// One of the programs that `tests/lab/build.sh` builds.
fn binary(name: &str) -> PathBuf {
    let folder = std::env::var_os("TIDEGATE_TEST_K8S").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/tools/k8s"),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: ./test apiserver builds it",
        path.display()
    );
    path
}

fn command(name: &str) -> Command {
    program::command(binary(name))
}
