//! The client pod's control server: plans from outside, without an exec into the pod.
//!
//! | request | answer |
//! |---|---|
//! | `POST /run`, a plan | its records, one JSON line each as they end; 400 and why where it is not a plan |
//! | `/healthz` | 200 |
//!
//! A plan is given up when the connection that asked for it closes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::server::graceful::GracefulShutdown;
use tidegate::config::LogFormat;
use tidegate::standin::{Process, Scope};
use tidegate::{signals, telemetry};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tracing::info;

use crate::client;
use crate::feed::{Body, fed, full};
use crate::listen::accept;
use crate::plan::Plan;
use crate::serve::until_ended;
use crate::wire::{self, unix_ms};

/// The longest plan, in bytes.
const PLAN_MAX: usize = 1 << 20;
/// Plans that run at once; more are answered 503.
const PLANS_MAX: usize = 256;

/// Serves until SIGTERM or SIGINT; plans that run then are cut.
pub(crate) fn main(listen: SocketAddr) -> anyhow::Result<u8> {
    let _log = telemetry::init(LogFormat::Json, "info")?;
    wire::runtime()?.block_on(async {
        let signals = signals::install().context("cannot catch signals")?;
        let (_, process) = start(listen)
            .await
            .with_context(|| format!("cannot listen on {listen}; use another --port"))?;
        Ok(until_ended(&process, signals).await)
    })
}

/// Starts the server. An error is an address that cannot be had.
pub(crate) async fn start(listen: SocketAddr) -> io::Result<(SocketAddr, Process)> {
    let listener = TcpListener::bind(listen).await?;
    let addr = listener.local_addr()?;
    info!(at = unix_ms(), %addr, "control listens");
    let process = Process::start("control", move |mut scope| async move {
        let connections = GracefulShutdown::new();
        let control = Control {
            scope: scope.clone(),
            free: Arc::new(Semaphore::new(PLANS_MAX)),
        };
        let tasks = scope.clone();
        let answer = move |request| control.clone().answer(request);
        tokio::select! {
            never = accept(&listener, &tasks, &connections, answer) => match never {},
            () = scope.sigterm() => 0,
        }
    });
    Ok((addr, process))
}

#[derive(Clone)]
struct Control {
    scope: Scope,
    free: Arc<Semaphore>,
}

impl Control {
    async fn answer(self, request: Request<Incoming>) -> Response<Body> {
        let (status, text) = match (request.method(), request.uri().path()) {
            (&Method::POST, "/run") => match self.run(request.into_body()).await {
                Ok(records) => return Response::new(records),
                Err(refused) => refused,
            },
            (_, "/healthz") => (StatusCode::OK, "ok".to_owned()),
            _ => (StatusCode::NOT_FOUND, "POST /run, or /healthz".to_owned()),
        };
        let mut response = Response::new(full(format!("{text}\n")));
        *response.status_mut() = status;
        response
    }

    async fn run(&self, body: Incoming) -> Result<Body, (StatusCode, String)> {
        let refused = |why: String| (StatusCode::BAD_REQUEST, why);
        let json = Limited::new(body, PLAN_MAX).collect().await;
        let json = json.map_err(|error| refused(format!("the plan was not read: {error}")))?;
        let plan = Plan::parse(&json.to_bytes(), None).map_err(|why| refused(why.to_string()))?;
        let free = Arc::clone(&self.free).try_acquire_owned();
        let permit = free.map_err(|_| {
            let why = format!("{PLANS_MAX} plans are running; wait for one to end");
            (StatusCode::SERVICE_UNAVAILABLE, why)
        })?;
        let (feed, body) = fed();
        let (sender, mut records) = mpsc::channel(16);
        info!(at = unix_ms(), requests = plan.requests.len(), "plan");
        self.scope.spawn(client::run(plan, sender));
        self.scope.spawn(async move {
            let _permit = permit;
            while let Some(record) = feed.next(&mut records).await {
                let Ok(line) = record.line() else { return };
                if feed.send(line).await.is_err() {
                    return;
                }
            }
        });
        Ok(body)
    }
}
