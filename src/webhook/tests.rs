//! The webhook whole: over TLS, with a client that checks its certificate.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use super::*;
use crate::certs::mount::Mount;
use crate::install::{self, Certs, SelfSigned};

mod bounds;
mod leaving;
mod reload;

/// Longer than anything here may take.
const LIMIT: Duration = Duration::from_secs(60);
/// As the API server says it.
const SERVER: &str = "tidegate-webhook.tidegate.svc";

// ===== the pair, as it is installed =====

/// What `tidegate install` prints about certificates.
struct Installed {
    secret: Value,
    bundle: Vec<u8>,
}

fn installed() -> Installed {
    let options = install::Options {
        namespace: "tidegate".to_owned(),
        replicas: 2,
        certs: Certs::SelfSigned,
        network_policy: false,
        cluster: Cluster::default(),
    };
    let tls = SelfSigned::generate(install::NAME, &options.namespace).unwrap();
    let objects = install::objects(&options, Some(&tls));
    let find = |kind: &str| {
        objects
            .iter()
            .find(|object| object["kind"] == kind)
            .unwrap()
    };
    let configuration = find("MutatingWebhookConfiguration");
    let bundle = &configuration["webhooks"][0]["clientConfig"]["caBundle"];
    Installed {
        secret: find("Secret").clone(),
        bundle: STANDARD.decode(bundle.as_str().unwrap()).unwrap(),
    }
}

/// Mounts what is installed.
fn publish(mount: &mut Mount, secret: &Value) {
    let content = |file: &str| {
        let content = secret["data"][file].as_str().unwrap();
        STANDARD.decode(content).unwrap()
    };
    mount.publish(content("tls.crt"), content("tls.key"));
}

// ===== the webhook =====

struct Rig {
    mount: Mount,
    bundles: Vec<Vec<u8>>,
    addr: SocketAddr,
    health: SocketAddr,
    signals: mpsc::Sender<Signal>,
    ending: JoinHandle<Ending>,
}

fn options(files: Files) -> Options {
    Options {
        port: 0,
        health_port: 0,
        files,
        look_every: Duration::from_millis(10),
        leave_delay: Duration::from_millis(300),
        leave_max: Duration::from_secs(10),
        limits: Limits::default(),
    }
}

fn rig() -> Rig {
    rig_with(|_| {}, Box::new(marked), true)
}

fn rig_with(change: impl FnOnce(&mut Options), mutate: Box<Mutate>, with_cert: bool) -> Rig {
    let mut mount = Mount::new();
    let first = installed();
    if with_cert {
        publish(&mut mount, &first.secret);
    }
    let mut options = options(mount.files());
    change(&mut options);
    let webhook = Webhook::bind(options, mutate).unwrap();
    let local = |addr: SocketAddr| SocketAddr::from(([127, 0, 0, 1], addr.port()));
    let (addr, health) = (local(webhook.addr()), local(webhook.health_addr()));
    let (signals, received) = mpsc::channel(8);
    let signals_of = Signals::from_channel(received);
    Rig {
        mount,
        bundles: vec![first.bundle],
        addr,
        health,
        signals,
        ending: tokio::spawn(async move { webhook.run(signals_of).await.unwrap() }),
    }
}

impl Rig {
    fn client(&self) -> TlsConnector {
        client(&self.bundles, &[&TLS13, &TLS12])
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        connect(&self.client(), self.addr).await
    }

    async fn health(&self, path: &str) -> Answered {
        let mut tcp = TcpStream::connect(self.health).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        answer_of(tcp).await
    }

    async fn metric(&self, line: &str) -> String {
        let metrics = self.health("/metrics").await.body;
        let found = metrics.lines().find_map(|l| l.strip_prefix(line));
        found
            .unwrap_or_else(|| panic!("no {line} in\n{metrics}"))
            .trim()
            .to_owned()
    }

    async fn ended(self) -> Ending {
        timeout(LIMIT, self.ending).await.unwrap().unwrap()
    }
}

/// Patches every pod, and says whose it was.
fn marked(pod: &Value) -> Mutation {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    Mutation::Patch {
        patch: json!([{"op": "add", "path": "/metadata/labels", "value": {"for": name}}])
            .to_string()
            .into_bytes(),
        warnings: vec![],
    }
}

// ===== the client =====

fn client(bundles: &[Vec<u8>], versions: &[&'static SupportedProtocolVersion]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for bundle in bundles {
        for cert in CertificateDer::pem_slice_iter(bundle) {
            roots.add(cert.unwrap()).unwrap();
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

async fn connect(client: &TlsConnector, addr: SocketAddr) -> TlsStream<TcpStream> {
    let tcp = TcpStream::connect(addr).await.unwrap();
    let name = ServerName::try_from(SERVER).unwrap();
    client.connect(name, tcp).await.unwrap()
}

fn review_of(name: &str) -> String {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": format!("uid-{name}"),
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "shop",
            "object": {"metadata": {"name": name}},
        },
    })
    .to_string()
}

