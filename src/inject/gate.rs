//! The gate: queue-proxy moves to other ports, and Tidegate takes the ones that it had.

use serde_json::{Value, json};

use super::settings::{QUEUE_CERTS, QUEUE_PROXY, Settings, serves_tls};
use super::{CONTAINER, Refusal, read};
use crate::config::settings::{GATE, GATE_PORTS, GATE_TLS};
use crate::config::{Config, Gate, GatePort, ports};

/// queue-proxy's ports in its environment: pkg/queue/sharedmain/main.go.
const SERVING: &str = "QUEUE_SERVING_PORT";
const SERVING_TLS: &str = "QUEUE_SERVING_TLS_PORT";
/// What they are where the environment does not say.
const DEFAULT: u16 = 8012;
const DEFAULT_TLS: u16 = 8112;
/// How far queue-proxy moves.
const AWAY: u16 = 10_000;

/// The gate's ports, as a setting: what the pod itself says, else queue-proxy's. `None`: there is no
/// gate, or nothing that it could stand before.
pub(super) fn ports(pod: &Value, settings: &Settings<'_>) -> Option<String> {
    let off = Gate::Off.name();
    if settings.text(&GATE).unwrap_or(off).trim() == off {
        return None;
    }
    if let Some(asked) = settings.asked(&GATE_PORTS) {
        return Some(asked.to_owned());
    }
    let Some(queue) = read::container(pod, QUEUE_PROXY) else {
        return settings.literal(&GATE_PORTS).map(str::to_owned);
    };
    // What an earlier injection has moved is where it says.
    let before = settings.literal(&GATE_PORTS).unwrap_or_default();
    let before = ports::gate(before).unwrap_or_default();
    let serving = port_of(queue, SERVING, DEFAULT);
    let moved = before.iter().find(|port| port.upstream == serving);
    let http = moved.copied().or_else(|| away(serving))?;
    let mut pairs = vec![http];
    if serves_tls(queue) && settings.text(&GATE_TLS).is_some() {
        let serving = port_of(queue, SERVING_TLS, DEFAULT_TLS);
        let moved = |port: &&GatePort| away(port.listen).is_some_and(|it| it.upstream == serving);
        let listen = before
            .iter()
            .find(moved)
            .map_or(serving, |port| port.listen);
        // Behind the gate nothing is encrypted any more.
        pairs.push(GatePort {
            listen,
            upstream: http.upstream,
        });
    }
    let pairs = pairs
        .iter()
        .map(|GatePort { listen, upstream }| format!("{listen}:{upstream}"));
    Some(pairs.collect::<Vec<_>>().join(","))
}

fn port_of(queue: &Value, variable: &str, default: u16) -> u16 {
    let said = read::env(queue, variable).and_then(|text| text.parse().ok());
    said.unwrap_or(default)
}

fn away(listen: u16) -> Option<GatePort> {
    let upstream = listen.checked_add(AWAY)?;
    Some(GatePort { listen, upstream })
}

/// Where queue-proxy's TLS port is once the gate stands there: nobody comes to it any more.
pub(super) fn moved_tls(port: u16, gate: Option<&str>) -> u16 {
    if moved(port, gate) == port {
        port
    } else {
        port.saturating_add(AWAY)
    }
}

/// Where a port of queue-proxy's is once the gate stands there: in its setting's text.
pub(super) fn moved(port: u16, gate: Option<&str>) -> u16 {
    let gate = gate
        .and_then(|text| ports::gate(text).ok())
        .unwrap_or_default();
    let pair = gate.iter().find(|pair| pair.listen == port);
    pair.map_or(port, |pair| pair.upstream)
}

