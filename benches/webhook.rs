//! How fast the webhook is and how much memory it holds: prints, never judges. `./test load` runs it
//! on the static binary; alone, `cargo bench --bench webhook` builds one.

use std::error::Error;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::install::{NAME, SelfSigned};
use tidegate::webhook::PATH;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const NAMESPACE: &str = "tidegate";
/// As many as an API server keeps busy.
const CONNECTIONS: usize = 8;
const WARM_UP: usize = 1_000;
const REVIEWS: usize = 100_000;
/// A rate that leaves the machine room, so that latency is the webhook's and not the queue's.
const PACED_PER_SECOND: usize = 1_000;
const PACED_FOR: Duration = Duration::from_secs(10);
const POD_BYTES: usize = 12 * 1024;
/// Longer than a review may take.
const LIMIT: Duration = Duration::from_secs(10);
/// USER_HZ, the unit of /proc/PID/stat: 100 on every Linux that Tidegate runs on.
const TICKS_PER_SECOND: f64 = 100.0;

// ===== the webhook =====

struct Webhook {
    child: Child,
    addr: SocketAddr,
    pid: u32,
}

impl Webhook {
    async fn start(tls: &SelfSigned, dir: &std::path::Path) -> Result<Webhook> {
        let binary = std::env::var_os("TIDEGATE_BENCH_BINARY")
            .map_or_else(|| env!("CARGO_BIN_EXE_tidegate").into(), PathBuf::from);
        let (cert, key) = (dir.join("tls.crt"), dir.join("tls.key"));
        std::fs::write(&cert, &tls.cert)?;
        std::fs::write(&key, &tls.key)?;
        println!("{}", binary.display());
        let mut child = Command::new(binary)
            .args(["webhook", "--port=0", "--health-port=0", "--cert"])
            .arg(cert)
            .arg("--key")
            .arg(key)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let serving = async {
            while let Some(line) = lines.next_line().await? {
                let line: Value = serde_json::from_str(&line)?;
                if let Some(addr) = line["reviews"].as_str() {
                    return Ok::<SocketAddr, Box<dyn Error + Send + Sync>>(addr.parse()?);
                }
            }
            Err("the webhook ended before it served".into())
        };
        let port = timeout(LIMIT, serving).await??.port();
        // Log lines are few, and a pipe takes them.
        let pid = child.id().ok_or("the webhook has ended")?;
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(Webhook { child, addr, pid })
    }

    fn rss_kib(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next());
        Ok(kib.ok_or("no VmRSS")?.parse()?)
    }

    fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The name, in parentheses, may hold blanks; utime and stime are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(')').ok_or("no name")?;
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: f64 = ticks.filter_map(|t| t.parse::<f64>().ok()).sum();
        Ok(ticks / TICKS_PER_SECOND)
    }
}

// ===== the load =====

/// A revision's pod, before Istio has seen it, made as long as real ones are.
fn request() -> String {
    let container = |name: &str, port: u16| {
        json!({
            "name": name,
            "image": "registry.example/image@sha256:0123",
            "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}],
            "env": [{"name": "K_REVISION", "value": "cart-00001"}],
            "lifecycle": {"preStop": {"httpGet": {
                "path": "/wait-for-drain", "port": 8022, "scheme": "HTTP",
            }}},
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "imagePullPolicy": "IfNotPresent",
        })
    };
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "cart-00001-deployment-",
            "labels": {
                "app": "cart-00001",
                "serving.knative.dev/revision": "cart-00001",
                "serving.knative.dev/revisionUID": "8a6f",
            },
            "annotations": {"serving.knative.dev/creator": "somebody"},
        },
        "spec": {
            "containers": [container("user-container", 8080), container("queue-proxy", 8022)],
            "terminationGracePeriodSeconds": 300,
        },
    });
    let mut number = 0;
    while pod.to_string().len() < POD_BYTES {
        let row = json!({"name": format!("SETTING_{number}"), "value": "a value of forty bytes, as settings have"});
        if let Some(env) = pod["spec"]["containers"][0]["env"].as_array_mut() {
            env.push(row);
        }
        number += 1;
    }
    let body = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "object": pod,
            "oldObject": null,
            "dryRun": false,
        },
    })
    .to_string();
    format!(
        "POST {PATH}?timeout=5s HTTP/1.1\r\nhost: {NAME}.{NAMESPACE}.svc\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

struct Client {
    stream: TlsStream<TcpStream>,
    buffer: Vec<u8>,
}

impl Client {
    async fn connect(tls: &TlsConnector, addr: SocketAddr) -> Result<Client> {
        let tcp = TcpStream::connect(addr).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from(format!("{NAME}.{NAMESPACE}.svc"))?;
        Ok(Client {
            stream: tls.connect(name, tcp).await?,
            buffer: Vec::new(),
        })
    }

    /// One review; how long it took.
    async fn review(&mut self, request: &str) -> Result<Duration> {
        let began = Instant::now();
        self.stream.write_all(request.as_bytes()).await?;
        self.stream.flush().await?;
        self.buffer.clear();
        loop {
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err("the webhook hung up".into());
            }
            let text = std::str::from_utf8(&self.buffer)?;
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.split("content-length: ").nth(1);
            let length: usize = length
                .and_then(|rest| rest.split("\r\n").next())
                .ok_or("no content-length")?
                .parse()?;
            if body.len() < length {
                continue;
            }
            if !head.starts_with("HTTP/1.1 200") || !body.contains("\"patch\":") {
                return Err(format!("not a patch: {text}").into());
            }
            return Ok(began.elapsed());
        }
    }
}

