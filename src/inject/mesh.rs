//! The mesh's part of a pod: how istio-proxy is held, and the ports that are not intercepted.

mod ports;
mod proxy_config;
mod stats;

use serde_json::{Map, Value, json};

use super::settings::{QUEUE_PROXY, Settings};
use super::{CONTAINER, Cluster, NativeSidecars, Plan, read};
use crate::config::settings::MODE;
use crate::config::{Config, Gate, HoldQueueProxy, Mode, Protocol};

pub(super) use ports::exclude;

/// The mesh's sidecar.
pub(super) const ISTIO_PROXY: &str = "istio-proxy";
/// Its user and group, whose traffic the redirection rules know by that: tools/istio-iptables.
pub(super) const PROXY_ID: u32 = 1337;

/// Whether Istio injects: "true" or "false", as a label or, older, an annotation.
const ISTIO_INJECT: &str = "sidecar.istio.io/inject";
/// Whether Istio's sidecar is to be native; Istio 1.24 and newer.
const ISTIO_NATIVE: &str = "sidecar.istio.io/nativeSidecar";
/// Ambient's word on a pod.
const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
/// The first Kubernetes 1.N that runs native sidecars without being asked to.
const NATIVE_SINCE: u32 = 29;
/// Where Istio's injector keeps the hooks and probes that it rewrote, in istio-proxy's environment:
/// pkg/kube/inject/app_probe.go.
const REWRITTEN_PROBES: &str = "ISTIO_KUBE_APP_PROBERS";

/// What there is of istio-proxy in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    /// An init container that restarts.
    Native,
    /// A regular container.
    Classic,
    /// A part that Istio's injector will merge its own into, and move where it belongs.
    Partial,
    /// None, or not yet.
    Absent,
}

fn proxy(pod: &Value) -> Proxy {
    let is_proxy = |container: &&Value| read::name(container) == ISTIO_PROXY;
    if read::init_containers(pod).any(|c| is_proxy(&c) && read::restarts(c)) {
        return Proxy::Native;
    }
    match read::containers(pod).find(is_proxy) {
        Some(container) => match container["image"].as_str() {
            None | Some("" | "auto") => Proxy::Partial,
            Some(_) => Proxy::Classic,
        },
        None => Proxy::Absent,
    }
}

// ===== deciding =====

/// Decides where the sidecar goes and how istio-proxy will be ended: by istio-proxy's own place as soon
/// as it has one, before that by what the pod and the cluster say.
pub(super) fn plan(
    pod: &Value,
    cluster: &Cluster,
    settings: &Settings<'_>,
    warnings: &mut Vec<String>,
) -> Plan {
    let proxy = proxy(pod);
    let expected = native_expected(pod, cluster);
    let named = |text: &str| {
        Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == text.trim())
    };
    let asked = settings
        .asked(&MODE)
        .and_then(named)
        .filter(|mode| *mode != Mode::Auto);
    let shown = match proxy {
        Proxy::Native => Some(Mode::Native),
        Proxy::Partial if expected => Some(Mode::Native),
        Proxy::Classic | Proxy::Partial => Some(Mode::Hold),
        Proxy::Absent => None,
    };
    let mode = match (shown, asked) {
        // What a classic istio-proxy shows does not say whether its spec is held or annotated.
        (Some(Mode::Hold), Some(Mode::Annotate)) => Mode::Annotate,
        (Some(shown), asked) => {
            if let Some(asked) = asked.filter(|asked| *asked != shown) {
                warnings.push(format!(
                    "{} is {:?}, but this pod's istio-proxy makes it {:?}, which was taken; leave the \
                     annotation out",
                    MODE.annotation(),
                    asked.name(),
                    shown.name()
                ));
            }
            shown
        }
        (None, Some(asked)) => asked,
        (None, None) if mesh_wish(pod) == Some(false) => Mode::NoMesh,
        (None, None)
            if mesh_wish(pod) == Some(true)
                && read::annotation(pod, ISTIO_NATIVE) == Some("true") =>
        {
            Mode::Native
        }
        // Istio may come yet, and then this pod is looked at again. Where it does not, a sidecar
        // written by hand knows, or finds out.
        (None, None) => settings
            .literal(&MODE)
            .and_then(named)
            .unwrap_or(Mode::Auto),
    };
    let native = match (proxy, mode) {
        (Proxy::Native | Proxy::Partial, _) => mode == Mode::Native,
        // A regular container gets its SIGTERM together with everybody else's: it must hold.
        (Proxy::Classic, _) | (_, Mode::Hold | Mode::Annotate) => false,
        (_, Mode::Native) => true,
        (_, Mode::Auto | Mode::NoMesh) => expected,
    };
    Plan {
        proxy,
        native,
        mode,
    }
}

fn native_expected(pod: &Value, cluster: &Cluster) -> bool {
    match cluster.native_sidecars {
        NativeSidecars::True => true,
        NativeSidecars::False => false,
        NativeSidecars::Auto => match read::annotation(pod, ISTIO_NATIVE) {
            Some("true") => true,
            Some("false") => false,
            _ => cluster
                .kubernetes_minor
                .is_some_and(|minor| minor >= NATIVE_SINCE),
        },
    }
}

