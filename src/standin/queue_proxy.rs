//! Knative's queue-proxy (serving 1.22 and later): a reverse proxy with a quiet period.
//!
//! Modelled: the serving port with HTTP/1.1, h2c and upgrades to the app; probes; `/wait-for-drain`
//! with its reset; the metrics report; on SIGTERM the quiet period, the servers closed one after
//! the other in random order, hijacked connections for 60 s, the exit; a second SIGTERM. Not
//! modelled: timeouts, the concurrency breaker, TLS, request metrics on 9091.

use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode, header};
use tokio::net::{TcpListener, TcpStream};

use super::body::{Body, Broken, full};
use super::drainer::Drainer;
use super::forward::Forward;
use super::gauge::Gauge;
use super::server::{Server, Service};
use super::stat::Stats;
use super::{ANY_PORT, Process, Scale, Scope};

/// A hook without SIGTERM within this is no termination (`pkg/queue/sharedmain/handlers.go`).
const RESET_AFTER: Duration = Duration::from_secs(1);
/// How often hijacked connections are looked at, and the metrics renewed.
const SECOND: Duration = Duration::from_secs(1);
/// User agents that are probes (`handlers.go`, `HealthCheckUAPrefixes`).
const PROBERS: [&str; 3] = [
    "kube-probe/",
    "Knative-Activator-Probe",
    "Knative-Autoscaling-Probe",
];

/// How a queue-proxy is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it serves (8012).
    pub serving: SocketAddr,
    /// Where `/wait-for-drain` is (8022).
    pub admin: SocketAddr,
    /// Where the autoscaler reads (9090).
    pub metrics: SocketAddr,
    /// The app behind it.
    pub app: SocketAddr,
    /// Its name in the metrics.
    pub pod_name: String,
    /// No request for this long, and a drain is over.
    pub quiet: Duration,
    /// How long upgraded and h2c connections may go on after that (0 for releases up to 1.21).
    pub hijacked: Duration,
    /// How fast it lives.
    pub scale: Scale,
}

impl Config {
    /// As Knative ships it, in front of `app`.
    pub fn new(app: SocketAddr) -> Config {
        Config {
            serving: ANY_PORT,
            admin: ANY_PORT,
            metrics: ANY_PORT,
            app,
            pod_name: "stand-in".to_owned(),
            quiet: Duration::from_secs(30),
            hijacked: Duration::from_secs(60),
            scale: Scale::REAL,
        }
    }
}

/// A running queue-proxy.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Where it serves.
    pub serving: SocketAddr,
    /// Where `/wait-for-drain` is.
    pub admin: SocketAddr,
    /// Where the autoscaler reads.
    pub metrics: SocketAddr,
    /// The process.
    pub process: Process,
}

/// Starts a queue-proxy. An error is an address that cannot be had.
pub async fn start(config: Config) -> io::Result<Handle> {
    let Config {
        serving,
        admin,
        metrics,
        app,
        pod_name,
        quiet,
        hijacked,
        scale,
    } = config;
    let serving = TcpListener::bind(serving).await?;
    let admin = TcpListener::bind(admin).await?;
    let metrics = TcpListener::bind(metrics).await?;
    let addrs = (
        serving.local_addr()?,
        admin.local_addr()?,
        metrics.local_addr()?,
    );
    let process = Process::start("queue-proxy", move |scope| async move {
        let drainer = Drainer::new(scale.real(quiet));
        let handlers = Gauge::new();
        let stats = Stats::new(&pod_name, scale);
        let report = Arc::new(Mutex::new(Bytes::from(stats.report())));
        scope.spawn(renew(
            stats.clone(),
            Arc::clone(&report),
            scale.real(SECOND),
        ));
        let main = Main {
            app,
            forward: Forward::new(app, scope.clone()),
            drainer: drainer.clone(),
            handlers: handlers.clone(),
            stats,
        };
        let wait = Admin {
            scope: scope.clone(),
            drainer: drainer.clone(),
            scale,
        };
        let servers = [
            Server::start(serving, &scope, main),
            Server::start(admin, &scope, wait),
            Server::start(metrics, &scope, Metrics { report }),
        ];
        let mut second = scope.clone();
        tokio::select! {
            () = second.sigterms_reach(2) => 1,
            code = terminate(scope, drainer, servers, handlers, scale, hijacked) => code,
        }
    });
    Ok(Handle {
        serving: addrs.0,
        admin: addrs.1,
        metrics: addrs.2,
        process,
    })
}

