//! The inbound half of istio-proxy's Envoy: one listener to queue-proxy, and the admin interface.
//!
//! Modelled (Envoy 1.29 to 1.40, measured): `/clusters`, `/server_info`, `/ready`, `/stats`,
//! `drain_listeners` with its parameters (presence counts, not the value), `healthcheck/fail`, the
//! abrupt `quitquitquit`, `connection: close` on draining responses, 503 where upstream has gone,
//! the end of upgraded connections late in a graceful drain, from 1.40 on. Idle connections outlive
//! a drain, as up to 1.39. Not modelled: mTLS, HTTP/2 GOAWAYs, outbound
//! and raw TCP listeners, buffering of response tails.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::body::{Body, Broken};
use super::forward::Forward;
use super::gauge::Gauge;
use super::queue_proxy::text;
use super::server::{Server, Service};
use super::{ANY_PORT, Process, Scale, Scope};

/// From the answer of `quitquitquit` to the end of the process (measured: 20-30 ms; not scaled).
const QUIT_AFTER: Duration = Duration::from_millis(20);
/// When upgraded connections end in a graceful drain, as a part of its time: a real Envoy ends each at
/// a random moment of the last third.
const CUT_AT: f64 = 5.0 / 6.0;
/// POSTs remembered for assertions.
const POSTS_MAX: usize = 1024;

/// How an Envoy is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// The inbound listener (15006).
    pub inbound: SocketAddr,
    /// The admin interface (15000).
    pub admin: SocketAddr,
    /// queue-proxy.
    pub upstream: SocketAddr,
    /// The port in the cluster's name `inbound|PORT||`.
    pub cluster_port: u16,
    /// The version in `/server_info`; what the admin interface knows follows it.
    pub version: String,
    /// `--drain-time-s`.
    pub drain_time: Duration,
    /// Whether `/stats` shows `downstream_cx_active` (EXIT_ON_ZERO_ACTIVE_CONNECTIONS does that).
    pub connection_stats: bool,
    /// How fast it lives.
    pub scale: Scale,
}

impl Config {
    /// As Istio starts it, in front of `upstream`.
    pub fn new(upstream: SocketAddr) -> Config {
        Config {
            inbound: ANY_PORT,
            admin: ANY_PORT,
            upstream,
            cluster_port: 8012,
            version: "1.40.0".to_owned(),
            drain_time: Duration::from_secs(45),
            connection_stats: false,
            scale: Scale::REAL,
        }
    }
}

/// A running Envoy.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The inbound listener.
    pub inbound: SocketAddr,
    /// The admin interface.
    pub admin: SocketAddr,
    /// The process.
    pub process: Process,
    state: Arc<State>,
}

/// A POST that the admin interface got.
#[derive(Clone, Debug)]
pub struct Post {
    /// When.
    pub at: Instant,
    /// Path and query, as sent.
    pub path: String,
}

impl Handle {
    /// The POSTs so far, at most 1,024.
    pub fn posts(&self) -> Vec<Post> {
        self.state.posts.borrow().clone()
    }

    /// The POSTs, to wait for one.
    pub fn watch_posts(&self) -> watch::Receiver<Vec<Post>> {
        self.state.posts.subscribe()
    }

    /// Requests in flight to upstream.
    pub fn active(&self) -> u64 {
        self.state.active.value()
    }

    /// Requests so far.
    pub fn total(&self) -> u64 {
        self.state.total.load(Ordering::Relaxed)
    }

