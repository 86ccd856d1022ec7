//! What matters of an injected pod, and how two pods differ.

use serde_json::{Map, Value, json};

use super::Kind;

const EXCLUDE: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
const STATUS: &str = "tidegate.dev/status";
const MODE: &str = "TIDEGATE_MODE";

/// What matters of a pod that both webhooks have seen.
pub(super) fn shape(pod: &Value) -> Value {
    let names =
        |list: &str| -> Vec<&Value> { items(&pod["spec"][list]).map(|c| &c["name"]).collect() };
    let annotations = &pod["metadata"]["annotations"];
    let status = annotations[STATUS].as_str().unwrap_or_default();
    json!({
        "initContainers": names("initContainers"),
        "containers": names("containers"),
        "preStop": pre_stops(pod),
        "excludeInboundPorts": annotations[EXCLUDE],
        "not redirected": not_redirected(pod),
        "mode": container(pod, "tidegate").map(|c| env(c, MODE)),
        "grace": pod["spec"]["terminationGracePeriodSeconds"],
        "status": serde_json::from_str::<Value>(status).unwrap_or_default(),
    })
}

/// What it should be, for a pod with Knative's own 300 s.
pub(super) fn expected(kind: Kind) -> Value {
    let drain = "/tidegate drain";
    let user = "18022/wait-for-drain?container=user-container";
    let queue = "18022/wait-for-drain?container=queue-proxy";
    let mut status = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "held": ["user-container", "queue-proxy"],
        "grace": 333,
    });
    let common = json!({
        "excludeInboundPorts": "18022",
        "not redirected": ["15020", "15021", "15090", "18022"],
        "grace": 333,
    });
    let own = match kind {
        Kind::Native => {
            status["mode"] = json!("native");
            status["sidecar"] = json!("native");
            status["istio-proxy"] = json!("kubelet");
            json!({
                "initContainers": ["istio-init", "istio-proxy", "tidegate"],
                "containers": ["user-container", "queue-proxy"],
                "preStop": {"user-container": user, "queue-proxy": queue, "tidegate": drain},
                "mode": "native",
            })
        }
        Kind::Classic | Kind::ClassicLast => {
            status["mode"] = json!("hold");
            status["sidecar"] = json!("regular");
            status["istio-proxy"] = json!("preStop");
            let containers = if kind == Kind::Classic {
                ["istio-proxy", "user-container", "queue-proxy", "tidegate"]
            } else {
                ["user-container", "queue-proxy", "tidegate", "istio-proxy"]
            };
            let wait = "pilot-agent wait --url=http://127.0.0.1:18022/released --timeoutSeconds=333 \
                        --periodMillis=100";
            json!({
                "initContainers": ["istio-init"],
                "containers": containers,
                "preStop": {"user-container": user, "queue-proxy": queue, "tidegate": drain, "istio-proxy": wait},
                "mode": "hold",
            })
        }
    };
    let mut all = Map::new();
    for part in [common, own, json!({"status": status})] {
        all.extend(part.as_object().cloned().unwrap_or_default());
    }
    Value::Object(all)
}

/// Whether the pod has a container of this name.
pub(super) fn has(pod: &Value, name: &str) -> bool {
    container(pod, name).is_some()
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let spec = &pod["spec"];
    items(&spec["initContainers"]).chain(items(&spec["containers"]))
}

fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    all_containers(pod).find(|container| container["name"] == name)
}

fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    let mut entries = items(&container["env"]);
    entries
        .find(|entry| entry["name"] == name)
        .map_or(&Value::Null, |entry| &entry["value"])
}

/// The hook of each container that has one, in a line.
fn pre_stops(pod: &Value) -> Value {
    let mut hooks = Map::new();
    for container in all_containers(pod) {
        let hook = &container["lifecycle"]["preStop"];
        let text = if let Some(get) = hook.get("httpGet") {
            format!(
                "{}{}",
                get["port"],
                get["path"].as_str().unwrap_or_default()
            )
        } else if hook["exec"]["command"].is_array() {
            words(&hook["exec"]["command"]).join(" ")
        } else if hook.is_null() {
            continue;
        } else {
            hook.to_string()
        };
        let name = container["name"].as_str().unwrap_or_default();
        hooks.insert(name.to_owned(), json!(text));
    }
    Value::Object(hooks)
}

/// The ports that istio-init keeps out of Envoy's hands: its argument `-d`, in order.
fn not_redirected(pod: &Value) -> Option<Vec<&str>> {
    let init = container(pod, "istio-init")?;
    let args = init["args"].as_array()?;
    let flag = args.iter().position(|word| word == "-d")?;
    Some(sorted(args.get(flag + 1)?))
}

fn sorted(ports: &Value) -> Vec<&str> {
    let mut ports: Vec<&str> = ports.as_str().unwrap_or_default().split(',').collect();
    ports.sort_unstable();
    ports
}

fn words(list: &Value) -> Vec<&str> {
    items(list).filter_map(Value::as_str).collect()
}

// ===== whole pods =====

/// A pod without what no two pods share.
pub(super) fn without_identity(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(fields) = pod.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        for field in [
            "uid",
            "creationTimestamp",
            "resourceVersion",
            "managedFields",
        ] {
            metadata.remove(field);
        }
    }
    // The service account's token: a volume whose name ends in random letters.
    let volumes = items(&pod["spec"]["volumes"]).filter_map(|volume| volume["name"].as_str());
    let token = volumes
        .into_iter()
        .find(|name| name.starts_with("kube-api-access-"))
        .map(str::to_owned);
    match token {
        Some(token) => {
            let text = pod.to_string().replace(&token, "kube-api-access");
            serde_json::from_str(&text).unwrap_or(pod)
        }
        None => pod,
    }
}

/// A pod without what depends on whose webhook was first: what Istio notes of the containers that it
/// has seen and the hooks that it has rewritten, and the order of istio-init's ports.
pub(super) fn without_order(pod: &Value) -> Value {
    const NOTED: [&str; 2] = ["ISTIO_META_APP_CONTAINERS", "ISTIO_KUBE_APP_PROBERS"];
    let mut pod = without_identity(pod);
    for list in ["initContainers", "containers"] {
        let containers = pod["spec"][list].as_array_mut().into_iter().flatten();
        for container in containers {
            if let Some(entries) = container["env"].as_array_mut() {
                entries.retain(|entry| !NOTED.iter().any(|name| entry["name"] == *name));
            }
            if container["name"] == "istio-init"
                && let Some(args) = container["args"].as_array_mut()
                && let Some(flag) = args.iter().position(|word| word == "-d")
                && let Some(ports) = args.get_mut(flag + 1)
            {
                *ports = json!(sorted(ports));
            }
        }
    }
    pod
}

/// Where two values differ, and how: by JSON pointer, the first's and the second's. Lists of different
/// lengths differ as a whole.
pub(super) fn difference(one: &Value, other: &Value) -> Value {
    let mut found = Map::new();
    compare("", one, other, &mut found);
    Value::Object(found)
}

fn compare(at: &str, one: &Value, other: &Value, found: &mut Map<String, Value>) {
    match (one, other) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = a.keys().chain(b.keys().filter(|key| !a.contains_key(*key)));
            for key in keys {
                compare(&format!("{at}/{key}"), &one[key], &other[key], found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (index, (one, other)) in a.iter().zip(b).enumerate() {
                compare(&format!("{at}/{index}"), one, other, found);
            }
        }
        _ if one != other => {
            found.insert(at.to_owned(), json!([one, other]));
        }
        _ => {}
    }
}