/// `count` reviews over all connections, each as soon as the last is answered, or `every` so often on
/// each connection; their times, sorted.
async fn load(
    tls: &TlsConnector,
    addr: SocketAddr,
    request: &Arc<str>,
    count: usize,
    every: Option<Duration>,
) -> Result<Vec<Duration>> {
    let mut clients = JoinSet::new();
    for number in 0..CONNECTIONS as u32 {
        let (tls, request) = (tls.clone(), request.clone());
        clients.spawn(async move {
            let mut client = Client::connect(&tls, addr).await?;
            // One after the other, not all at once.
            let mut pace = every.map(|every| {
                let first = Instant::now() + every * number / CONNECTIONS as u32;
                interval_at(first, every)
            });
            if let Some(pace) = &mut pace {
                pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            }
            let mut took = Vec::with_capacity(count / CONNECTIONS);
            for _ in 0..count / CONNECTIONS {
                if let Some(pace) = &mut pace {
                    pace.tick().await;
                }
                took.push(timeout(LIMIT, client.review(&request)).await??);
            }
            Ok::<_, Box<dyn Error + Send + Sync>>(took)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(took) = clients.join_next().await {
        all.extend(took??);
    }
    all.sort();
    Ok(all)
}

fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let at = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, Duration::as_secs_f64) * 1_000.0
}

fn connector(tls: &SelfSigned) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(tls.ca.as_bytes())?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let made = SelfSigned::generate(NAME, NAMESPACE)?;
    let mut webhook = Webhook::start(&made, dir.path()).await?;
    let tls = connector(&made)?;
    let request: Arc<str> = request().into();
    println!(
        "requests of {} bytes over {CONNECTIONS} connections",
        request.len()
    );
    println!(
        "resident before the first review: {} KiB",
        webhook.rss_kib()?
    );

    load(&tls, webhook.addr, &request, WARM_UP, None).await?;
    println!(
        "resident after {WARM_UP} reviews: {} KiB",
        webhook.rss_kib()?
    );

    let every = Duration::from_secs(1) * CONNECTIONS as u32 / PACED_PER_SECOND as u32;
    let count = PACED_PER_SECOND * PACED_FOR.as_secs() as usize;
    let took = load(&tls, webhook.addr, &request, count, Some(every)).await?;
    println!(
        "at {PACED_PER_SECOND} reviews/s: p50 {:.2} ms, p99 {:.2} ms",
        percentile(&took, 50),
        percentile(&took, 99)
    );

    let (began, cpu) = (Instant::now(), webhook.cpu_seconds()?);
    let took = load(&tls, webhook.addr, &request, REVIEWS, None).await?;
    let (wall, cpu) = (began.elapsed().as_secs_f64(), webhook.cpu_seconds()? - cpu);
    println!(
        "as fast as it goes: {:.0} reviews/s, {:.0} per second of its CPU; p50 {:.2} ms, p99 {:.2} ms",
        took.len() as f64 / wall,
        took.len() as f64 / cpu,
        percentile(&took, 50),
        percentile(&took, 99)
    );
    println!(
        "resident after {} more: {} KiB",
        took.len(),
        webhook.rss_kib()?
    );
    webhook.child.kill().await?;
    Ok(())
}
