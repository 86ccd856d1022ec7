//! Lets the agent ask in the kubelet's place, which may not pass Envoy: app_probe.go.

use serde_json::{Map, Value, json};

use super::{AGENT_PORT, Hooks, PROXY, list};

/// Where istio-proxy finds what the kubelet would have asked.
pub(super) const ORIGINALS: &str = "ISTIO_KUBE_APP_PROBERS";

/// A container's probes and hooks, and the paths of the agent that stand for them.
const PROBES: [(&str, &str); 3] = [
    ("readinessProbe", "readyz"),
    ("livenessProbe", "livez"),
    ("startupProbe", "startupz"),
];
const HOOKS: [(&str, &str); 2] = [("preStop", "prestopz"), ("postStart", "poststartz")];

/// Rewrites every container's, istio-proxy's own apart.
pub(super) fn rewrite(pod: &mut Value, hooks: Hooks) {
    let mut originals = Map::new();
    for of in ["initContainers", "containers"] {
        for container in list(&mut pod["spec"][of]) {
            if container["name"] != PROXY {
                rewrite_container(container, hooks, &mut originals);
            }
        }
    }
    if originals.is_empty() {
        return;
    }
    let variable = json!({"name": ORIGINALS, "value": Value::Object(originals).to_string()});
    for of in ["initContainers", "containers"] {
        for container in list(&mut pod["spec"][of]) {
            if container["name"] == PROXY {
                list(&mut container["env"]).push(variable.clone());
            }
        }
    }
}

fn rewrite_container(container: &mut Value, hooks: Hooks, originals: &mut Map<String, Value>) {
    let name = container["name"].as_str().unwrap_or_default().to_owned();
    let ports = container["ports"].clone();
    for (probe, path) in PROBES {
        if let Some(action) = container.get_mut(probe) {
            let path = format!("/app-health/{name}/{path}");
            rewrite_action(action, &path, &ports, originals);
        }
    }
    if hooks == Hooks::Kept {
        return;
    }
    let Some(lifecycle) = container.get_mut("lifecycle") else {
        return;
    };
    for (hook, path) in HOOKS {
        if let Some(action) = lifecycle.get_mut(hook) {
            let path = format!("/app-lifecycle/{name}/{path}");
            rewrite_action(action, &path, &ports, originals);
        }
    }
}

/// Only what goes over the network; an exec, say, stays. A named port that the container does not
/// have leaves no original, and is rewritten all the same.
fn rewrite_action(
    action: &mut Value,
    path: &str,
    ports: &Value,
    originals: &mut Map<String, Value>,
) {
    let Some(kind) = ["httpGet", "tcpSocket"]
        .into_iter()
        .find(|kind| action[kind].is_object())
    else {
        return;
    };
    let mut original = action[kind].clone();
    if let Some(port) = number(&original["port"], ports) {
        original["port"] = port;
        originals.insert(path.to_owned(), json!({kind: original}));
    }
    let mut asked = json!({"path": path, "port": AGENT_PORT});
    if kind == "httpGet" {
        asked["scheme"] = json!("HTTP");
        if let Some(headers) = action[kind].get("httpHeaders") {
            asked["httpHeaders"] = headers.clone();
        }
    }
    let fields = action.as_object_mut().expect("a probe or a hook");
    fields.shift_remove(kind);
    fields.insert("httpGet".to_owned(), asked);
}

fn number(port: &Value, ports: &Value) -> Option<Value> {
    if !port.is_string() {
        return Some(port.clone());
    }
    let mut ports = ports.as_array().into_iter().flatten();
    let named = ports.find(|candidate| candidate["name"] == *port)?;
    Some(named["containerPort"].clone())
}
