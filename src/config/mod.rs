//! Configuration: parsed whole before any port is bound.
//!
//! [`settings`] is the one list of settings. A value comes from the flag, else from the
//! environment, else from the default; the environment is filled from the pod's annotations by the
//! downward API.

pub mod address;
pub mod duration;
pub mod ports;
mod reader;
pub mod settings;
#[cfg(test)]
mod tests;
mod warnings;

use std::path::PathBuf;
use std::time::Duration;

pub use address::Address;
pub use ports::GatePort;
pub use reader::ConfigError;
pub use warnings::warnings;

use reader::Reader;
use settings::{GATE, GATE_PORTS, HOOK_PORT, Values, WORKLOAD_PORTS};

/// Where the kubelet puts the file that it reads as the termination message.
pub const DEFAULT_REPORT_PATH: &str = "/dev/termination-log";

/// What switches a feature off.
pub(crate) const OFF: &str = "off";

/// All that `tidegate run` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// How Tidegate ends istio-proxy.
    pub mode: Mode,
    /// Delays and limits of a drain.
    pub timing: Timing,
    /// Port of the hooks, plaintext, on all addresses. 0 lets the kernel choose (tests, demo).
    pub hook_port: u16,
    /// Ports whose LISTEN means that queue-proxy or a user container lives.
    pub workload_ports: Vec<u16>,
    /// Envoy's admin interface.
    pub envoy_admin: Address,
    /// pilot-agent's status port.
    pub agent: Address,
    /// queue-proxy's autoscaling metrics.
    pub queue_metrics: Address,
    /// What becomes of a hold that queue-proxy itself asks for.
    pub hold_queue_proxy: HoldQueueProxy,
    /// What the revision speaks.
    pub workload_protocol: Protocol,
    /// The proxy in front of queue-proxy.
    pub gate: Gate,
    /// Its ports, and where each leads; not empty where there is a gate.
    pub gate_ports: Vec<GatePort>,
    /// The folder of the certificate by which it ends TLS; without one TLS passes as it is.
    pub gate_tls: Option<PathBuf>,
    /// Where the drain report is written; the kubelet reads it as the termination message.
    pub report_path: PathBuf,
    /// How log lines look.
    pub log_format: LogFormat,
    /// Which log lines are written: a level, or tracing-subscriber's filter directives.
    pub log_level: String,
}

/// Delays and limits of a drain. `trigger` is when Tidegate learnt that the pod is going.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timing {
    /// The pod's terminationGracePeriodSeconds.
    pub grace: Duration,
    /// What is kept of `grace` for the way out.
    pub margin: Duration,
    /// A cap of one's own on the drain; the deadline is the shorter of this and `grace - margin`.
    pub max_drain: Option<Duration>,
    /// How long, from the trigger, the gate's upgraded connections and tunnels may hold the drain; as
    /// long as anything else where it is not said.
    pub upgrade_grace: Option<Duration>,
    /// From the trigger to the first call to Envoy.
    pub announce_delay: Duration,
    /// The shortest drain, from the trigger.
    pub min_drain: Duration,
    /// How long no new request may have come.
    pub quiet: Duration,
    /// From here on (from the trigger) new requests no longer count, only what is in flight.
    pub quiet_max: Duration,
    /// The longest wait for the send queues to empty.
    pub flush_max: Duration,
    /// A hook without a trigger within this is a container restart.
    pub confirm: Duration,
    /// The longest that the hook of a restart is held, from its opening.
    pub restart_hold: Duration,
}

/// How Tidegate ends istio-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Found out during the drain.
    Auto,
    /// istio-proxy's preStop waits for `/released`.
    Hold,
    /// istio-proxy has a long terminationDrainDuration and is quit through Envoy's admin.
    Annotate,
    /// istio-proxy is a native sidecar: the kubelet ends it, after Tidegate.
    Native,
    /// There is no istio-proxy.
    NoMesh,
}

/// What becomes of a hold that queue-proxy itself asks for (`?container=queue-proxy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldQueueProxy {
    /// Answered at once, unless streams are open that queue-proxy would cut; then once they have ended.
    Auto,
    /// Held like a user container's.
    Always,
    /// Answered at once.
    Never,
}

/// What a revision speaks, by the name of its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// HTTP/1: queue-proxy waits for its requests, and cuts upgraded connections.
    Http1,
    /// HTTP/2 without TLS: queue-proxy cuts all that it has.
    H2c,
}

/// The proxy in front of queue-proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// There is none.
    Off,
    /// It counts requests, streams and upgraded connections.
    Http,
    /// It counts connections.
    Tcp,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// For people.
    Text,
}

// ===== reading =====

/// The port of the hooks, for a command that needs nothing else: what is wrong with other settings
/// must not keep the kubelet's own call from `tidegate run`.
///
/// # Errors
///
/// Where it is no port, or another party's.
pub fn hook_port(
    flags: impl Fn(&str) -> Option<String>,
    env: impl Fn(&str) -> Option<String>,
) -> Result<u16, ConfigError> {
    let mut reader = Reader::new(&flags, &env);
    let port = reader.read(&HOOK_PORT, ports::hook_port);
    reader.finish(port)
}

