//! `tidegate webhook`: the mutating admission webhook that injects the sidecar.
//!
//! | port | endpoint | who | what |
//! |---|---|---|---|
//! | 8443, TLS | `POST /mutate` | the API server | AdmissionReview in, AdmissionReview out |
//! | 8080, plain | `GET /readyz` | the kubelet | 200 while a valid certificate is served, 503 with the reason else |
//! | | `GET /livez` | the kubelet | 200 |
//! | | `GET /metrics` | Prometheus | |
//!
//! Two threads. Reviews have one: a review takes a fraction of a millisecond, and one core answers
//! thousands a second. Health, metrics and the certificate's files have the other, so that neither
//! keeps the other waiting. A review has no side effects, in a dry run or otherwise.

mod health;
mod limits;
mod metrics;
mod review;
mod routes;
mod server;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use thiserror::Error;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls;

pub use crate::certs::{CertError, Files, Pair};
pub use limits::Limits;
pub use review::{Answered, Malformed, Mutate, Mutation, Outcome, answer};
pub use routes::PATH;

use crate::certs::{self, Store};
use crate::config::LogFormat;
use crate::inject::{self, Cluster};
use crate::net;
use crate::signals::{self, Signal, Signals};
use crate::{exit, telemetry};
use metrics::Metrics;
use routes::Reviewer;
use server::{Shared, Stage};

/// How long open connections may take after SIGINT, whose sender waits at a terminal.
const INTERRUPTED: Duration = Duration::from_millis(50);

/// How the webhook serves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The port for reviews; 0 lets the kernel choose.
    pub port: u16,
    /// The port for health and metrics; 0 lets the kernel choose.
    pub health_port: u16,
    /// Where the certificate and its key lie.
    pub files: Files,
    /// How often they are looked at.
    pub look_every: Duration,
    /// From SIGTERM, when it is no longer ready, until it stops accepting: time for the endpoints to
    /// converge.
    pub leave_delay: Duration,
    /// How long reviews in flight may take after that.
    pub leave_max: Duration,
    /// What it gives to anybody.
    pub limits: Limits,
}

/// What `tidegate webhook` was told.
#[derive(Clone, Debug)]
pub struct Command {
    /// How it serves.
    pub options: Options,
    /// What it injects with.
    pub cluster: Cluster,
    /// How it logs.
    pub log_format: LogFormat,
    /// What it logs.
    pub log_level: String,
}

