//! The lab: a node with Istio and Tidegate on it, and what is done with its pods.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::api::{Answer, Api};
use crate::images;
use crate::installed;
use crate::kubectl::{Kubectl, Outcome};
use crate::mesh;
use crate::node::{Keep, Node, output_of};
use crate::observe::Observer;
use crate::paths::Paths;
use crate::pods;
use crate::processes;
use crate::progress::Progress;
use crate::record::PodRecord;

/// The namespace of the tested pods: injected by Istio, under STRICT mTLS.
pub(crate) const NAMESPACE: &str = "lab";

/// How long the node may take to answer; it takes 10 s on an idle machine.
const NODE_LIMIT: Duration = Duration::from_secs(120);
/// How long an image may take to be imported; the largest takes 3 s.
const IMPORT_LIMIT: Duration = Duration::from_secs(120);
/// How long the API server may take to act on a webhook's configuration; it takes a few seconds.
const NOTICE_LIMIT: Duration = Duration::from_secs(60);
/// Where a client pod takes its plans.
const CLIENT_PORT: u16 = 9999;
/// The images without which nothing starts: the sandbox's and istiod's. The others come while that does.
const NEEDED_FIRST: usize = 2;
/// Between two looks at what cannot be watched.
const LOOK: Duration = Duration::from_millis(100);

/// The lab, up and running. All times are on one clock, the machine's.
pub(crate) struct Lab {
    node: Node,
    api: Api,
    kubectl: Kubectl,
    observer: Observer,
}

impl Lab {
    /// Brings everything up: the node, Istio, Tidegate, and the namespace for pods.
    ///
    /// # Errors
    ///
    /// What did not come up in time, with the end of its log.
    pub(crate) async fn up(paths: &Paths, keep: Keep) -> Result<Lab> {
        let mut progress = Progress::start();
        let images = {
            let paths = paths.clone();
            tokio::task::spawn_blocking(move || images::write(&paths)).await??
        };
        progress.done("images");
        let mut node = Node::start(paths, keep).await?;
        until_exists(&mut node, "/run/containerd/containerd.sock").await?;
        let (first, others) = images.split_at(NEEDED_FIRST);
        import_all(&node, first).await?;
        until_exists(&mut node, "/run/api.sock").await?;
        let lab = Lab::connect(node, paths).await?;
        lab.until_node_is_ready().await?;
        progress.done("node ready");
        let import_others = async {
            import_all(&lab.node, others).await?;
            let flags = ["--base-name", installed::REPOSITORY];
            import(&lab.node, &paths.tidegate_image, &flags).await
        };
        tokio::try_join!(import_others, mesh::install(&lab, paths))?;
        progress.done("istio ready");
        installed::install(&lab).await?;
        progress.done("tidegate ready");
        lab.namespace(NAMESPACE).await?;
        lab.until_injected().await?;
        progress.done("lab ready");
        Ok(lab)
    }

    async fn connect(mut node: Node, paths: &Paths) -> Result<Lab> {
        let kubelet = node.log("kubelet");
        let deadline = Instant::now() + NODE_LIMIT;
        while !kubelet.exists() {
            node.must_run()?;
            if Instant::now() > deadline {
                bail!("no kubelet after {NODE_LIMIT:?}");
            }
            sleep(LOOK).await;
        }
        let api = Api::new(node.file("/run/api.sock"));
        let pod_logs = node.dir().join("pod-logs");
        let observer = Observer::start(&api, pod_logs, &kubelet, &node.log("events"))?;
        let mut command = node.entrance();
        command.push(paths.part("kubectl").into());
        let kubectl = Kubectl::new(command, node.dir(), node.dir().join("kubeconfig"));
        Ok(Lab {
            node,
            api,
            kubectl,
            observer,
        })
    }

    async fn until_node_is_ready(&self) -> Result<()> {
        let ready = |answer: &Answer| {
            let conditions = answer.object.pointer("/status/conditions");
            let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
            conditions
                .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        self.until("the node is ready", "/api/v1/nodes/lab", NODE_LIMIT, ready)
            .await
            .with_context(|| self.node.log_tail("kubelet"))
    }

    /// Both webhooks change a pod like those of the tests.
    async fn until_injected(&self) -> Result<()> {
        let pod = pods::Pod::new("probe").object()?;
        let deadline = Instant::now() + NOTICE_LIMIT;
        loop {
            let answer = self.dry_run(&pod).await?;
            let would_be = answer.object.to_string();
            if would_be.contains("\"istio-proxy\"") && would_be.contains("\"tidegate\"") {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("pods are not injected within {NOTICE_LIMIT:?}: {would_be}");
            }
            sleep(LOOK).await;
        }
    }

    /// What to type to look at it.
    pub(crate) fn how_to_use(&self, paths: &Paths) -> String {
        let words = self.node.entrance();
        let entrance: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let entrance = entrance.join(" ");
        format!(
            "the node is up; ./test lab --down ends it\n  kubectl: {entrance} {} --kubeconfig {} get pods -A\n  \
             containers: {entrance} ctr --namespace k8s.io containers list\n  logs: {}",
            paths.part("kubectl").display(),
            self.node.dir().join("kubeconfig").display(),
            self.node.dir().join("logs").display(),
        )
    }

    /// The node.
    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    // ===== objects =====

    /// Runs kubectl; fails with what it complains of.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<Outcome> {
        successful(self.kubectl.run(arguments, None).await)
    }

