//! What stands between client and backend: the gate of the built binary, or a relay in its place.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tidegate::drain::Phase;
use tidegate::drain::record::Report;

use crate::process::{self, Process, listens};
use crate::relay::{Manners, Relay};
use crate::wait::until;

/// Where a client connects to the proxy.
pub(crate) const LISTEN: u16 = 8012;
/// Where the backend listens.
pub(crate) const BACKEND: u16 = 18012;

/// `relay` puts a relay in the gate's place.
const CHOICE: &str = "TIDEGATE_TEST_GATE";
const HOOKS: u16 = 18022;
/// Where nothing listens: these tests have no queue-proxy.
const NO_QUEUE_PROXY: &str = "127.0.0.1:9";
/// How long a proxy may take to listen, or a drain to advance by one phase.
const LIMIT: Duration = Duration::from_secs(20);

/// The gate's mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It knows HTTP.
    Http,
    /// It takes everything for a tunnel.
    Tcp,
}

/// A running proxy from [`LISTEN`] to a port.
pub(crate) enum Proxy {
    Gate(Box<Process>),
    Relay(Relay),
}

impl Proxy {
    /// Starts what the environment chooses, to [`BACKEND`], and waits until it listens.
    pub(crate) async fn start(mode: Mode) -> Proxy {
        match std::env::var(CHOICE).as_deref() {
            Err(_) | Ok("tidegate") => Proxy::gate(mode).await,
            Ok("relay") => Proxy::Relay(Relay::start(LISTEN, BACKEND, Manners::Transparent).await),
            Ok(other) => panic!("{CHOICE} is {other}; use tidegate or relay"),
        }
    }

    async fn gate(mode: Mode) -> Proxy {
        let gate = match mode {
            Mode::Http => "http",
            Mode::Tcp => "tcp",
        };
        let mut command = process::command(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["run", "--mode", "no-mesh", "--gate", gate])
            .args(["--gate-ports", &format!("{LISTEN}:{BACKEND}")])
            .args(["--workload-ports", &BACKEND.to_string()])
            .args(["--hook-port", &HOOKS.to_string()])
            .args(["--queue-metrics", NO_QUEUE_PROXY])
            .args(["--grace", "60s", "--announce-delay", "200ms"])
            .args(["--min-drain", "500ms", "--quiet", "100ms"]);
        let mut gate = Process::serve("tidegate", command, HOOKS).await;
        until(LIMIT, "the gate listens", || {
            gate.must_run();
            listens(LISTEN)
        })
        .await;
        Proxy::Gate(Box::new(gate))
    }

    /// Panics where it has ended.
    pub(crate) fn must_run(&mut self) {
        if let Proxy::Gate(gate) = self {
            gate.must_run();
        }
    }

    /// Begins a drain, and waits until clients have been told and what is idle is being closed. A
    /// relay knows no drain.
    pub(crate) async fn drain(&mut self) {
        if let Proxy::Gate(gate) = self {
            gate.signal(Signal::TERM);
            until(LIMIT, "the drain has begun", || {
                gate.must_run();
                lines(gate).any(|line| line["phase"] == Phase::Draining.name())
            })
            .await;
        }
    }

    /// Waits until the drain has ended, which needs the backend gone; panics where it was not a whole
    /// one.
    pub(crate) async fn drained(self) {
        let mut gate = match self {
            Proxy::Gate(gate) => gate,
            Proxy::Relay(relay) => return relay.end().await,
        };
        let status = gate.ended(LIMIT).await;
        assert!(status.success(), "tidegate: {status}: {}", gate.log());
        let report = lines(&gate).find_map(|line| {
            let text = line["report"].as_str()?;
            serde_json::from_str::<Report>(text).ok()
        });
        let report = report.unwrap_or_else(|| panic!("no report: {}", gate.log()));
        assert_eq!(
            (report.outcome.as_str(), report.cut),
            ("drained", 0),
            "{report:?}"
        );
    }
}

/// The lines of its log that are objects.
fn lines(gate: &Process) -> impl Iterator<Item = Value> {
    let lines: Vec<Value> = gate
        .log()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    lines.into_iter()
}
