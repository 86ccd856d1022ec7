//! pilot-agent: it ends Envoy on SIGTERM, and serves 15020.
//!
//! Modelled, by the version that [`Manners`] describe: the drain and the sleep on SIGTERM, the 15020
//! listener that closes at once while open requests go on, `/drain`, `/quitquitquit`, the rewritten
//! preStop hooks under `/app-lifecycle/CONTAINER/prestopz`, the end of the container with the agent
//! (Envoy dies with it), and `pilot-agent wait`. Not modelled: xDS, certificates, app probes.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::body::{Body, Broken};
use super::client;
use super::queue_proxy::text;
use super::server::{Server, Service};
use super::{ANY_PORT, Process, Scale, Scope};

/// The limit of one call to Envoy.
const CALL: Duration = Duration::from_secs(1);
/// How often connections are counted where zero is waited for.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// The longest that a rewritten hook may take; the real one has no limit.
const HOOK_MAX: Duration = Duration::from_secs(3600);

/// What an agent does, by version (facts of Istio's `pkg/envoy/agent.go`).
#[derive(Clone, Debug)]
pub struct Manners {
    /// Leaves when Envoy dies during the sleep (1.20.3 and later).
    pub early_exit: bool,
    /// Has `POST /drain` (1.21 and later).
    pub drain_endpoint: bool,
    /// `/quitquitquit` ends it without a drain (1.26 and later).
    pub quit_disables_drain: bool,
    /// EXIT_ON_ZERO_ACTIVE_CONNECTIONS: sleeps `min_drain`, then until no connection is open.
    pub exit_on_zero: bool,
    /// MINIMUM_DRAIN_DURATION.
    pub min_drain: Duration,
    /// terminationDrainDuration.
    pub termination_drain: Duration,
}

impl Default for Manners {
    /// A current agent with Istio's defaults.
    fn default() -> Self {
        Manners {
            early_exit: true,
            drain_endpoint: true,
            quit_disables_drain: true,
            exit_on_zero: false,
            min_drain: Duration::from_secs(5),
            termination_drain: Duration::from_secs(5),
        }
    }
}

/// How an agent is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its status port (15020).
    pub listen: SocketAddr,
    /// Envoy's admin interface.
    pub envoy_admin: SocketAddr,
    /// Envoy, a stand-in or a real one: killed by the agent and with it.
    pub envoy: Process,
    /// Its version's manners.
    pub manners: Manners,
    /// Where the rewritten preStop hook of a container goes, by the container's name.
    pub hooks: BTreeMap<String, Hook>,
    /// How fast it lives.
    pub scale: Scale,
}

/// An HTTP hook of a container.
#[derive(Clone, Debug)]
pub struct Hook {
    /// Where to.
    pub addr: SocketAddr,
    /// The path, with its query.
    pub path: String,
}

impl Config {
    /// A current agent over `envoy`.
    pub fn new(envoy: Process, envoy_admin: SocketAddr) -> Config {
        Config {
            listen: ANY_PORT,
            envoy_admin,
            envoy,
            manners: Manners::default(),
            hooks: BTreeMap::new(),
            scale: Scale::REAL,
        }
    }
}

/// A running agent.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Its status port.
    pub addr: SocketAddr,
    /// The process: PID 1 of istio-proxy.
    pub process: Process,
}

/// Starts an agent. An error is an address that cannot be had.
pub async fn start(config: Config) -> io::Result<Handle> {
    let listener = TcpListener::bind(config.listen).await?;
    let addr = listener.local_addr()?;
    let envoy = config.envoy.clone();
    let process = Process::start("istio-proxy", move |scope| run(scope, listener, config));
    // PID 1 has gone: its PID namespace goes with it.
    let agent = process.clone();
    tokio::spawn(async move {
        agent.exited().await;
        envoy.kill();
    });
    Ok(Handle { addr, process })
}

async fn run(mut scope: Scope, listener: TcpListener, config: Config) -> u8 {
    let config = Arc::new(config);
    let status = Status {
        config: Arc::clone(&config),
        skip_drain: Arc::new(AtomicBool::new(false)),
        cancel: watch::Sender::new(false),
        terminating: Arc::new(AtomicBool::new(false)),
    };
    let server = Server::start(listener, &scope, status.clone());
    let mut cancelled = status.cancel.subscribe();
    tokio::select! {
        _ = config.envoy.exited() => return 0,
        () = scope.sigterm() => {}
        // The sender lives in `status`, so the wait cannot fail.
        _ = cancelled.wait_for(|cancelled| *cancelled) => {}
    }
    status.terminating.store(true, Ordering::Relaxed);
    server.close_listener();
    if !status.skip_drain.load(Ordering::Relaxed) {
        terminate(&config).await;
    }
    0
}

