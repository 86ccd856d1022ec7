//! The user container: HTTP/1.1 and h2c on one port, with three manners on SIGTERM.
//!
//! | request | answer |
//! |---|---|
//! | `/slow?seconds=20&headers=first\|last&bytes=N` | after so long N bytes (1000) with a content-length; the head before or with them (`last`) |
//! | `/chunked?chunks=N&every=1s` | the head at once, then before each of N pieces of 1000 bytes a wait; no content-length |
//! | `/stream?seconds=45&every=1s` | the same with pieces of 16 bytes, `seconds / every` of them; over h2 each a DATA frame |
//! | `/big?bytes=12000000` | as fast as the client reads |
//! | `POST /upload` | `{"bytes":N,"checksum":"..."}` once the body has ended |
//! | `/ws` | WebSocket: each message back |
//! | `POST /lab.Lab/Stream` | a gRPC server stream: see [`crate::grpc`] |
//! | `/healthz` | 200, and 500 after `POST /fail-liveness`, for the life of the process |
//! | `POST /crash` | none: the process ends with code 134 |
//!
//! Every body is made of `wire::pattern`. The log, one JSON object a line with `at` in Unix milliseconds,
//! has `listening`, `request`, `answered` (`how`: `whole`, `given up`), `sigterm`, `in flight ended`,
//! `liveness fails`, `crash` and `exit`. Of requests for /healthz, and those that end with `&quiet`, only
//! what was given up is in it.

mod answer;
pub(crate) use answer::ticks;
mod websocket;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use hyper_util::server::graceful::GracefulShutdown;
use tidegate::config::LogFormat;
use tidegate::standin::process::How;
use tidegate::standin::{Process, Scope};
use tidegate::{exit, signals, telemetry};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tracing::info;

use crate::listen::accept;
use crate::wire::{self, unix_ms};

/// How long what is in flight may take after SIGTERM: twice Knative's longest grace period.
const FINISH_MAX: Duration = Duration::from_secs(1200);
/// The exit code of `POST /crash`, as a shell says it of an abort.
const CRASHED: u8 = 134;
/// What a shell says of a process that SIGTERM has ended.
const TERMINATED: u8 = 143;

/// How an app is started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) listen: SocketAddr,
    pub(crate) on_sigterm: OnSigterm,
}

/// An app's manners on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnSigterm {
    /// Accepts until what was in flight at SIGTERM has ended, ends what has come since, exits with 0.
    Finish,
    /// Exits at once with 143.
    Exit,
    /// Takes no notice.
    Ignore,
}

/// A running app.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) addr: SocketAddr,
    pub(crate) process: Process,
}

/// Runs the app until it has ended; the result is its exit code.
pub(crate) fn main(config: Config) -> anyhow::Result<u8> {
    let _log = telemetry::init(LogFormat::Json, "info")?;
    let code = wire::runtime()?.block_on(async {
        let signals = signals::install().context("cannot catch signals")?;
        let app = start(config)
            .await
            .with_context(|| format!("cannot listen on {}; use another --port", config.listen))?;
        info!(at = unix_ms(), addr = %app.addr, on_sigterm = ?config.on_sigterm, "listening");
        anyhow::Ok(until_ended(&app.process, signals).await)
    })?;
    info!(at = unix_ms(), code, "exit");
    Ok(code)
}

/// Passes signals on to a process until it has ended; the result is its exit code.
pub(crate) async fn until_ended(process: &Process, mut signals: signals::Signals) -> u8 {
    loop {
        tokio::select! {
            ended = process.exited() => return match ended.how {
                How::Exited(code) => code,
                How::Killed => exit::SOFTWARE,
            },
            Some(_) = signals.next() => {
                info!(at = unix_ms(), "sigterm");
                process.sigterm();
            }
        }
    }
}

/// Starts an app. An error is an address that cannot be had.
pub(crate) async fn start(config: Config) -> io::Result<App> {
    let Config { listen, on_sigterm } = config;
    let listener = TcpListener::bind(listen).await?;
    let addr = listener.local_addr()?;
    let process = Process::start("lab-app", move |scope| run(scope, listener, on_sigterm));
    Ok(App { addr, process })
}

async fn run(mut scope: Scope, listener: TcpListener, on_sigterm: OnSigterm) -> u8 {
    let (crash, mut crashed) = mpsc::channel(1);
    let state = Arc::new(State {
        scope: scope.clone(),
        work: Work::default(),
        requests: AtomicU64::new(0),
        live: AtomicBool::new(true),
        crash,
    });
    let connections = GracefulShutdown::new();
    let leaving = async {
        scope.sigterm().await;
        match on_sigterm {
            OnSigterm::Finish => state.work.over().await,
            OnSigterm::Exit => {}
            OnSigterm::Ignore => std::future::pending().await,
        }
    };
    let answering = Arc::clone(&state);
    let answer = move |request| answer::answer(Arc::clone(&answering), request);
    tokio::select! {
        never = accept(&listener, &state.scope, &connections, answer) => match never {},
        () = leaving => {}
        _ = crashed.recv() => return CRASHED,
    }
    if on_sigterm == OnSigterm::Exit {
        return TERMINATED;
    }
    drop(listener);
    let finish = async {
        connections.shutdown().await;
        // Upgraded connections are none of the server's.
        state.work.over().await;
    };
    tokio::select! {
        // What takes longer is cut.
        _ = tokio::time::timeout(FINISH_MAX, finish) => {}
        _ = crashed.recv() => return CRASHED,
    }
    info!(at = unix_ms(), "in flight ended");
    0
}

/// What requests share.
struct State {
    scope: Scope,
    work: Work,
    /// How many requests there have been.
    requests: AtomicU64,
    live: AtomicBool,
    crash: mpsc::Sender<()>,
}

/// What is in flight, by guards: each holds a sender.
struct Work(Mutex<(Busy, mpsc::Receiver<()>)>);

/// A request in flight.
type Busy = mpsc::Sender<()>;

impl Default for Work {
    fn default() -> Self {
        Work(Mutex::new(mpsc::channel(1)))
    }
}

impl Work {
    fn enter(&self) -> Busy {
        let work = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        work.0.clone()
    }

    /// Waits until all that is in flight now has ended; what enters from now on is not waited for.
    async fn over(&self) {
        let now = std::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            mpsc::channel(1),
        );
        let (own, mut guards) = now;
        drop(own);
        // Nobody sends: it ends when the last guard is gone.
        let _ = guards.recv().await;
    }
}

/// How an answer ends that was handed over to its last byte.
const WHOLE: &str = "whole";

/// A request from its head to its answer's last byte; logs both.
struct Exchange {
    id: u64,
    logged: bool,
    how: &'static str,
    _busy: Busy,
}

impl Exchange {
    fn begin(state: &State, method: &str, path: &str) -> Exchange {
        let id = state.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let logged = path != "/healthz" && !path.ends_with("&quiet");
        if logged {
            info!(at = unix_ms(), id, method, path, "request");
        }
        Exchange {
            id,
            logged,
            how: "given up",
            _busy: state.work.enter(),
        }
    }

    /// Everything has been handed over.
    fn whole(mut self) {
        self.how = WHOLE;
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.logged || self.how != WHOLE {
            info!(at = unix_ms(), id = self.id, how = self.how, "answered");
        }
    }
}