async fn terminate(
    mut scope: Scope,
    drainer: Drainer,
    mut servers: [Server; 3],
    handlers: Gauge,
    scale: Scale,
    hijacked: Duration,
) -> u8 {
    scope.sigterm().await;
    drainer.drain().await;
    shuffle(&mut servers);
    for server in &servers {
        server.shutdown().await;
    }
    let polled = async {
        while handlers.value() > 0 {
            tokio::time::sleep(scale.real(SECOND)).await;
        }
    };
    // On expiry the rest is cut by the exit.
    let _ = tokio::time::timeout(scale.real(hijacked), polled).await;
    0
}

/// Go iterates over a map in random order.
fn shuffle<T>(items: &mut [T]) {
    let random = std::hash::RandomState::new();
    for last in (1..items.len()).rev() {
        let mut hasher = random.build_hasher();
        hasher.write_usize(last);
        // The remainder is below `last + 1`.
        items.swap(last, (hasher.finish() % (last as u64 + 1)) as usize);
    }
}

async fn renew(stats: Stats, report: Arc<Mutex<Bytes>>, window: Duration) {
    loop {
        tokio::time::sleep(window).await;
        *report.lock().unwrap_or_else(PoisonError::into_inner) = stats.report().into();
    }
}

#[derive(Clone)]
struct Main {
    app: SocketAddr,
    forward: Forward,
    drainer: Drainer,
    handlers: Gauge,
    stats: Stats,
}

impl Service for Main {
    fn connection(&self) -> Self {
        Main {
            forward: self.forward.connection(),
            ..self.clone()
        }
    }

    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        if let Some(kind) = Probe::of(&request) {
            return Ok(self.probe(kind).await);
        }
        self.drainer.arrival();
        let guard = (self.handlers.enter(), self.stats.enter());
        Ok(match self.forward.send(request, guard).await {
            Ok(response) => response,
            Err(error) => text(StatusCode::BAD_GATEWAY, format!("{error}\n")),
        })
    }
}

enum Probe {
    Queue,
    Network,
    Unknown,
}

impl Probe {
    fn of(request: &Request<Incoming>) -> Option<Probe> {
        let value = |name: &str| {
            request
                .headers()
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        match value("k-network-probe") {
            Some("queue") => Some(Probe::Queue),
            Some("probe") => Some(Probe::Network),
            Some(_) => Some(Probe::Unknown),
            None => {
                let agent = value(header::USER_AGENT.as_str()).unwrap_or_default();
                PROBERS
                    .iter()
                    .any(|prober| agent.starts_with(prober))
                    .then_some(Probe::Queue)
            }
        }
    }
}

impl Main {
    async fn probe(&self, probe: Probe) -> Response<Body> {
        if self.drainer.draining() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n");
        }
        match probe {
            Probe::Network => text(StatusCode::OK, ""),
            Probe::Unknown => text(StatusCode::BAD_REQUEST, "unexpected probe header value\n"),
            Probe::Queue => match TcpStream::connect(self.app).await {
                Ok(_) => text(StatusCode::OK, "queue"),
                Err(_) => text(StatusCode::SERVICE_UNAVAILABLE, "container not ready\n"),
            },
        }
    }
}

#[derive(Clone)]
struct Admin {
    scope: Scope,
    drainer: Drainer,
    scale: Scale,
}

impl Service for Admin {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        if request.uri().path() != "/wait-for-drain" {
            return Ok(text(StatusCode::NOT_FOUND, "404 page not found\n"));
        }
        let (mut scope, drainer) = (self.scope.clone(), self.drainer.clone());
        let reset_after = self.scale.real(RESET_AFTER);
        self.scope.spawn(async move {
            if tokio::time::timeout(reset_after, scope.sigterm())
                .await
                .is_err()
            {
                drainer.reset();
            }
        });
        self.drainer.drain().await;
        Ok(text(StatusCode::OK, ""))
    }
}

#[derive(Clone)]
struct Metrics {
    report: Arc<Mutex<Bytes>>,
}

impl Service for Metrics {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        if request.uri().path() != "/metrics" {
            return Ok(text(StatusCode::NOT_FOUND, "404 page not found\n"));
        }
        let report = self
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        Ok(Response::builder()
            .header(header::CONTENT_TYPE, "application/protobuf")
            .body(full(report))?)
    }
}

/// An answer of plain text.
pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
