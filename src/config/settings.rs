//! The one list of settings: flags, environment, annotations, README's table and error texts all
//! come from it.

use std::path::PathBuf;
use std::time::Duration;

use super::reader::Reader;
use super::{
    Address, DEFAULT_REPORT_PATH, Gate, GatePort, HoldQueueProxy, LogFormat, Mode, OFF, Protocol,
    address, duration, ports,
};
use crate::telemetry;

// ===== what a setting is =====

/// One setting: an annotation, an environment variable and a flag.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in lower case with hyphens, as in the annotation and the flag.
    pub name: &'static str,
    /// What holds where nobody sets it.
    pub default: Fallback,
    /// What its value is, in a word for `--name <HINT>`.
    pub hint: &'static str,
    /// Who acts on it.
    pub used_by: UsedBy,
    /// What it means: one sentence for users, without the default.
    pub help: &'static str,
}

/// What holds where nobody sets a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fallback {
    /// This text, read like any other.
    Text(&'static str),
    /// A rule in words; the setting is left unset.
    Rule(&'static str),
}

/// Who acts on a setting. `tidegate run` accepts and checks all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsedBy {
    /// `tidegate run`.
    Run,
    /// The injector, when it writes the pod.
    Injection,
}

impl Setting {
    /// The flag: `--min-drain`.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// The environment variable: `TIDEGATE_MIN_DRAIN`.
    pub fn environment(&self) -> String {
        format!("TIDEGATE_{}", self.name.replace('-', "_").to_uppercase())
    }

    /// The annotation: `tidegate.dev/min-drain`.
    pub fn annotation(&self) -> String {
        format!("tidegate.dev/{}", self.name)
    }
}

impl Fallback {
    /// The text to read where nobody sets the setting; empty for a rule.
    pub fn text(self) -> &'static str {
        match self {
            Fallback::Text(text) => text,
            Fallback::Rule(_) => "",
        }
    }

    /// What users are shown.
    pub fn shown(self) -> &'static str {
        match self {
            Fallback::Text(words) | Fallback::Rule(words) => words,
        }
    }
}

// ===== the list =====

/// Makes, from one row a setting, its constant, its place in [`SETTINGS`] and its field in
/// [`Values`], so that none of the three can be forgotten.
macro_rules! settings {
    ($($row:ident, $field:ident: $type:ty = $parse:expr, $setting:expr;)*) => {
        $(pub(crate) const $row: Setting = $setting;)*

        /// All settings, in the order users read them.
        pub static SETTINGS: &[Setting] = &[$($row),*];

        /// The value of every setting; `None` where it was bad.
        pub(super) struct Values {
            $(pub(super) $field: Option<$type>,)*
        }

        impl Values {
            /// Reads every setting.
            pub(super) fn read(reader: &mut Reader<'_>) -> Self {
                Values { $($field: reader.read(&$row, $parse),)* }
            }
        }
    };
}

