//! The gate's thread: accepts, bounds, and ends without cutting anybody before its time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::conn;
use super::counter::Counter;
use super::engine::Stage;
use super::listen::{Bound, GateConfig, Mode};
use super::shared::{Seat, Shared};
use super::{metrics, tls};
use crate::metrics::Metrics;
use crate::net;

/// What the thread may take longer than it was told to, on a busy node.
const SLACK: Duration = Duration::from_millis(100);

/// How long connections may take to end where nobody said how long.
const UNATTENDED: Duration = Duration::from_secs(1);

/// A running gate. Dropped without [`Gate::shutdown`], it ends by itself, and nobody waits for it.
#[derive(Debug)]
pub struct Gate {
    counter: Counter,
    stage: watch::Sender<Stage>,
    ending: watch::Sender<Option<Duration>>,
    ended: watch::Receiver<()>,
}

impl Gate {
    pub(super) fn start(bound: Bound, metrics: &Arc<Metrics>) -> io::Result<Gate> {
        let Bound {
            config,
            listeners,
            tls,
            ..
        } = bound;
        let GateConfig {
            mode,
            routes: _,
            tls: tls_config,
            limits,
            announce,
        } = config;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _entered = runtime.enter();
            let listeners = listeners.into_iter();
            listeners
                .map(|(listener, upstream)| Ok((TcpListener::from_std(listener)?, upstream)))
                .collect::<io::Result<Vec<_>>>()?
        };
        let (acceptor, store) = tls.unzip();
        let figures = metrics::Metrics::default();
        let shared = Arc::new(Shared::new(limits, announce, acceptor, figures));
        metrics.gate.show(&shared.metrics, &shared.counter);
        let counter = shared.counter.clone();
        let (stage, stages) = watch::channel(Stage::default());
        let (ending, endings) = watch::channel(None);
        let (tell, ended) = watch::channel(());
        thread::Builder::new()
            .name("gate".to_owned())
            .spawn(move || {
                if let (Some(store), Some(config)) = (store, tls_config) {
                    runtime.spawn(tls::watch(store, config.look_every));
                }
                runtime.block_on(run(listeners, mode, shared, stages, endings));
                // Whoever is not done by now is cut here, before anybody is told.
                drop(runtime);
                drop(tell);
            })?;
        Ok(Gate {
            counter,
            stage,
            ending,
            ended,
        })
    }

    /// What is in flight.
    pub fn counter(&self) -> Counter {
        self.counter.clone()
    }

    /// Brings the drain to `stage`, if it is not further.
    pub fn stage(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let later = stage > *now;
            *now = stage.max(*now);
            later
        });
    }

    /// Comes to [`Stage::Closed`], gives what is in flight `within` to end, and cuts the rest. Returns
    /// how many requests, streams and tunnels of this gate were ever cut.
    pub async fn shutdown(&self, within: Duration) -> u64 {
        let mut ended = self.ended.clone();
        self.ending.send_replace(Some(within));
        if timeout(within + SLACK, ended.changed()).await.is_err() {
            tracing::warn!("the gate's thread did not end in time");
        }
        self.counter.cut()
    }
}

async fn run(
    listeners: Vec<(TcpListener, SocketAddr)>,
    mode: Mode,
    shared: Arc<Shared>,
    mut stages: watch::Receiver<Stage>,
    mut endings: watch::Receiver<Option<Duration>>,
) {
    let (close, closing) = watch::channel(());
    let mut doors = JoinSet::new();
    for (listener, upstream) in listeners {
        let door = accept(listener, upstream, mode, shared.clone(), closing.clone());
        doors.spawn(door);
    }
    loop {
        tokio::select! {
            stage = stages.wait_for(|now| *now > shared.stage()) => match stage {
                Ok(stage) if *stage == Stage::Closed => break,
                Ok(stage) => shared.advance(*stage),
                Err(_) => break,
            },
            _ = endings.wait_for(Option::is_some) => break,
        }
    }
    // Whoever is in the kernel's queue comes in first, and is told.
    drop(close);
    while doors.join_next().await.is_some() {}
    shared.advance(Stage::Closed);
    let within = match endings.wait_for(Option::is_some).await {
        Ok(within) => within.unwrap_or(UNATTENDED),
        Err(_) => UNATTENDED,
    };
    let _ = timeout(within, shared.emptied()).await;
}

/// Accepts connections until `closing`.
async fn accept(
    listener: TcpListener,
    upstream: SocketAddr,
    mode: Mode,
    shared: Arc<Shared>,
    mut closing: watch::Receiver<()>,
) {
    let mut starved = false;
    let admit = |tcp: TcpStream| {
        let Some(seat) = Seat::take(&shared, upstream) else {
            shared.metrics.refused.inc();
            return;
        };
        if let Some(connection) = conn::begin(tcp, seat, mode) {
            tokio::spawn(connection);
        }
    };
    loop {
        tokio::select! {
            _ = closing.changed() => break,
            (tcp, _) = net::accept(&listener, shared.limits.accept_backoff, &mut starved) => admit(tcp),
        }
    }
    net::drain_backlog(listener, |tcp, _| admit(tcp)).await;
}