/// That nobody else has the ports to which queue-proxy is to move.
///
/// # Errors
///
/// The first that is taken.
pub(super) fn check(pod: &Value, config: &Config) -> Result<(), Refusal> {
    if config.gate == Gate::Off || read::container(pod, QUEUE_PROXY).is_none() {
        return Ok(());
    }
    let others =
        || read::all_containers(pod).filter(|c| ![QUEUE_PROXY, CONTAINER].contains(&read::name(c)));
    for GatePort { listen, upstream } in &config.gate_ports {
        for port in [listen, upstream] {
            let mut others = others();
            if let Some(other) = others.find(|c| read::tcp_ports(c).any(|p| p == *port)) {
                return Err(Refusal::GatePortTaken {
                    port: *port,
                    listen: *listen,
                    container: read::name(other).to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// Moves queue-proxy. Probes of the ports that it had go through the gate.
pub(super) fn write(after: &mut Value, config: &Config, warnings: &mut Vec<String>) {
    if config.gate == Gate::Off {
        return;
    }
    let queues = read::containers_mut(after).filter(|c| read::name(c) == QUEUE_PROXY);
    for queue in queues {
        for (variable, default) in [(SERVING, DEFAULT), (SERVING_TLS, DEFAULT_TLS)] {
            let port = port_of(queue, variable, default);
            let Some(pair) = config.gate_ports.iter().find(|pair| pair.listen == port) else {
                continue;
            };
            let to = match variable {
                SERVING => pair.upstream,
                _ => port.saturating_add(AWAY),
            };
            set_env(queue, variable, to);
            unname(queue, port);
            let declared = read::list(queue, "ports");
            declared.retain(|entry| entry["containerPort"] != port);
            if !declared.iter().any(|entry| entry["containerPort"] == to) {
                declared.push(json!({"containerPort": to, "protocol": "TCP"}));
            }
        }
        if config.gate == Gate::Http && serves_tls(queue) && config.gate_tls.is_none() {
            let port = port_of(queue, SERVING_TLS, DEFAULT_TLS);
            warnings.push(format!(
                "queue-proxy serves TLS on {port}, past the gate, which does not count that; set {}: \
                 {QUEUE_CERTS}",
                GATE_TLS.annotation()
            ));
        }
    }
}

/// The ports that Tidegate's own container declares: a Service may name queue-proxy's.
pub(super) fn declared(pod: &Value, config: &Config) -> Vec<Value> {
    if config.gate == Gate::Off {
        return Vec::new();
    }
    let port = |pair: &GatePort| {
        let entries = read::all_containers(pod).flat_map(|c| read::items(&c["ports"]));
        let there = entries.filter(|entry| entry["containerPort"] == pair.listen);
        let mut entry = json!({"containerPort": pair.listen, "protocol": "TCP"});
        if let Some(name) = there.filter_map(|entry| entry["name"].as_str()).next() {
            entry["name"] = json!(name);
        }
        entry
    };
    config.gate_ports.iter().map(port).collect()
}

/// queue-proxy's certificate, to be mounted for the gate as well.
pub(super) fn certificate(pod: &Value, config: &Config) -> Option<Value> {
    let folder = config.gate_tls.as_ref()?.to_str()?;
    let queue = read::container(pod, QUEUE_PROXY).filter(|_| config.gate != Gate::Off)?;
    let mount = read::items(&queue["volumeMounts"]).find(|it| it["mountPath"] == QUEUE_CERTS)?;
    Some(json!({"name": mount["name"], "mountPath": folder, "readOnly": true}))
}

fn set_env(container: &mut Value, variable: &str, port: u16) {
    let list = read::list(container, "env");
    let entry = json!({"name": variable, "value": port.to_string()});
    match list.iter().position(|it| it["name"] == variable) {
        Some(index) => list[index] = entry,
        None => list.push(entry),
    }
}

/// A probe that names the port by a name gets its number: the name goes with the port.
fn unname(queue: &mut Value, port: u16) {
    let named = read::items(&queue["ports"]).find(|entry| entry["containerPort"] == port);
    let Some(name) = named
        .and_then(|entry| entry["name"].as_str())
        .map(str::to_owned)
    else {
        return;
    };
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        for kind in ["httpGet", "tcpSocket"] {
            if queue[probe][kind]["port"] == name.as_str() {
                queue[probe][kind]["port"] = json!(port);
            }
        }
    }
}
