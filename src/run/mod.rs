//! `tidegate run`: binds the hook port, then drives one drain from the first signal to the exit.
//!
//! Two threads: the hooks are served on one of their own, so that nothing the driver does can
//! delay an answer; the driver, its polls and its calls share the other.

mod calls;
mod driver;
mod in_path;
mod poll;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::config::{self, Config};
use crate::drain::record::Report;
use crate::drain::{Phase, Settings};
use crate::hooks::{self, Board};
use crate::metrics::Metrics;
use crate::signals::{self, Signals};
use crate::{exit, gate, net, telemetry};
pub use in_path::Gate;

/// Notices of the hook server that may wait for the driver: one for each of its connections.
const NOTICES: usize = 4_096;

/// How long answered hooks get to leave their sockets before the process ends.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// The same after SIGINT, whose sender waits at a terminal.
const LAST_ANSWERS_INTERRUPTED: Duration = Duration::from_millis(50);

/// Why the sidecar cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The hook port cannot be bound.
    #[error(transparent)]
    Bind(#[from] hooks::BindError),
    /// There can be no gate.
    #[error(transparent)]
    Gate(#[from] gate::BindError),
    /// A thread, a runtime or a signal handler cannot be had.
    #[error("cannot start: {0}; raise the container's limits of threads and open files")]
    Start(#[from] io::Error),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Ending {
    /// The drain report; of an interrupted run, as far as it went.
    pub report: Report,
    /// Ended by SIGINT instead of a drain.
    pub interrupted: bool,
}

/// The gate, before it serves.
enum InPath {
    Nothing,
    Bound(Box<gate::Bound>),
    Given(Arc<dyn Gate>),
}

/// The sidecar, with its ports bound and nothing served yet.
pub struct Sidecar {
    config: Config,
    hooks: hooks::Bound,
    phase: watch::Sender<Phase>,
    gate: InPath,
}

impl Sidecar {
    /// Binds the hook port, and the gate's where there is one.
    pub fn bind(config: Config) -> Result<Sidecar, RunError> {
        let hooks = hooks::Bound::bind(config.hook_port)?;
        let gate = match in_path::gate_config(&config) {
            Some(gate) => InPath::Bound(Box::new(gate::Bound::bind(&gate)?)),
            None => InPath::Nothing,
        };
        let (phase, _) = watch::channel(Phase::Serving);
        Ok(Sidecar {
            config,
            hooks,
            phase,
            gate,
        })
    }

    /// With this gate in the path in place of its own; the configuration must say that there is one.
    pub fn with_gate(self, gate: Arc<dyn Gate>) -> Sidecar {
        Sidecar {
            gate: InPath::Given(gate),
            ..self
        }
    }

    /// The address the hooks are served on.
    pub fn hook_addr(&self) -> SocketAddr {
        self.hooks.addr()
    }

    /// The addresses that the gate listens on, in the order of the configuration.
    pub fn gate_addrs(&self) -> &[SocketAddr] {
        match &self.gate {
            InPath::Bound(gate) => gate.addrs(),
            InPath::Nothing | InPath::Given(_) => &[],
        }
    }

    /// The phase, as it advances.
    pub fn phases(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Serves the hooks and waits for the drain to be over.
    pub async fn run(self, signals: Signals) -> Result<Ending, RunError> {
        let Sidecar {
            config,
            hooks,
            phase,
            gate,
        } = self;
        let metrics = Arc::new(Metrics::new());
        let (notices, notices_in) = mpsc::channel(NOTICES);
        let (board, board_out) = watch::channel(Board {
            phase: Phase::Serving,
            ready: true,
            proxy_released: false,
            status: Arc::default(),
        });
        let (own, gate) = match gate {
            InPath::Nothing => (None, None),
            InPath::Bound(bound) => {
                let gate = Arc::new(bound.serve(&metrics)?);
                (Some(gate.clone()), Some(gate as Arc<dyn Gate>))
            }
            InPath::Given(gate) => (None, Some(gate)),
        };
        // First, so that the board has its `/status` before anybody can ask for it.
        let driver = driver::Driver::new(&config, gate, metrics.clone(), board, phase);
        let server = hooks.serve(notices, board_out, metrics)?;
        let ending = driver.run(signals, notices_in).await;
        let within = if ending.interrupted {
            LAST_ANSWERS_INTERRUPTED
        } else {
            LAST_ANSWERS
        };
        let gate_ends = async {
            if let Some(gate) = own {
                gate.shutdown(within).await;
            }
        };
        tokio::join!(server.finish(within), gate_ends);
        Ok(ending)
    }
}

/// Runs the sidecar to its end; returns the process's exit code.
pub fn main(config: Config) -> u8 {
    let _logs = match telemetry::init(config.log_format, &config.log_level) {
        Ok(guard) => guard,
        Err(error) => {
            eprintln!("tidegate: {error}");
            return exit::USAGE;
        }
    };
    for warning in config::warnings(&config) {
        tracing::warn!("{warning}");
    }
    net::raise_open_files();
    match start(config) {
        Ok(ending) if ending.interrupted => exit::INTERRUPTED,
        Ok(_) => 0,
        Err(error) => {
            tracing::error!("{error}");
            exit::UNAVAILABLE
        }
    }
}

fn start(config: Config) -> Result<Ending, RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Signals first: from here on SIGTERM is a trigger, never the end.
        let signals = signals::install()?;
        Sidecar::bind(config)?.run(signals).await
    })
}

fn settings(config: &Config) -> Settings {
    Settings {
        mode: config.mode,
        timing: config.timing,
        hold_queue_proxy: config.hold_queue_proxy,
        workload_protocol: config.workload_protocol,
        gate: config.gate,
    }
}
