//! A mutating admission webhook in the test's own process: a function behind TLS.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::pki::Authority;

/// What a webhook makes of a pod.
pub(crate) struct Mutated {
    pub(crate) pod: Value,
    pub(crate) warnings: Vec<String>,
}

/// A webhook that serves until it is dropped.
pub(crate) struct Webhook {
    port: u16,
    authority: Authority,
    pods: Pods,
    server: JoinHandle<()>,
}

/// The pods it was called with, oldest first.
type Pods = Arc<Mutex<Vec<Value>>>;

struct Handler {
    mutate: Box<dyn Fn(&Value) -> Mutated + Send + Sync>,
    pods: Pods,
}

impl Webhook {
    /// Serves `mutate` on a port of loopback.
    pub(crate) async fn start(
        mutate: impl Fn(&Value) -> Mutated + Send + Sync + 'static,
    ) -> Webhook {
        let authority = Authority::new("a webhook of the tests");
        let acceptor = TlsAcceptor::from(Arc::new(tls(&authority)));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port of loopback");
        let port = listener.local_addr().expect("its address").port();
        let pods = Pods::default();
        let handler = Arc::new(Handler {
            mutate: Box::new(mutate),
            pods: pods.clone(),
        });
        let server = tokio::spawn(serve(listener, acceptor, handler));
        Webhook {
            port,
            authority,
            pods,
            server,
        }
    }

    /// How the API server reaches it, for a configuration.
    pub(crate) fn client_config(&self) -> Value {
        json!({
            "url": format!("https://127.0.0.1:{}/", self.port),
            "caBundle": STANDARD.encode(self.authority.pem()),
        })
    }

    /// The pods it has been called with since the last look, oldest first.
    pub(crate) fn take_pods(&self) -> Vec<Value> {
        std::mem::take(&mut self.pods.lock().expect("no handler panics with it"))
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn tls(authority: &Authority) -> ServerConfig {
    let identity = authority.server(&["127.0.0.1"]);
    let cert = CertificateDer::from_pem_slice(identity.cert.as_bytes()).expect("its own PEM");
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("its own PEM");
    ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)
        .expect("a key that is its certificate's")
}

async fn serve(listener: TcpListener, acceptor: TlsAcceptor, handler: Arc<Handler>) {
    // Its connections end with it.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("a connection");
        connections.spawn(serve_connection(stream, acceptor.clone(), handler.clone()));
    }
}

async fn serve_connection(stream: TcpStream, acceptor: TlsAcceptor, handler: Arc<Handler>) {
    // Who hangs up, or trusts another authority, shows in the API server's answer.
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let service = service_fn(move |request| review(request, handler.clone()));
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn review(
    request: Request<Incoming>,
    handler: Arc<Handler>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let body = body.expect("the API server's review").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review is JSON");
    let pod = &review["request"]["object"];
    let Mutated {
        pod: after,
        warnings,
    } = (handler.mutate)(pod);
    let answer = json!({
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {
            "uid": review["request"]["uid"],
            "allowed": true,
            "warnings": warnings,
            "patchType": "JSONPatch",
            "patch": STANDARD.encode(patch(pod, &after).to_string()),
        },
    });
    let mut pods = handler.pods.lock().expect("no handler panics with it");
    pods.push(pod.clone());
    let body = Full::new(answer.to_string().into());
    let mut response = Response::new(body);
    let json = "application/json".parse().expect("a header's value");
    response.headers_mut().insert("content-type", json);
    Ok(response)
}

/// A JSON Patch in large pieces: whatever changed below metadata or spec.
fn patch(before: &Value, after: &Value) -> Value {
    let changed = ["metadata", "spec"].into_iter();
    let changed = changed.filter(|field| before[field] != after[field]);
    changed
        .map(|field| json!({"op": "add", "path": format!("/{field}"), "value": after[field]}))
        .collect()
}
