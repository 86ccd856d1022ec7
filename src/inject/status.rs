//! The annotation that says what injection made of a pod.

use serde::Serialize;
use serde_json::Value;

use super::{Plan, STATUS, mesh, read};
use crate::config::{Config, Gate};

/// Says what is, not what was done: the same however often the pod was injected.
#[derive(Serialize)]
struct Status<'a> {
    version: &'static str,
    mode: &'static str,
    /// `native` or `regular`.
    sidecar: &'static str,
    /// The containers whose preStop waits for the drain.
    held: &'a [String],
    /// What holds istio-proxy.
    #[serde(rename = "istio-proxy")]
    istio_proxy: &'static str,
    /// terminationGracePeriodSeconds.
    grace: u64,
    /// What stands before queue-proxy, where anything does.
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<&'static str>,
}

pub(super) fn write(after: &mut Value, plan: &Plan, config: &Config, held: &[String], grace: u64) {
    let status = Status {
        version: env!("CARGO_PKG_VERSION"),
        mode: plan.mode.name(),
        sidecar: if plan.native { "native" } else { "regular" },
        held,
        istio_proxy: mesh::held_by(plan),
        grace,
        gate: (config.gate != Gate::Off).then(|| config.gate.name()),
    };
    let text = serde_json::to_string(&status).expect("plain data, with string keys");
    read::set_annotation(after, STATUS, text);
}