impl Config {
    /// Reads every setting. `flags` is asked for a setting's name, `env` for its environment
    /// variable; an empty text means unset.
    ///
    /// # Errors
    ///
    /// Every bad setting at once, a line each, named by where its value came from.
    pub fn resolve(
        flags: impl Fn(&str) -> Option<String>,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Config, ConfigError> {
        let mut reader = Reader::new(&flags, &env);
        let values = Values::read(&mut reader);
        if let (Some(hook), Some(workload)) = (values.hook_port, &values.workload_ports)
            && workload.contains(&hook)
        {
            reader.refuse(
                &WORKLOAD_PORTS,
                &format!(
                    "{hook} is Tidegate's own {}, which never goes before Tidegate; take it out",
                    HOOK_PORT.name
                ),
            );
        }
        check_gate(&values, &mut reader);
        reader.finish(assemble(values))
    }
}

/// That a gate has ports, and none of another's.
fn check_gate(values: &Values, reader: &mut Reader<'_>) {
    let (Some(Gate::Http | Gate::Tcp), Some(gate)) = (values.gate, &values.gate_ports) else {
        return;
    };
    if gate.is_empty() {
        let ports = GATE_PORTS.name;
        reader.refuse(
            &GATE,
            &format!("a gate has ports: set {ports}, like 8012:18012, or use off"),
        );
    }
    for GatePort { listen, upstream } in gate {
        if values.hook_port == Some(*listen) {
            let hook = HOOK_PORT.name;
            reader.refuse(&GATE_PORTS, &format!("{listen} is the {hook}; use another"));
        }
        let workload = values.workload_ports.as_ref();
        if workload.is_some_and(|ports| ports.contains(listen)) {
            reader.refuse(
                &WORKLOAD_PORTS,
                &format!(
                    "{listen} is the gate's, which never goes before Tidegate; write {upstream} in its \
                     place"
                ),
            );
        }
    }
}

/// Every value in its place; `None` where one was bad. Taken apart whole, so that a new setting
/// cannot be forgotten.
fn assemble(values: Values) -> Option<Config> {
    let Values {
        inject,
        mode,
        grace,
        workload_ports,
        envoy_admin,
        agent,
        queue_metrics,
        announce_delay,
        min_drain,
        quiet,
        quiet_max,
        max_drain,
        margin,
        flush_max,
        confirm,
        restart_hold,
        upgrade_grace,
        hold_queue_proxy,
        workload_protocol,
        wrap_queue_proxy,
        gate,
        gate_ports,
        gate_tls,
        hook_port,
        report_path,
        log_format,
        log_level,
    } = values;
    // Only checked: the first is the injector's, of the other this release knows one value.
    inject?;
    wrap_queue_proxy?;
    Some(Config {
        mode: mode?,
        timing: Timing {
            grace: grace?,
            margin: margin?,
            max_drain: max_drain?,
            upgrade_grace: upgrade_grace?,
            announce_delay: announce_delay?,
            min_drain: min_drain?,
            quiet: quiet?,
            quiet_max: quiet_max?,
            flush_max: flush_max?,
            confirm: confirm?,
            restart_hold: restart_hold?,
        },
        hook_port: hook_port?,
        workload_ports: workload_ports?,
        envoy_admin: envoy_admin?,
        agent: agent?,
        queue_metrics: queue_metrics?,
        hold_queue_proxy: hold_queue_proxy?,
        workload_protocol: workload_protocol?,
        gate: gate?,
        gate_ports: gate_ports?,
        gate_tls: gate_tls?,
        report_path: report_path?,
        log_format: log_format?,
        log_level: log_level?,
    })
}

impl Timing {
    /// The longest drain, from the trigger: what the grace period leaves, or `max_drain` if that
    /// is shorter. A margin longer than half the grace period counts as half, so that a short
    /// grace period is not all margin.
    pub fn longest_drain(&self) -> Duration {
        let left = self.grace - self.margin.min(self.grace / 2);
        self.max_drain.map_or(left, |cap| cap.min(left))
    }
}

// ===== names =====

impl Mode {
    /// All modes.
    pub const ALL: [Mode; 5] = [
        Mode::Auto,
        Mode::Hold,
        Mode::Annotate,
        Mode::Native,
        Mode::NoMesh,
    ];

    /// The mode's name in settings, logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Auto => "auto",
            Mode::Hold => "hold",
            Mode::Annotate => "annotate",
            Mode::Native => "native",
            Mode::NoMesh => "no-mesh",
        }
    }
}

impl HoldQueueProxy {
    /// All choices.
    pub const ALL: [HoldQueueProxy; 3] = [
        HoldQueueProxy::Auto,
        HoldQueueProxy::Always,
        HoldQueueProxy::Never,
    ];

    /// The choice's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            HoldQueueProxy::Auto => "auto",
            HoldQueueProxy::Always => "always",
            HoldQueueProxy::Never => "never",
        }
    }
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Protocol; 2] = [Protocol::Http1, Protocol::H2c];

    /// The protocol's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http1",
            Protocol::H2c => "h2c",
        }
    }
}

impl Gate {
    /// All kinds.
    pub const ALL: [Gate; 3] = [Gate::Off, Gate::Http, Gate::Tcp];

    /// The kind's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Gate::Off => OFF,
            Gate::Http => "http",
            Gate::Tcp => "tcp",
        }
    }
}

impl LogFormat {
    /// All formats.
    pub const ALL: [LogFormat; 2] = [LogFormat::Json, LogFormat::Text];

    /// The format's name in settings.
    pub fn name(self) -> &'static str {
        match self {
            LogFormat::Json => "json",
            LogFormat::Text => "text",
        }
    }
}
