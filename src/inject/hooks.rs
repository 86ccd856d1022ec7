//! The preStop hooks of the workload: Knative's, and what Istio made of them, become Tidegate's.

use serde_json::{Map, Value, json};

use super::settings::{QUEUE_PROXY, is_users};
use super::{mesh, read};
use crate::config::settings::{HOLD_QUEUE_PROXY, HOOK_PORT};
use crate::config::{Config, HoldQueueProxy};

/// queue-proxy's own hook: pkg/networking/constants.go, pkg/queue/constants.go.
const KNATIVE_PORT: u16 = 8022;
const PATH: &str = "/wait-for-drain";
/// The path under which Istio's agent forwards a hook that its injector rewrote:
/// pkg/kube/inject/app_probe.go.
const REWRITTEN: &str = "/app-lifecycle/";

/// Whose a preStop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    Nobody,
    /// Ours already, or Knative's, which ours replaces.
    Drain,
    /// Somebody else's, by its kind.
    Foreign(&'static str),
}

/// A preStop that waits for the release, in the form the API server would give it, so that a second
/// look at the pod finds nothing to change.
fn hook(container: &str, config: &Config) -> Value {
    let path = format!("{PATH}?container={container}");
    json!({"httpGet": {"path": path, "port": config.hook_port, "scheme": "HTTP"}})
}

/// Points the hooks at Tidegate, and says which containers it holds.
pub(super) fn write(after: &mut Value, config: &Config, warnings: &mut Vec<String>) -> Vec<String> {
    let rewrites = mesh::rewritten_probes(after);
    let has_queue = read::container(after, QUEUE_PROXY).is_some();
    let hold_queue = config.hold_queue_proxy != HoldQueueProxy::Never;
    let mut held = Vec::new();
    for container in read::containers_mut(after) {
        let is_queue = read::name(container) == QUEUE_PROXY;
        if !is_queue && !is_users(container) {
            continue;
        }
        let name = read::name(container).to_owned();
        let wanted = match owner(container, config, &rewrites, has_queue) {
            Owner::Drain => true,
            Owner::Nobody => is_queue && hold_queue,
            Owner::Foreign(kind) => {
                if !is_queue || hold_queue {
                    warnings.push(foreign(&name, kind, config));
                }
                false
            }
        };
        if wanted {
            read::object(container, "lifecycle").insert("preStop".into(), hook(&name, config));
            held.push(name);
        }
    }
    if !has_queue && held.is_empty() {
        warnings.push(format!(
            "no container waits for the drain: each gets SIGTERM as soon as the pod is deleted; give it \
             the preStop httpGet {PATH}, port {}",
            config.hook_port
        ));
    }
    held
}

fn foreign(container: &str, kind: &str, config: &Config) -> String {
    let cure = if container == QUEUE_PROXY {
        format!(
            "take it out, or set {} to never",
            HOLD_QUEUE_PROXY.annotation()
        )
    } else {
        format!(
            "call port {} from it: {PATH}?container={container}",
            config.hook_port
        )
    };
    format!(
        "container {container:?} keeps its own preStop ({kind}): it is stopped when that ends, drained or \
         not; {cure}"
    )
}

fn owner(
    container: &Value,
    config: &Config,
    rewrites: &Map<String, Value>,
    has_queue: bool,
) -> Owner {
    let Some(hook) = container["lifecycle"]["preStop"].as_object() else {
        return Owner::Nobody;
    };
    let Some((kind, action)) = hook.iter().find(|(_, action)| !action.is_null()) else {
        return Owner::Nobody;
    };
    match kind.as_str() {
        "httpGet" => {}
        "exec" => return Owner::Foreign("exec"),
        "tcpSocket" => return Owner::Foreign("tcpSocket"),
        "sleep" => return Owner::Foreign("sleep"),
        _ => return Owner::Foreign("of a kind unknown here"),
    }
    let path = path(action);
    let ours = if path.starts_with(REWRITTEN) {
        match rewrites.get(path) {
            Some(original) => waits_for_drain(&original["httpGet"], container, config),
            // Istio has forgotten what it was. Beside queue-proxy it was Knative's, on every user
            // container.
            None => has_queue,
        }
    } else {
        waits_for_drain(action, container, config)
    };
    if ours {
        Owner::Drain
    } else {
        Owner::Foreign("httpGet")
    }
}

fn path(action: &Value) -> &str {
    action["path"].as_str().unwrap_or_default()
}

fn waits_for_drain(action: &Value, container: &Value, config: &Config) -> bool {
    let bare = path(action).split('?').next().unwrap_or_default();
    let port = port(&action["port"], container);
    let default = HOOK_PORT.default.text().parse().ok();
    bare == PATH
        && port.is_some()
        && [Some(KNATIVE_PORT), Some(config.hook_port), default].contains(&port)
}

/// A hook's port: a number, in quotes or not, or the name of one of the container's own.
fn port(port: &Value, container: &Value) -> Option<u16> {
    if let Some(number) = port.as_u64() {
        return u16::try_from(number).ok();
    }
    let text = port.as_str()?;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let named = read::items(&container["ports"]).find(|port| port["name"] == text)?;
    u16::try_from(named["containerPort"].as_u64()?).ok()
}