    /// Requests answered 503 because upstream was gone.
    pub fn unavailable(&self) -> u64 {
        self.state.unavailable.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
struct State {
    config: Config,
    active: Gauge,
    total: AtomicU64,
    unavailable: AtomicU64,
    posts: watch::Sender<Vec<Post>>,
    /// A drain has begun: responses say `connection: close`.
    draining: AtomicBool,
    health_failed: AtomicBool,
    /// Upgraded connections are to end.
    cut: watch::Sender<bool>,
    quit: watch::Sender<bool>,
    inbound: Mutex<Option<Server>>,
}

/// Starts an Envoy. An error is an address that cannot be had.
pub async fn start(config: Config) -> io::Result<Handle> {
    let inbound = TcpListener::bind(config.inbound).await?;
    let admin = TcpListener::bind(config.admin).await?;
    let addrs = (inbound.local_addr()?, admin.local_addr()?);
    let state = Arc::new(State {
        config,
        active: Gauge::new(),
        total: AtomicU64::new(0),
        unavailable: AtomicU64::new(0),
        posts: watch::Sender::new(Vec::new()),
        draining: AtomicBool::new(false),
        health_failed: AtomicBool::new(false),
        cut: watch::Sender::new(false),
        quit: watch::Sender::new(false),
        inbound: Mutex::new(None),
    });
    let shared = Arc::clone(&state);
    let process = Process::start("envoy", move |scope| {
        run(scope, Arc::clone(&shared), inbound, admin)
    });
    Ok(Handle {
        inbound: addrs.0,
        admin: addrs.1,
        process,
        state,
    })
}

async fn run(mut scope: Scope, state: Arc<State>, inbound: TcpListener, admin: TcpListener) -> u8 {
    let forward = Forward::new(state.config.upstream, scope.clone()).cut_by(state.cut.subscribe());
    let proxy = Inbound {
        forward,
        state: Arc::clone(&state),
    };
    let server = Server::start(inbound, &scope, proxy);
    *state.inbound() = Some(server);
    let service = Admin {
        scope: scope.clone(),
        state: Arc::clone(&state),
    };
    Server::start(admin, &scope, service);
    let mut quit = state.quit.subscribe();
    let quit = async {
        // The sender lives in `state`, so the wait cannot fail.
        let _ = quit.wait_for(|quit| *quit).await;
        tokio::time::sleep(QUIT_AFTER).await;
    };
    tokio::select! {
        () = quit => {}
        // SIGTERM is as abrupt as quitquitquit.
        () = scope.sigterm() => {}
    }
    0
}

impl State {
    fn inbound(&self) -> std::sync::MutexGuard<'_, Option<Server>> {
        self.inbound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close_inbound(&self) {
        if let Some(server) = self.inbound().as_ref() {
            server.close_listener();
        }
    }

    /// The minor version of Envoy 1.x; a version that does not read so counts as the newest.
    fn minor(&self) -> u32 {
        let minor = self.config.version.split('.').nth(1).map(str::parse);
        minor.and_then(Result::ok).unwrap_or(u32::MAX)
    }
}

#[derive(Clone)]
struct Inbound {
    forward: Forward,
    state: Arc<State>,
}

impl Service for Inbound {
    fn connection(&self) -> Self {
        Inbound {
            forward: self.forward.connection(),
            state: Arc::clone(&self.state),
        }
    }

    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        self.state.total.fetch_add(1, Ordering::Relaxed);
        let mut response = match self.forward.send(request, self.state.active.enter()).await {
            Ok(response) => response,
            Err(error) => {
                self.state.unavailable.fetch_add(1, Ordering::Relaxed);
                let reason = "upstream connect error or disconnect/reset before headers";
                text(
                    StatusCode::SERVICE_UNAVAILABLE,
                    format!("{reason}: {error}"),
                )
            }
        };
        let closing = self.state.draining.load(Ordering::Relaxed)
            || self.state.health_failed.load(Ordering::Relaxed);
        if closing && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let close = header::HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
        Ok(response)
    }
}

#[derive(Clone)]
struct Admin {
    scope: Scope,
    state: Arc<State>,
}

impl Service for Admin {
    async fn call(&self, request: Request<Incoming>) -> Result<Response<Body>, Broken> {
        let path = request.uri().path();
        let query = request.uri().query().unwrap_or_default();
        let mutating = [
            "/drain_listeners",
            "/healthcheck/fail",
            "/healthcheck/ok",
            "/quitquitquit",
        ];
        if mutating.contains(&path) && request.method() != Method::POST {
            let message = format!("Method {} not allowed, POST required.", request.method());
            return Ok(text(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        if request.method() == Method::POST {
            let path = request
                .uri()
                .path_and_query()
                .map_or(path, |whole| whole.as_str());
            let post = Post {
                at: Instant::now(),
                path: path.to_owned(),
            };
            self.state.posts.send_if_modified(|posts| {
                let room = posts.len() < POSTS_MAX;
                if room {
                    posts.push(post);
                }
                room
            });
        }
        Ok(match path {
            "/drain_listeners" => self.drain_listeners(query),
            "/healthcheck/fail" => self.fail_health(true),
            "/healthcheck/ok" => self.fail_health(false),
            "/quitquitquit" => {
                self.state.quit.send_replace(true);
                ok()
            }
            "/ready" => match self.state.health_failed.load(Ordering::Relaxed) {
                true => text(StatusCode::SERVICE_UNAVAILABLE, "DRAINING\n"),
                false => text(StatusCode::OK, "LIVE\n"),
            },
            "/server_info" => self.server_info(),
            "/clusters" => self.clusters(),
            "/stats" => self.stats(),
            _ => text(StatusCode::NOT_FOUND, "invalid path. admin commands are:\n"),
        })
    }
}

impl Admin {
    fn drain_listeners(&self, query: &str) -> Response<Body> {
        let has = |name| {
            query
                .split('&')
                .any(|pair| pair.split('=').next() == Some(name))
        };
        let skip_exit = has("skip_exit") && self.state.minor() >= 29;
        let graceful = has("graceful");
        if skip_exit && !graceful && self.state.minor() < 40 {
            return text(StatusCode::BAD_REQUEST, "skip_exit requires graceful\n");
        }
        if !graceful && !skip_exit {
            // Up to 1.39 the responses were not told.
            if self.state.minor() >= 40 {
                self.state.draining.store(true, Ordering::Relaxed);
            }
            self.state.close_inbound();
            return ok();
        }
        // A second graceful drain of the same scope has no effect.
        let first = !self.state.draining.swap(true, Ordering::Relaxed);
        if first {
            let state = Arc::clone(&self.state);
            let drain_time = state.config.scale.real(state.config.drain_time);
            self.scope.spawn(async move {
                tokio::time::sleep(drain_time.mul_f64(CUT_AT)).await;
                // Before, one that was never told to go stayed.
                if state.minor() >= 40 {
                    state.cut.send_replace(true);
                }
                tokio::time::sleep(drain_time.mul_f64(1.0 - CUT_AT)).await;
                if !skip_exit {
                    state.close_inbound();
                }
            });
        }
        ok()
    }

    fn fail_health(&self, failed: bool) -> Response<Body> {
        self.state.health_failed.store(failed, Ordering::Relaxed);
        ok()
    }

    fn server_info(&self) -> Response<Body> {
        let state = match self.state.health_failed.load(Ordering::Relaxed) {
            true => "DRAINING",
            false => "LIVE",
        };
        let version = format!(
            "0000000000000000000000000000000000000000/{}/Clean/RELEASE/BoringSSL",
            self.state.config.version
        );
        let info = serde_json::json!({
            "version": version, "state": state, "hot_restart_version": "disabled",
        });
        let mut response = text(StatusCode::OK, format!("{info:#}\n"));
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    fn clusters(&self) -> Response<Body> {
        let State {
            config,
            active,
            total,
            ..
        } = &*self.state;
        let cluster = format!("inbound|{}||", config.cluster_port);
        let mut lines = format!("{cluster}::default_priority::max_connections::1024\n");
        let total = total.load(Ordering::Relaxed);
        // An ORIGINAL_DST cluster shows no host before its first request.
        if total > 0 {
            let host = config.upstream;
            let active = active.value();
            for (name, value) in [
                ("cx_active", active.max(1)),
                ("rq_active", active),
                ("rq_pending_active", 0),
                ("rq_total", total),
            ] {
                lines.push_str(&format!("{cluster}::{host}::{name}::{value}\n"));
            }
            lines.push_str(&format!("{cluster}::{host}::hostname::\n"));
        }
        text(StatusCode::OK, lines)
    }

    fn stats(&self) -> Response<Body> {
        if !self.state.config.connection_stats {
            return text(StatusCode::OK, "");
        }
        let open = self.state.inbound().as_ref().map_or(0, Server::connections);
        text(
            StatusCode::OK,
            format!(
                "listener.0.0.0.0_15006.downstream_cx_active: {open}\n\
                 listener.0.0.0.0_15006.worker_0.downstream_cx_active: {open}\n\
                 listener.admin.downstream_cx_active: 1\n"
            ),
        )
    }
}

fn ok() -> Response<Body> {
    text(StatusCode::OK, "OK\n")
}

#[cfg(test)]
mod tests;