    /// Runs kubectl with this for `-f -`.
    pub(crate) async fn kubectl_with(&self, input: &str, arguments: &[&str]) -> Result<Outcome> {
        successful(self.kubectl.run(arguments, Some(input)).await)
    }

    /// Applies an object.
    pub(crate) async fn apply(&self, object: &Value) -> Result<()> {
        let input = object.to_string();
        self.kubectl_with(&input, &["apply", "-f", "-"])
            .await
            .map(drop)
    }

    /// Applies a file of manifests, of a size that no annotation could remember.
    pub(crate) async fn apply_file(&self, file: &Path) -> Result<()> {
        let file = file.display().to_string();
        let arguments = ["apply", "--server-side", "-f", &file];
        self.kubectl(&arguments).await.map(drop)
    }

    /// Makes a namespace that Istio injects, and waits until pods can be created in it.
    pub(crate) async fn namespace(&self, name: &str) -> Result<()> {
        self.apply(&json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": {"istio-injection": "enabled"}},
        }))
        .await?;
        // Controllers of Kubernetes and of Istio make these.
        for path in ["serviceaccounts/default", "configmaps/istio-ca-root-cert"] {
            let path = format!("/api/v1/namespaces/{name}/{path}");
            let found = |answer: &Answer| answer.status.is_success();
            self.until(&path, &path, NOTICE_LIMIT, found).await?;
        }
        Ok(())
    }

    /// A Service as a target of lab-app's, by its address: what a busy machine does to DNS is no part of
    /// what is tested.
    pub(crate) async fn service(&self, namespace: &str, name: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let service = self.api.get(&path).await?.object()?;
        let address = service["spec"]["clusterIP"].as_str();
        let address = address.with_context(|| format!("{name} has no address"))?;
        Ok(format!("http://{address}"))
    }

    /// Waits until all replicas of a Deployment are available.
    pub(crate) async fn wait_available(
        &self,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<()> {
        let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
        let available = |answer: &Answer| {
            let wanted = &answer.object["spec"]["replicas"];
            !wanted.is_null() && answer.object["status"]["availableReplicas"] == *wanted
        };
        self.until(&format!("{name} is available"), &path, limit, available)
            .await
    }

    async fn until(
        &self,
        what: &str,
        path: &str,
        limit: Duration,
        mut holds: impl FnMut(&Answer) -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            let answer = self.api.get(path).await?;
            if holds(&answer) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{what}: not within {limit:?}: {}", answer.object);
            }
            sleep(LOOK).await;
        }
    }

    // ===== pods =====

    /// Creates a pod in the namespace that it names; returns it as the webhooks have made it.
    pub(crate) async fn create_pod(&self, pod: &Value) -> Result<Value> {
        let path = pods_path(namespace_of(pod));
        self.api.post(&path, pod).await?.object()
    }

    /// What would be created, or why it would not.
    pub(crate) async fn dry_run(&self, pod: &Value) -> Result<Answer> {
        let path = format!("{}?dryRun=All", pods_path(namespace_of(pod)));
        self.api.post(&path, pod).await
    }

    /// Waits until it is ready; fails with what is known of it.
    pub(crate) async fn wait_ready(
        &self,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<()> {
        let ready = self
            .observer
            .until(|| self.observer.is_ready(namespace, name).then_some(()));
        if timeout(limit, ready).await.is_err() {
            let known = self
                .record(namespace, name)
                .map(|record| record.to_string());
            bail!(
                "{name} is not ready within {limit:?}: {}",
                known.unwrap_or_default()
            );
        }
        Ok(())
    }

    /// Deletes it, with its own grace period; returns when the DELETE was sent.
    pub(crate) async fn delete_pod(&self, namespace: &str, name: &str) -> Result<SystemTime> {
        self.delete_pod_within(namespace, name, None).await
    }

    /// Deletes it with another grace period, in seconds, as an eviction or a node's drain may.
    pub(crate) async fn delete_pod_within(
        &self,
        namespace: &str,
        name: &str,
        grace: Option<u64>,
    ) -> Result<SystemTime> {
        let path = format!("{}/{name}", pods_path(namespace));
        let sent = SystemTime::now();
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": grace,
        });
        self.api.delete(&path, &options).await?.object()?;
        self.observer
            .deleted(namespace, name, sent, SystemTime::now());
        Ok(sent)
    }

    /// Waits until its object is gone; the moment at which it was.
    pub(crate) async fn wait_gone(
        &self,
        namespace: &str,
        name: &str,
        limit: Duration,
    ) -> Result<SystemTime> {
        let gone = self.observer.until(|| self.observer.gone(namespace, name));
        timeout(limit, gone)
            .await
            .with_context(|| format!("{name} is not gone within {limit:?}"))
    }

    /// All that is known of it by now, also after it has gone.
    pub(crate) fn record(&self, namespace: &str, name: &str) -> Result<PodRecord> {
        self.observer.record(namespace, name)
    }

    /// Waits until a container has been started so often, and the last of them lives.
    pub(crate) async fn wait_started(
        &self,
        namespace: &str,
        pod: &str,
        container: &str,
        times: usize,
        limit: Duration,
    ) -> Result<()> {
        let started = self.observer.until(|| {
            (self.observer.starts(namespace, pod, container) >= times
                && self.observer.is_ready(namespace, pod))
            .then_some(())
        });
        timeout(limit, started)
            .await
            .with_context(|| format!("{pod}: {container} was not restarted within {limit:?}"))
    }

    /// Kills all processes of this name in a container, as a crash would.
    pub(crate) fn kill(&self, pod: &str, container: &str, process: &str) -> Result<()> {
        let id = self
            .observer
            .container_id(NAMESPACE, pod, container)
            .with_context(|| format!("{pod} has no container {container}"))?;
        processes::kill(&id, process)
    }

    /// Removes a pod without waiting for it.
    pub(crate) async fn remove_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let path = format!("{}/{name}", pods_path(namespace));
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        });
        self.api.delete(&path, &options).await.map(drop)
    }

    /// Waits until a client pod reaches what answers at `target`: its Envoy learns of a new pod a little
    /// later than the API server does.
    pub(crate) async fn until_reached(&self, client: &str, target: &str, host: &str) -> Result<()> {
        let plan = json!({
            "target": target,
            "host": host,
            "requests": [{"name": "reached", "ask": {"kind": "get", "path": "/healthz"}}],
        });
        let deadline = Instant::now() + NOTICE_LIMIT;
        loop {
            let records = self.run_plan(client, &plan, NOTICE_LIMIT).await?;
            if records.iter().all(|record| record["outcome"] == "ok") {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{client} does not reach {host} at {target}: {records:?}");
            }
            sleep(LOOK).await;
        }
    }

    /// Lets a client pod ([`pods::client`]) run a plan of lab-app's; returns what became of each request,
    /// as lab-app records it.
    pub(crate) async fn run_plan(
        &self,
        client: &str,
        plan: &Value,
        limit: Duration,
    ) -> Result<Vec<Value>> {
        let path = format!("{}/{client}:{CLIENT_PORT}/proxy/run", pods_path(NAMESPACE));
        let all = async {
            let mut lines = self.api.lines(Method::POST, &path, Some(plan)).await?;
            let mut records = Vec::new();
            while let Some(record) = lines.next().await? {
                records.push(record);
            }
            Ok(records)
        };
        timeout(limit, all)
            .await
            .with_context(|| format!("the plan is not over within {limit:?}"))?
    }
}