async fn terminate(config: &Config) {
    let Config {
        envoy_admin,
        envoy,
        manners,
        scale,
        ..
    } = config;
    // An error is only logged by the real one.
    let _ = envoy_drain(*envoy_admin, "/drain_listeners?inboundonly&graceful").await;
    if manners.exit_on_zero {
        tokio::time::sleep(scale.real(manners.min_drain)).await;
        loop {
            tokio::time::sleep(scale.real(COUNT_EVERY)).await;
            match active_connections(*envoy_admin).await {
                Some(open) if open > 0 => {}
                // No statistics and no Envoy end the wait as zero does.
                Some(_) | None => break,
            }
        }
    } else {
        let sleep = tokio::time::sleep(scale.real(manners.termination_drain));
        if manners.early_exit {
            tokio::select! {
                _ = envoy.exited() => {}
                () = sleep => {}
            }
        } else {
            sleep.await;
        }
    }
    envoy.kill();
}

async fn envoy_drain(admin: SocketAddr, path: &str) -> Result<(), client::Error> {
    client::request(Method::POST, admin, path, CALL)
        .await
        .map(|_| ())
}

/// The agent's own sum; `None` where the statistics are hidden or cannot be read.
async fn active_connections(admin: SocketAddr) -> Option<u64> {
    let path = "/stats?usedonly&filter=downstream_cx_active$";
    let (_, body) = client::request(Method::GET, admin, path, CALL).await.ok()?;
    let text = std::str::from_utf8(&body).ok()?;
    let counts = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .filter(|(name, _)| {
            name.starts_with("listener.")
                && !name.contains(".worker_")
                && ![
                    "listener.admin.",
                    "listener.envoy_internal_",
                    "listener.0.0.0.0_15021.",
                    "listener.0.0.0.0_15090.",
                ]
                .iter()
                .any(|own| name.starts_with(own))
        });
    counts
        .map(|(_, count)| count.trim().parse::<u64>().ok())
        .reduce(|sum, count| Some(sum? + count?))?
}

#[derive(Clone)]
struct Status {
    config: Arc<Config>,
    skip_drain: Arc<AtomicBool>,
    cancel: watch::Sender<bool>,
    terminating: Arc<AtomicBool>,
}

impl Service for Status {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let path = request.uri().path();
        let post = request.method() == Method::POST;
        Ok(match path {
            "/drain" if self.config.manners.drain_endpoint => match post {
                true => self.drain().await,
                false => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
            },
            "/quitquitquit" => match post {
                true => self.quit(),
                false => text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n"),
            },
            "/healthz/ready" => match self.terminating.load(Ordering::Relaxed) {
                true => text(StatusCode::SERVICE_UNAVAILABLE, ""),
                false => text(StatusCode::OK, ""),
            },
            _ => match path.strip_prefix("/app-lifecycle/") {
                Some(rest) => self.hook(rest.strip_suffix("/prestopz")).await,
                None => text(StatusCode::NOT_FOUND, "404 page not found\n"),
            },
        })
    }
}

impl Status {
    async fn drain(&self) -> Response<Body> {
        let path = "/drain_listeners?inboundonly&graceful&skip_exit";
        match envoy_drain(self.config.envoy_admin, path).await {
            Ok(()) => {
                self.skip_drain.store(true, Ordering::Relaxed);
                text(StatusCode::OK, "OK")
            }
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    fn quit(&self) -> Response<Body> {
        if self.config.manners.quit_disables_drain {
            self.skip_drain.store(true, Ordering::Relaxed);
        }
        self.cancel.send_replace(true);
        text(StatusCode::OK, "OK")
    }

    /// Any answer but a failed dial is passed on as a success, and the kubelet takes even that as one.
    async fn hook(&self, container: Option<&str>) -> Response<Body> {
        let Some(hook) = container.and_then(|name| self.config.hooks.get(name)) else {
            return text(StatusCode::BAD_REQUEST, "no such hook\n");
        };
        match client::request(Method::GET, hook.addr, &hook.path, HOOK_MAX).await {
            Ok((status, body)) => text(status, body),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }
}

/// `pilot-agent wait`: asks `addr` for `path` every `period` until the answer is 200; an error says
/// that `limit` came first. All three durations are real ones, as they are the caller's.
pub async fn wait(
    addr: SocketAddr,
    path: &str,
    limit: Duration,
    period: Duration,
    request_limit: Duration,
) -> Result<(), String> {
    let polls = async {
        loop {
            let answer = client::request(Method::GET, addr, path, request_limit).await;
            if matches!(answer, Ok((StatusCode::OK, _))) {
                return;
            }
            tokio::time::sleep(period).await;
        }
    };
    tokio::time::timeout(limit, polls)
        .await
        .map_err(|_| format!("timeout waiting for http://{addr}{path}"))
}

#[cfg(test)]
mod tests;