/// Why the webhook cannot serve.
#[derive(Debug, Error)]
pub enum WebhookError {
    /// A port cannot be had.
    #[error("cannot listen on port {port}: {source}; set --{flag} to a free one that is allowed")]
    Bind {
        /// The port.
        port: u16,
        /// The flag that sets it.
        flag: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread, a runtime or a signal handler cannot be had.
    #[error("cannot start: {0}; raise the container's limits of threads and open files")]
    Start(#[from] io::Error),
    /// TLS cannot be set up.
    #[error("cannot set TLS up: {0}")]
    Tls(#[from] rustls::Error),
}

/// How the webhook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// By SIGINT.
    pub interrupted: bool,
    /// Everything in flight was finished.
    pub finished: bool,
}

/// The webhook, with its ports bound and nothing served yet.
pub struct Webhook {
    reviews: TcpListener,
    health: TcpListener,
    addr: SocketAddr,
    health_addr: SocketAddr,
    tls: TlsAcceptor,
    store: Store,
    options: Options,
    mutate: Box<Mutate>,
}

impl Webhook {
    /// Binds both ports. The certificate is read later: without one, the webhook is not ready, and it
    /// goes on looking.
    ///
    /// # Errors
    ///
    /// A port is taken or not allowed.
    pub fn bind(options: Options, mutate: Box<Mutate>) -> Result<Webhook, WebhookError> {
        let (reviews, addr) = bind(options.port, "port")?;
        let (health, health_addr) = bind(options.health_port, "health-port")?;
        let store = Store::new(options.files.clone());
        Ok(Webhook {
            reviews,
            health,
            addr,
            health_addr,
            tls: certs::acceptor(store.serving(), &["http/1.1"])?,
            store,
            options,
            mutate,
        })
    }

    /// The address for reviews.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The address for health and metrics.
    pub fn health_addr(&self) -> SocketAddr {
        self.health_addr
    }

    /// Serves until a signal ends it, by the rules that it preaches. SIGTERM: not ready at once, but
    /// everybody is served for `leave_delay`, with `connection: close`; then no new connection, and
    /// what is in flight has `leave_max`. SIGINT, at any time: whoever is in flight has 50 ms.
    ///
    /// # Errors
    ///
    /// No thread or epoll instance can be had.
    pub async fn run(self, mut signals: Signals) -> Result<Ending, WebhookError> {
        let Webhook {
            reviews,
            health,
            addr,
            health_addr,
            tls,
            mut store,
            options,
            mutate,
        } = self;
        let Options {
            port: _,
            health_port: _,
            files: _,
            look_every,
            leave_delay,
            leave_max,
            limits,
        } = options;
        let (stage, stages) = watch::channel(Stage::default());
        let shared = Shared {
            limits,
            metrics: Arc::new(Metrics::new()),
            stages,
            serving: store.serving(),
        };
        // Once before anybody is served, so that it is ready from the first probe on.
        health::look(&mut store, &shared.metrics, SystemTime::now(), &mut None);
        let health = health::Thread::start(health, shared.clone(), store, look_every)?;
        let reviews = tokio::net::TcpListener::from_std(reviews)?;
        let reviewer = Reviewer::new(mutate, limits);
        let served = server::reviews(reviews, tls, reviewer, shared, leave_max);
        tokio::pin!(served);
        tracing::info!(reviews = %addr, health = %health_addr, "serving");

        let mut leave_at: Option<Instant> = None;
        let ending = loop {
            let left = async {
                match leave_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signal = signals.next() => match signal {
                    Some(Signal::Interrupt) | None => {
                        stage.send_replace(Stage::Finishing);
                        let finished = tokio::time::timeout(INTERRUPTED, &mut served).await;
                        break Ending { interrupted: true, finished: finished == Ok(true) };
                    }
                    // A second one changes nothing.
                    Some(Signal::Terminate) if leave_at.is_none() => {
                        tracing::info!("leaving: not ready, serving for {leave_delay:?} yet");
                        leave_at = Some(Instant::now() + leave_delay);
                        stage.send_replace(Stage::Leaving);
                    }
                    Some(Signal::Terminate) => {}
                },
                () = left => {
                    leave_at = Some(Instant::now() + leave_max + leave_delay);
                    stage.send_replace(Stage::Finishing);
                }
                finished = &mut served => break Ending { interrupted: false, finished },
            }
        };
        stage.send_replace(Stage::Over);
        health.ended().await;
        Ok(ending)
    }
}

fn bind(port: u16, flag: &'static str) -> Result<(TcpListener, SocketAddr), WebhookError> {
    let failed = |source| WebhookError::Bind { port, flag, source };
    let listener = net::listen_everywhere(port).map_err(|errno| failed(errno.into()))?;
    let addr = listener.local_addr().map_err(failed)?;
    Ok((listener, addr))
}

/// What injection makes of a pod, as the API server is told. A pod that asks for the impossible is
/// refused, since its owner has to mend it; a pod that cannot be helped runs as it would without
/// Tidegate, and its owner is warned.
pub fn mutation(pod: &serde_json::Value, cluster: &Cluster) -> Mutation {
    let warn = |text: String| format!("tidegate: {text}");
    match inject::inject(pod, cluster) {
        Ok(injection) => {
            let warnings = injection.warnings.into_iter().map(warn).collect();
            if injection.patch.is_empty() {
                return Mutation::Unchanged { warnings };
            }
            let patch = serde_json::to_vec(&injection.patch)
                .expect("operations with text for keys are always JSON");
            Mutation::Patch { patch, warnings }
        }
        Err(refusal @ inject::Refusal::Settings(_)) => Mutation::Refused(warn(refusal.to_string())),
        Err(refusal) => Mutation::Unchanged {
            warnings: vec![warn(format!("not injected: {refusal}"))],
        },
    }
}

/// Runs the webhook to its end; returns the process's exit code.
pub fn main(command: Command) -> u8 {
    let Command {
        options,
        cluster,
        log_format,
        log_level,
    } = command;
    let _logs = match telemetry::init(log_format, &log_level) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("tidegate: {error}");
            return exit::USAGE;
        }
    };
    net::raise_open_files();
    match start(options, cluster) {
        Ok(ending) if ending.interrupted => exit::INTERRUPTED,
        Ok(ending) => {
            if !ending.finished {
                tracing::warn!("left with connections open; raise --leave-max");
            }
            0
        }
        Err(error) => {
            tracing::error!("{error}");
            exit::UNAVAILABLE
        }
    }
}

fn start(options: Options, cluster: Cluster) -> Result<Ending, WebhookError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let signals = signals::install()?;
        let mutate = Box::new(move |pod: &serde_json::Value| mutation(pod, &cluster));
        Webhook::bind(options, mutate)?.run(signals).await
    })
}
