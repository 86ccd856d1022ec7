//! The settings of one pod: its annotations, the cluster's defaults, and what injection finds out.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use super::grace::Grace;
use super::{CONTAINER, Cluster, INJECT, Refusal, gate, read};
use crate::config::settings::{
    GATE_PORTS, GRACE, HOOK_PORT, MARGIN, MODE, SETTINGS, Setting, UsedBy, WORKLOAD_PORTS,
    WORKLOAD_PROTOCOL,
};
use crate::config::{Config, ConfigError, Mode, Protocol, duration, ports};

/// queue-proxy's ports: pkg/networking/constants.go.
const QUEUE_HTTP: u16 = 8012;
const QUEUE_H2C: &str = "8013";
/// The same behind the gate.
const QUEUE_H2C_MOVED: &str = "18013";
const QUEUE_TLS: u16 = 8112;
const QUEUE_ADMIN: u16 = 8022;
const QUEUE_METRICS: u16 = 9090;
/// Where queue-proxy looks for the certificate that makes it listen for TLS:
/// pkg/queue/sharedmain/main.go.
pub(super) const QUEUE_CERTS: &str = "/var/lib/knative/certs";
pub(super) const QUEUE_PROXY: &str = "queue-proxy";

/// The settings by their environment variables: made once, since every pod asks for all of them.
static BY_VARIABLE: LazyLock<BTreeMap<String, &'static Setting>> = LazyLock::new(|| {
    let named = SETTINGS
        .iter()
        .map(|setting| (setting.environment(), setting));
    named.collect()
});

/// What injection writes as a literal, since no annotation says it.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    pub(super) mode: Mode,
    pub(super) grace: Grace,
    /// `None`: nobody declares a port, so that the default holds.
    pub(super) workload_ports: Option<String>,
    /// `None`: no gate, or none that injection could find ports for.
    pub(super) gate_ports: Option<String>,
    pub(super) workload_protocol: String,
}

impl Computed {
    /// The value of a setting that injection finds out itself; `Some(None)` where it found none.
    pub(super) fn value(&self, setting: &Setting) -> Option<Option<String>> {
        if setting.name == MODE.name {
            Some(Some(self.mode.name().to_owned()))
        } else if setting.name == GRACE.name {
            Some(Some(format!("{}s", self.grace.told().as_secs())))
        } else if setting.name == WORKLOAD_PORTS.name {
            Some(self.workload_ports.clone())
        } else if setting.name == GATE_PORTS.name {
            self.gate_ports.clone().map(Some)
        } else if setting.name == WORKLOAD_PROTOCOL.name {
            Some(Some(self.workload_protocol.clone()))
        } else {
            None
        }
    }
}

/// Reads a pod's settings.
pub(super) struct Settings<'a> {
    pod: &'a Value,
    cluster: &'a Cluster,
    /// A sidecar that is there already: from an earlier injection, or written by hand.
    own: Option<&'a Value>,
}

impl<'a> Settings<'a> {
    pub(super) fn new(pod: &'a Value, cluster: &'a Cluster) -> Self {
        let own = read::all_containers(pod).find(|c| read::name(c) == CONTAINER);
        Settings { pod, cluster, own }
    }

