//! The real Tidegate on a thread of its own, as a process that the kubelet stand-in can signal.

use std::net::SocketAddr;

use hyper::{Method, StatusCode};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use super::scenario::Error;
use crate::config::Config;
use crate::drain::Phase;
use crate::drain::record::Report;
use crate::run::{Ending, RunError, Sidecar};
use crate::signals::{Signal, Signals};
use crate::standin::{Process, client};

/// The limit of the call that `tidegate drain` makes.
const DRAIN_CALL: Duration = Duration::from_secs(5);

/// A running Tidegate.
pub(super) struct Handle {
    /// Where its hooks are.
    pub(super) hooks: SocketAddr,
    pub(super) process: Process,
    phases: watch::Receiver<Vec<(Phase, Instant)>>,
    report: oneshot::Receiver<Report>,
}

impl Handle {
    /// The phases it went through, and when.
    pub(super) fn phases(&self) -> Vec<(Phase, Instant)> {
        self.phases.borrow().clone()
    }

    /// Its drain report, once its process has ended.
    pub(super) fn report(mut self) -> Option<Report> {
        self.report.try_recv().ok()
    }
}

/// Starts Tidegate and returns once its hook port is bound.
pub(super) async fn start(config: Config) -> Result<Handle, Error> {
    let (signals, signals_in) = mpsc::channel(4);
    let (bound, is_bound) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    std::thread::Builder::new()
        .name("tidegate".to_owned())
        .spawn(move || {
            // Nobody waits for the end of a demo that was broken off.
            let _ = end.send(run(config, signals_in, bound));
        })?;
    let (hooks, phases) = match is_bound.await {
        Ok(bound) => bound,
        // It ended before it was bound, and says why.
        Err(_) => {
            return Err(ended.await.map_or(Error::Sidecar, |end| {
                end.map_or_else(Error::from, |_| Error::Sidecar)
            }));
        }
    };
    let (seen, seen_out) = watch::channel(Vec::new());
    tokio::spawn(record(phases, seen));
    let (report, report_in) = oneshot::channel();
    let process = Process::start("tidegate", move |mut scope| async move {
        let forward = async {
            scope.sigterm().await;
            // A coordinator that has ended needs no signal.
            let _ = signals.send(Signal::Terminate).await;
            std::future::pending::<()>().await
        };
        tokio::select! {
            end = ended => match end {
                Ok(Ok(ending)) => {
                    let _ = report.send(ending.report);
                    0
                }
                Ok(Err(_)) | Err(_) => crate::exit::UNAVAILABLE,
            },
            () = forward => 0,
        }
    });
    Ok(Handle {
        hooks,
        process,
        phases: seen_out,
        report: report_in,
    })
}

type Bound = (SocketAddr, watch::Receiver<Phase>);

fn run(
    config: Config,
    signals: mpsc::Receiver<Signal>,
    bound: oneshot::Sender<Bound>,
) -> Result<Ending, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let sidecar = Sidecar::bind(config)?;
        // It listens on all addresses; the demo stays on loopback.
        let hooks = SocketAddr::from(([127, 0, 0, 1], sidecar.hook_addr().port()));
        // Whoever waited has been broken off, and the sidecar ends with the process.
        let _ = bound.send((hooks, sidecar.phases()));
        sidecar.run(Signals::from_channel(signals)).await
    })
}

async fn record(mut phases: watch::Receiver<Phase>, seen: watch::Sender<Vec<(Phase, Instant)>>) {
    while phases.changed().await.is_ok() {
        let phase = *phases.borrow_and_update();
        seen.send_modify(|seen| seen.push((phase, Instant::now())));
    }
}

/// What `tidegate drain`, Tidegate's own preStop hook, does.
pub(super) async fn drain(hooks: SocketAddr) -> Result<(), String> {
    match client::request(Method::POST, hooks, "/drain", DRAIN_CALL).await {
        Ok((StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT, _)) => Ok(()),
        Ok((status, _)) => Err(format!("POST /drain answered {status}")),
        Err(error) => Err(error.to_string()),
    }
}