/// Whether the pod itself says that it gets an istio-proxy, or none. The label goes before the
/// annotation.
fn mesh_wish(pod: &Value) -> Option<bool> {
    if read::label(pod, DATAPLANE_MODE) == Some("ambient") {
        return Some(false);
    }
    match read::label(pod, ISTIO_INJECT).or_else(|| read::annotation(pod, ISTIO_INJECT))? {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// What holds istio-proxy until the pod is drained, in a word or two.
pub(super) fn held_by(plan: &Plan) -> &'static str {
    match (plan.proxy, plan.mode) {
        (Proxy::Absent, _) => "absent",
        (_, Mode::Annotate) => "terminationDrainDuration",
        (_, Mode::Native) => "kubelet",
        _ => "preStop",
    }
}

// ===== writing =====

/// Holds istio-proxy and takes the hooks' port out of the interception.
pub(super) fn write(
    after: &mut Value,
    plan: &Plan,
    config: &Config,
    cluster: &Cluster,
    grace: u64,
    warnings: &mut Vec<String>,
) {
    match (plan.proxy, plan.mode) {
        (Proxy::Native, _) => unhold(after, "initContainers", warnings),
        (Proxy::Partial, Mode::Native) => unhold(after, "containers", warnings),
        (Proxy::Classic | Proxy::Partial, Mode::Hold) => {
            hold(after, config.hook_port, grace, warnings);
        }
        (Proxy::Classic | Proxy::Partial, Mode::Annotate) => unwait(after),
        (Proxy::Classic | Proxy::Partial | Proxy::Absent, _) => {}
    }
    if plan.mode != Mode::NoMesh {
        exclude(after, config.hook_port, cluster, warnings);
        if upgrades_matter(after, config) {
            stats::include(after);
        }
    }
    proxy_config::warn(after, plan.mode, grace, warnings);
}

/// Whether Tidegate is to ask Envoy for upgraded connections, so that it knows whether queue-proxy is to
/// be held. On an h2c revision all that is in flight counts, and the gate counts for itself.
fn upgrades_matter(pod: &Value, config: &Config) -> bool {
    read::container(pod, QUEUE_PROXY).is_some()
        && config.hold_queue_proxy == HoldQueueProxy::Auto
        && config.gate != Gate::Http
        && config.workload_protocol == Protocol::Http1
}

/// The preStop of a classic istio-proxy: it outlives Tidegate, should that crash, and ends by its own
/// timeout then.
fn hold(after: &mut Value, port: u16, grace: u64, warnings: &mut Vec<String>) {
    let wait = json!({"exec": {"command": [
        "pilot-agent",
        "wait",
        format!("--url=http://127.0.0.1:{port}/released"),
        format!("--timeoutSeconds={grace}"),
        "--periodMillis=100",
    ]}});
    for container in read::containers_mut(after).filter(|c| read::name(c) == ISTIO_PROXY) {
        let old = read::object(container, "lifecycle").insert("preStop".into(), wait.clone());
        if let Some(old) = old.filter(|old| !old.is_null() && !is_ours(old)) {
            warnings.push(format!(
                "istio-proxy's own preStop {old} was replaced: it waits for {CONTAINER} now"
            ));
        }
    }
}

/// Of a native istio-proxy, Istio's preStop goes: it would drain at once. Nothing takes its place, since
/// the kubelet stops istio-proxy after Tidegate, and a wait for one that has gone would last for the
/// whole grace period.
fn unhold(after: &mut Value, list: &str, warnings: &mut Vec<String>) {
    let containers = read::list_mut(after, list).into_iter().flatten();
    for container in containers.filter(|c| read::name(c) == ISTIO_PROXY) {
        let pre_stop = &container["lifecycle"]["preStop"];
        if pre_stop.is_null() {
            continue;
        }
        if !is_ours(pre_stop) && !is_istios_drain(pre_stop) {
            warnings.push(format!(
                "istio-proxy keeps its own preStop {pre_stop}: it may drain Envoy before its time; take it \
                 out of values.global.proxy.lifecycle"
            ));
            continue;
        }
        drop_pre_stop(container);
    }
}

/// Where Envoy is quit, istio-proxy does not wait; a wait from when it was to is taken back.
fn unwait(after: &mut Value) {
    let containers = read::containers_mut(after).filter(|c| read::name(c) == ISTIO_PROXY);
    for container in containers.filter(|c| is_ours(&c["lifecycle"]["preStop"])) {
        drop_pre_stop(container);
    }
}

fn drop_pre_stop(container: &mut Value) {
    let lifecycle = read::object(container, "lifecycle");
    lifecycle.shift_remove("preStop");
    if lifecycle.is_empty()
        && let Some(fields) = container.as_object_mut()
    {
        fields.shift_remove("lifecycle");
    }
}

/// The command of an exec hook, in one line.
fn command(pre_stop: &Value) -> String {
    let words = read::items(&pre_stop["exec"]["command"]).filter_map(Value::as_str);
    words.collect::<Vec<_>>().join(" ")
}

fn is_ours(pre_stop: &Value) -> bool {
    let command = command(pre_stop);
    command.starts_with("pilot-agent wait ") && command.contains("/released")
}

/// `pilot-agent request --debug-port=15020 POST drain`: Istio's injection template, since 1.21.
fn is_istios_drain(pre_stop: &Value) -> bool {
    let command = command(pre_stop);
    command.starts_with("pilot-agent request ") && command.ends_with("POST drain")
}

/// The hooks and probes that Istio's injector rewrote, by their new path.
pub(super) fn rewritten_probes(pod: &Value) -> Map<String, Value> {
    let proxies = read::all_containers(pod).filter(|c| read::name(c) == ISTIO_PROXY);
    proxies
        .filter_map(|proxy| read::env(proxy, REWRITTEN_PROBES))
        .find_map(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}