    /// What is asked for: by the annotation, else by the cluster's default. An empty text is none.
    pub(super) fn asked(&self, setting: &Setting) -> Option<&'a str> {
        let annotation = read::annotation(self.pod, &setting.annotation());
        let default = self.cluster.defaults.get(setting.name).map(String::as_str);
        annotation.filter(is_given).or(default).filter(is_given)
    }

    /// What a sidecar written by hand says literally, which stays.
    pub(super) fn literal(&self, setting: &Setting) -> Option<&'a str> {
        read::env(self.own?, &setting.environment()).filter(is_given)
    }

    /// What holds of the two.
    pub(super) fn text(&self, setting: &Setting) -> Option<&'a str> {
        self.literal(setting).or_else(|| self.asked(setting))
    }

    /// The port of the hooks; the default where it is bad, which [`Settings::resolve`] reports.
    pub(super) fn hook_port(&self) -> u16 {
        let read = |text: &str| ports::hook_port(text.trim()).ok();
        self.text(&HOOK_PORT)
            .and_then(read)
            .or_else(|| read(HOOK_PORT.default.text()))
            .unwrap_or_default()
    }

    /// What is kept of the grace period; the default where it is bad.
    pub(super) fn margin(&self) -> Duration {
        let read = |text: &str| duration::parse(text.trim()).ok();
        self.text(&MARGIN)
            .and_then(read)
            .or_else(|| read(MARGIN.default.text()))
            .unwrap_or_default()
    }

    /// The workload's ports, where the pod itself says them.
    pub(super) fn asked_ports(&self) -> Option<String> {
        self.asked(&WORKLOAD_PORTS).map(str::to_owned)
    }

    /// The ports that listen as long as queue-proxy or a user container lives. Native sidecars' are
    /// not among them: those outlive Tidegate; nor are the gate's own.
    pub(super) fn workload_ports(
        &self,
        gate: Option<&str>,
        warnings: &mut Vec<String>,
    ) -> Option<String> {
        if let Some(asked) = self.asked_ports() {
            return Some(asked);
        }
        let mut found = Vec::new();
        if let Some(queue) = read::container(self.pod, QUEUE_PROXY) {
            let serving = read::env(queue, "QUEUE_SERVING_PORT");
            let serving = serving.and_then(|p| p.parse().ok()).unwrap_or(QUEUE_HTTP);
            found.push(gate::moved(serving, gate));
            if serves_tls(queue) {
                let tls = read::env(queue, "QUEUE_SERVING_TLS_PORT");
                let tls = tls.and_then(|p| p.parse().ok()).unwrap_or(QUEUE_TLS);
                found.push(gate::moved_tls(tls, gate));
            }
            found.extend([QUEUE_ADMIN, QUEUE_METRICS]);
        }
        for container in read::containers(self.pod).filter(|c| is_users(c)) {
            found.extend(read::tcp_ports(container));
        }
        let mut ports: Vec<String> = Vec::new();
        for port in found.iter().map(u16::to_string) {
            if !ports.contains(&port) {
                ports.push(port);
            }
        }
        if ports.is_empty() {
            warnings.push(format!(
                "no container declares a port, so that Tidegate cannot see when they have gone; declare \
                 one, or set {}",
                WORKLOAD_PORTS.annotation()
            ));
            return None;
        }
        Some(ports.join(","))
    }

    /// What the revision speaks: what the pod itself says, else what Knative made of its port's name.
    pub(super) fn workload_protocol(&self) -> String {
        if let Some(asked) = self.asked(&WORKLOAD_PROTOCOL) {
            return asked.to_owned();
        }
        let Some(queue) = read::container(self.pod, QUEUE_PROXY) else {
            let default = WORKLOAD_PROTOCOL.default.text();
            return self
                .literal(&WORKLOAD_PROTOCOL)
                .unwrap_or(default)
                .to_owned();
        };
        let h2c = [QUEUE_H2C, QUEUE_H2C_MOVED]
            .map(Some)
            .contains(&read::env(queue, "QUEUE_SERVING_PORT"))
            || read::containers(self.pod)
                .filter(|c| is_users(c))
                .flat_map(|c| read::items(&c["ports"]))
                .any(|port| port["name"] == Protocol::H2c.name());
        let protocol = if h2c { Protocol::H2c } else { Protocol::Http1 };
        protocol.name().to_owned()
    }

    /// All settings, read as `tidegate run` will read them.
    ///
    /// # Errors
    ///
    /// All that are bad, each by the name of its annotation.
    pub(super) fn resolve(&self, computed: &Computed) -> Result<Config, ConfigError> {
        let label = read::label(self.pod, INJECT);
        Config::resolve(
            |_| None,
            |variable| {
                let setting = *BY_VARIABLE.get(variable)?;
                let found_out = match computed.value(setting) {
                    Some(value) => value,
                    None => self.text(setting).map(str::to_owned),
                };
                // The wish may stand on a label as well, and only there be wrong.
                let wish = label.filter(|_| setting.annotation() == INJECT);
                found_out.or_else(|| wish.map(str::to_owned))
            },
        )
    }

    /// Puts the cluster's defaults where everybody can see them, and the sidecar's environment finds
    /// them: on the pod.
    pub(super) fn write_defaults(&self, after: &mut Value) {
        for setting in SETTINGS.iter().filter(|s| s.used_by == UsedBy::Run) {
            let Some(default) = self.cluster.defaults.get(setting.name) else {
                continue;
            };
            let annotation = setting.annotation();
            if read::annotation(self.pod, &annotation).is_none() {
                read::set_annotation(after, &annotation, default.clone());
            }
        }
    }
}

fn is_given(text: &&str) -> bool {
    !text.trim().is_empty()
}

/// queue-proxy declares its TLS port always, and listens there only with a certificate.
pub(super) fn serves_tls(queue: &Value) -> bool {
    read::items(&queue["volumeMounts"]).any(|mount| mount["mountPath"] == QUEUE_CERTS)
}

/// Whether a regular container is neither queue-proxy nor a part of the mesh or of Tidegate.
pub(super) fn is_users(container: &Value) -> bool {
    let name = read::name(container);
    ![QUEUE_PROXY, CONTAINER].contains(&name) && !name.starts_with("istio-")
}

/// Reads a cluster's defaults as a pod's annotations would be read.
pub(super) fn check_defaults(defaults: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let known = |name: &str| SETTINGS.iter().any(|s| s.name == name);
    if let Some(name) = defaults.keys().find(|name| !known(name)) {
        return Err(Refusal::UnknownSetting(name.clone()));
    }
    Config::resolve(|name| defaults.get(name).cloned(), |_| None)?;
    Ok(())
}