fn successful(outcome: Outcome) -> Result<Outcome> {
    if outcome.success {
        return Ok(outcome);
    }
    bail!("kubectl: {}", outcome.failure().trim_end())
}

fn namespace_of(pod: &Value) -> &str {
    pod["metadata"]["namespace"].as_str().unwrap_or(NAMESPACE)
}

fn pods_path(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

async fn until_exists(node: &mut Node, path: &str) -> Result<()> {
    let file = node.file(path);
    let deadline = Instant::now() + NODE_LIMIT;
    while !file.exists() {
        node.must_run()?;
        if Instant::now() > deadline {
            bail!(
                "no {path} after {NODE_LIMIT:?}: {}",
                node.log_tail("kube-apiserver")
            );
        }
        sleep(LOOK).await;
    }
    Ok(())
}

async fn import_all(node: &Node, archives: &[PathBuf]) -> Result<()> {
    for archive in archives {
        import(node, archive, &[]).await?;
    }
    Ok(())
}

async fn import(node: &Node, archive: &Path, flags: &[&str]) -> Result<()> {
    let mut command = node.command("ctr");
    command
        .args(["--namespace", "k8s.io", "images", "import"])
        .args(flags)
        .arg(archive);
    let what = format!("import of {}", archive.display());
    output_of(command, IMPORT_LIMIT, &what).await.map(drop)
}