settings! {
    INJECT, inject: Option<bool> = inject, Setting {
        name: "inject",
        default: Fallback::Rule("by selector"),
        hint: "BOOL",
        used_by: UsedBy::Injection,
        help: "true or false: whether the pod gets the sidecar, whatever the selector says.",
    };
    MODE, mode: Mode = |text| choice(text, &Mode::ALL, Mode::name), Setting {
        name: "mode",
        default: Fallback::Text("auto"),
        hint: "MODE",
        used_by: UsedBy::Run,
        help: "How istio-proxy is ended: hold (its preStop waits for /released), annotate (Envoy is \
               told to quit), native (the kubelet ends it), no-mesh (there is none) or auto (found \
               out during the drain).",
    };
    GRACE, grace: Duration = duration::parse, Setting {
        name: "grace",
        default: Fallback::Text("30s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "The pod's terminationGracePeriodSeconds, with a unit. The injector writes it; by \
               hand, keep the two the same.",
    };
    WORKLOAD_PORTS, workload_ports: Vec<u16> = ports::list, Setting {
        name: "workload-ports",
        default: Fallback::Text("8012,8013,8022,8112,9090"),
        hint: "PORTS",
        used_by: UsedBy::Run,
        help: "Ports that listen as long as queue-proxy or a user container lives, with commas \
               between.",
    };
    ENVOY_ADMIN, envoy_admin: Address = address::parse, Setting {
        name: "envoy-admin",
        default: Fallback::Text("127.0.0.1:15000"),
        hint: "ADDRESS",
        used_by: UsedBy::Run,
        help: "Envoy's admin interface: host:port or unix:PATH.",
    };
    AGENT, agent: Address = address::parse_tcp, Setting {
        name: "agent",
        default: Fallback::Text("127.0.0.1:15020"),
        hint: "ADDRESS",
        used_by: UsedBy::Run,
        help: "The status port of Istio's pilot-agent: host:port.",
    };
    QUEUE_METRICS, queue_metrics: Address = address::parse_tcp, Setting {
        name: "queue-metrics",
        default: Fallback::Text("127.0.0.1:9090"),
        hint: "ADDRESS",
        used_by: UsedBy::Run,
        help: "queue-proxy's autoscaling metrics: host:port.",
    };
    ANNOUNCE_DELAY, announce_delay: Duration = duration::parse, Setting {
        name: "announce-delay",
        default: Fallback::Text("3s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "From the pod's deletion to the first call to Envoy: time for the endpoints to \
               converge.",
    };
    MIN_DRAIN, min_drain: Duration = duration::parse, Setting {
        name: "min-drain",
        default: Fallback::Text("10s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "The shortest drain, from the pod's deletion.",
    };
    QUIET, quiet: Duration = duration::parse, Setting {
        name: "quiet",
        default: Fallback::Text("5s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "How long no new request may have come before the drain can end.",
    };
    QUIET_MAX, quiet_max: Duration = duration::parse, Setting {
        name: "quiet-max",
        default: Fallback::Text("30s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "From the pod's deletion: after this, where a mesh or the gate can refuse new requests, \
               they no longer prolong the drain; only those in flight do.",
    };
    MAX_DRAIN, max_drain: Option<Duration> = optional(duration::parse), Setting {
        name: "max-drain",
        default: Fallback::Rule("grace - margin"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "A cap on the drain, from the pod's deletion, where it is to be shorter than the \
               grace period allows.",
    };
    MARGIN, margin: Duration = duration::parse, Setting {
        name: "margin",
        default: Fallback::Text("3s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "What is kept of the grace period for the way out, after the drain.",
    };
    FLUSH_MAX, flush_max: Duration = duration::parse, Setting {
        name: "flush-max",
        default: Fallback::Text("5s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "The longest wait, after the last request, for its bytes to leave the pod.",
    };
    CONFIRM, confirm: Duration = duration::parse, Setting {
        name: "confirm",
        default: Fallback::Text("2s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "A preStop hook that no deletion of the pod follows within this is the restart of one \
               container.",
    };
    RESTART_HOLD, restart_hold: Duration = duration::parse, Setting {
        name: "restart-hold",
        default: Fallback::Text("5s"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "The longest that the hook of a container's restart is held.",
    };
    UPGRADE_GRACE, upgrade_grace: Option<Duration> = optional(duration::parse), Setting {
        name: "upgrade-grace",
        default: Fallback::Rule("max-drain"),
        hint: "DURATION",
        used_by: UsedBy::Run,
        help: "From the pod's deletion: how long WebSockets and tunnels through the gate may hold the \
               drain. Then they are closed, politely.",
    };
    HOLD_QUEUE_PROXY, hold_queue_proxy: HoldQueueProxy =
        |text| choice(text, &HoldQueueProxy::ALL, HoldQueueProxy::name),
    Setting {
        name: "hold-queue-proxy",
        default: Fallback::Text("auto"),
        hint: "WHEN",
        used_by: UsedBy::Run,
        help: "auto, always or never: keep queue-proxy's SIGTERM back. auto does while streams are \
               open that queue-proxy would cut (h2c, WebSockets), always until the pod is drained.",
    };
    WORKLOAD_PROTOCOL, workload_protocol: Protocol =
        |text| choice(text, &Protocol::ALL, Protocol::name),
    Setting {
        name: "workload-protocol",
        default: Fallback::Text("http1"),
        hint: "PROTOCOL",
        used_by: UsedBy::Run,
        help: "http1 or h2c: what the revision speaks, by the name of its port. The injector writes \
               it.",
    };
    WRAP_QUEUE_PROXY, wrap_queue_proxy: () = wrap_queue_proxy, Setting {
        name: "wrap-queue-proxy",
        default: Fallback::Text(OFF),
        hint: "ENTRYPOINT",
        used_by: UsedBy::Injection,
        help: "queue-proxy's entrypoint, to run it under a wrapper that ends it once drained. Only \
               off in this release.",
    };
    GATE, gate: Gate = |text| choice(text, &Gate::ALL, Gate::name), Setting {
        name: "gate",
        default: Fallback::Text(OFF),
        hint: "GATE",
        used_by: UsedBy::Run,
        help: "off, http or tcp: a proxy in front of queue-proxy that counts exactly: http counts \
               requests, streams and WebSockets, tcp counts connections, idle ones too.",
    };
    GATE_PORTS, gate_ports: Vec<GatePort> = ports::gate, Setting {
        name: "gate-ports",
        default: Fallback::Rule("by queue-proxy's ports"),
        hint: "PORTS",
        used_by: UsedBy::Run,
        help: "The gate's ports and where each leads, like 8012:18012, with commas between. The \
               injector writes them and moves queue-proxy; by hand, move it by QUEUE_SERVING_PORT.",
    };
    GATE_TLS, gate_tls: Option<PathBuf> = optional(path), Setting {
        name: "gate-tls",
        default: Fallback::Rule("TLS passes as it is"),
        hint: "FOLDER",
        used_by: UsedBy::Run,
        help: "The folder of tls.crt and tls.key by which the gate ends TLS. The injector mounts \
               queue-proxy's own there.",
    };
    HOOK_PORT, hook_port: u16 = ports::hook_port, Setting {
        name: "hook-port",
        default: Fallback::Text("18022"),
        hint: "PORT",
        used_by: UsedBy::Run,
        help: "The port of the hooks, probes and metrics. It must lie outside Istio's interception: \
               traffic.sidecar.istio.io/excludeInboundPorts.",
    };
    REPORT_PATH, report_path: PathBuf = path, Setting {
        name: "report-path",
        default: Fallback::Text(DEFAULT_REPORT_PATH),
        hint: "FILE",
        used_by: UsedBy::Run,
        help: "Where the drain report is written; the kubelet shows the default's content as the \
               container's termination message.",
    };
    LOG_FORMAT, log_format: LogFormat = |text| choice(text, &LogFormat::ALL, LogFormat::name),
    Setting {
        name: "log-format",
        default: Fallback::Text("json"),
        hint: "FORMAT",
        used_by: UsedBy::Run,
        help: "json, one object a line, or text, for people.",
    };
    LOG_LEVEL, log_level: String = log_level, Setting {
        name: "log-level",
        default: Fallback::Text("info"),
        hint: "LEVEL",
        used_by: UsedBy::Run,
        help: "off, error, warn, info, debug or trace; or levels by target, like \
               warn,tidegate=debug.",
    };
}

/// README's table: Markdown, one row a setting.
pub fn settings_table() -> String {
    let mut table = String::from(
        "| annotation | environment | flag | default | meaning |\n|---|---|---|---|---|\n",
    );
    for setting in SETTINGS {
        let default = match setting.default {
            Fallback::Text(text) => format!("`{text}`"),
            Fallback::Rule(words) => words.to_owned(),
        };
        table += &format!(
            "| `{}` | `{}` | `{}` | {default} | {} |\n",
            setting.annotation(),
            setting.environment(),
            setting.flag(),
            setting.help,
        );
    }
    table
}

// ===== values =====

/// One of a few words.
fn choice<T: Copy>(text: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<T, String> {
    match all.iter().find(|value| name(**value) == text) {
        Some(value) => Ok(*value),
        None => {
            let names: Vec<_> = all.iter().map(|value| name(*value)).collect();
            Err(format!("unknown; use one of {}", names.join(", ")))
        }
    }
}

fn inject(text: &str) -> Result<Option<bool>, &'static str> {
    match text {
        "" => Ok(None),
        "true" => Ok(Some(true)),
        "false" => Ok(Some(false)),
        _ => Err("neither true nor false; use one of them, or leave it unset"),
    }
}

/// A value that may be left out.
fn optional<T, E>(
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> impl FnOnce(&str) -> Result<Option<T>, E> {
    |text| match text {
        "" => Ok(None),
        _ => parse(text).map(Some),
    }
}

fn wrap_queue_proxy(text: &str) -> Result<(), &'static str> {
    match text {
        OFF => Ok(()),
        _ => Err("needs the wrapper, which this release does not have; use off or leave it unset"),
    }
}

fn path(text: &str) -> Result<PathBuf, std::convert::Infallible> {
    Ok(PathBuf::from(text))
}

fn log_level(text: &str) -> Result<String, telemetry::FilterError> {
    telemetry::filter(text).map(|_| text.to_owned())
}