fn post(body: &str, extra: &str) -> String {
    format!(
        "POST /mutate?timeout=5s HTTP/1.1\r\nhost: {SERVER}\r\ncontent-type: application/json\r\n\
         {extra}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[derive(Debug)]
struct Answered {
    status: u16,
    head: String,
    body: String,
}

/// Reads until the server ends the connection.
async fn answer_of(mut stream: impl tokio::io::AsyncRead + Unpin) -> Answered {
    let mut bytes = Vec::new();
    timeout(LIMIT, stream.read_to_end(&mut bytes))
        .await
        .expect("no end")
        .unwrap();
    parsed(&bytes)
}

/// Reads one answer with a length.
async fn next_answer(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Answered {
    let mut bytes = Vec::new();
    let read = async {
        loop {
            let answered = parsed(&bytes);
            let length = answered.head.to_lowercase();
            let length = length
                .split("content-length: ")
                .nth(1)
                .and_then(|l| l.split("\r\n").next());
            if length.is_some_and(|length| length.parse() == Ok(answered.body.len())) {
                return answered;
            }
            assert_ne!(
                stream.read_buf(&mut bytes).await.unwrap(),
                0,
                "{answered:?}"
            );
        }
    };
    timeout(LIMIT, read).await.expect("no answer")
}

fn parsed(bytes: &[u8]) -> Answered {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    Answered {
        status: head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or_default(),
        head: format!("{head}\r\n"),
        body: body.to_owned(),
    }
}

/// Checks that this is the review of this pod, patched.
fn assert_patched(answered: &Answered, name: &str) {
    assert_eq!(answered.status, 200, "{answered:?}");
    let body: Value = serde_json::from_str(&answered.body).unwrap();
    assert_eq!(body["response"]["uid"], format!("uid-{name}"));
    assert_eq!(body["response"]["allowed"], true);
    let patch = STANDARD
        .decode(body["response"]["patch"].as_str().unwrap())
        .unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(patch[0]["value"]["for"], name);
}

// ===== the ordinary way =====

#[tokio::test]
async fn reviews_come_back_patched_over_both_versions_of_tls() {
    let rig = rig();
    for version in [&TLS12, &TLS13] {
        let client = client(&rig.bundles, &[version]);
        let mut stream = connect(&client, rig.addr).await;
        for name in ["a", "b"] {
            stream
                .write_all(post(&review_of(name), "").as_bytes())
                .await
                .unwrap();
            assert_patched(&next_answer(&mut stream).await, name);
        }
    }
    assert_eq!(
        rig.metric("tidegate_webhook_reviews_total{result=\"patched\"}")
            .await,
        "4"
    );
    assert_eq!(
        rig.metric("tidegate_webhook_review_seconds_count").await,
        "4"
    );
    assert_eq!(
        rig.metric("tidegate_webhook_certificate_reloads_total{result=\"ok\"}")
            .await,
        "1"
    );
    let expiry: f64 = rig
        .metric("tidegate_webhook_certificate_expiry_timestamp_seconds")
        .await
        .parse()
        .unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs_f64();
    let days = (expiry - now) / 86_400.0;
    assert!((3649.0..3651.0).contains(&days), "{days}");
}

#[tokio::test]
async fn health_answers_what_it_is_asked() {
    let rig = rig();
    assert_eq!(rig.health("/readyz").await.status, 200);
    assert_eq!(rig.health("/livez").await.status, 200);
    assert_eq!(rig.health("/").await.status, 404);
    let mut tcp = TcpStream::connect(rig.health).await.unwrap();
    tcp.write_all(b"POST /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let answered = answer_of(tcp).await;
    assert_eq!(answered.status, 405);
    assert!(answered.head.contains("allow: GET"), "{answered:?}");
}

#[tokio::test]
async fn a_panic_is_one_reviews_failure() {
    let mutate = |pod: &Value| {
        assert_ne!(pod["metadata"]["name"], "bad", "this pod is bad");
        marked(pod)
    };
    let rig = rig_with(|_| {}, Box::new(mutate), true);
    let mut stream = rig.connect().await;
    for name in ["good", "bad", "good"] {
        stream
            .write_all(post(&review_of(name), "").as_bytes())
            .await
            .unwrap();
        let answered = next_answer(&mut stream).await;
        if name == "good" {
            assert_patched(&answered, name);
        } else {
            let body: Value = serde_json::from_str(&answered.body).unwrap();
            assert_eq!(body["response"]["allowed"], true);
            assert!(
                body["response"]["warnings"][0]
                    .as_str()
                    .unwrap()
                    .contains("failed")
            );
        }
    }
    assert_eq!(
        rig.metric("tidegate_webhook_reviews_total{result=\"failed\"}")
            .await,
        "1"
    );
}

#[test]
fn what_cannot_be_helped_is_warned_of_and_what_can_be_mended_is_refused() {
    let cluster = Cluster::default();
    let pod = |annotations: Value, spec: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "labels": {"tidegate.dev/inject": "true"}, "annotations": annotations},
            "spec": spec,
        })
    };
    let container = json!([{"name": "app", "image": "app"}]);
    match mutation(
        &pod(
            json!({"tidegate.dev/min-drain": "10"}),
            json!({"containers": container}),
        ),
        &cluster,
    ) {
        Mutation::Refused(why) => assert!(why.contains("tidegate.dev/min-drain"), "{why}"),
        other => panic!("{other:?}"),
    }
    match mutation(
        &pod(
            json!({}),
            json!({"hostNetwork": true, "containers": container}),
        ),
        &cluster,
    ) {
        Mutation::Unchanged { warnings } => {
            assert!(warnings[0].contains("hostNetwork"), "{warnings:?}")
        }
        other => panic!("{other:?}"),
    }
    match mutation(&pod(json!({}), json!({"containers": container})), &cluster) {
        Mutation::Patch { patch, .. } => {
            let ops: Value = serde_json::from_slice(&patch).unwrap();
            assert!(
                ops.as_array()
                    .unwrap()
                    .iter()
                    .all(|op| op["op"].is_string() && op["path"].is_string())
            );
        }
        other => panic!("{other:?}"),
    }
}
