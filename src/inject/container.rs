//! The sidecar's container: what it must be, and its place in the pod.

use serde_json::{Map, Value, json};

use super::mesh::ISTIO_PROXY;
use super::settings::Computed;
use super::{CONTAINER, Cluster, Plan, RunAs, gate, read};
use crate::config::settings::{SETTINGS, Setting, UsedBy};
use crate::config::{Config, Gate};

/// What an image is called that somebody else is to name: Istio's word for it, too.
const ANY_IMAGE: &str = "auto";

/// What the container follows from.
pub(super) struct Own<'a> {
    pub(super) plan: &'a Plan,
    pub(super) computed: &'a Computed,
    pub(super) config: &'a Config,
    pub(super) cluster: &'a Cluster,
}

/// Puts the container into the pod. One that is there already keeps its image, its resources and all
/// that is not said here.
pub(super) fn write(after: &mut Value, own: &Own<'_>, warnings: &mut Vec<String>) {
    let plan = own.plan;
    let ports = gate::declared(after, own.config);
    let certificate = gate::certificate(after, own.config);
    let mut container = take(after).unwrap_or_else(|| json!({"name": CONTAINER}));
    render(&mut container, own, warnings);
    if !ports.is_empty() {
        container["ports"] = Value::Array(ports);
    }
    if let Some(mount) = certificate {
        let mounts = read::list(&mut container, "volumeMounts");
        mounts.retain(|it| it["mountPath"] != mount["mountPath"]);
        mounts.push(mount);
    }
    place(after, container, plan.native);
    let ends = after["spec"]["restartPolicy"].as_str().unwrap_or("Always") != "Always";
    if ends && !plan.native {
        warnings.push(
            "a pod that is to end by itself (restartPolicy is not Always) does not while a regular sidecar \
             runs; use native sidecars"
                .into(),
        );
    }
}

// ===== what it is =====

fn render(container: &mut Value, own: &Own<'_>, warnings: &mut Vec<String>) {
    let Own {
        plan,
        computed,
        config,
        cluster,
    } = own;
    if container["image"]
        .as_str()
        .is_none_or(|i| i.is_empty() || i == ANY_IMAGE)
    {
        container["image"] = json!(cluster.image);
    }
    let runs = container["args"][0] == "run" || container["command"].is_array();
    if !runs {
        container["args"] = json!(["run"]);
    }
    if plan.native {
        container["restartPolicy"] = json!("Always");
    } else if let Some(fields) = container.as_object_mut() {
        // Of a regular container, the API server takes none.
        fields.shift_remove("restartPolicy");
    }
    env(read::list(container, "env"), computed);
    if container["resources"].as_object().is_none_or(Map::is_empty) {
        // In the API server's own spelling. The owner's wins.
        container["resources"] = match config.gate {
            Gate::Off => json!({
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"cpu": "250m", "memory": "64Mi"},
            }),
            // All requests go through it: as for queue-proxy, a limit of CPU would be one of theirs.
            Gate::Http | Gate::Tcp => json!({
                "requests": {"cpu": "25m", "memory": "32Mi"},
                "limits": {"memory": "256Mi"},
            }),
        };
    }
    // exec, since Istio rewrites the others.
    let pre_stop = json!({"exec": {"command": ["/tidegate", "drain"]}});
    read::object(container, "lifecycle").insert("preStop".into(), pre_stop);
    probes(container, warnings);
    security(read::object(container, "securityContext"), cluster);
}

/// A variable for each setting: what injection found out as a literal, everything else from the pod's
/// annotations. A literal that somebody wrote by hand stays.
fn env(list: &mut Vec<Value>, computed: &Computed) {
    for setting in SETTINGS.iter().filter(|s| s.used_by == UsedBy::Run) {
        let variable = setting.environment();
        let there = list
            .iter()
            .position(|entry| entry["name"] == variable.as_str());
        let literal = computed.value(setting).flatten();
        let entry = match literal {
            Some(value) => json!({"name": variable, "value": value}),
            None if there.is_some() => continue,
            None => json!({"name": variable, "valueFrom": from_annotation(setting)}),
        };
        match there {
            Some(index) => list[index] = entry,
            None => list.push(entry),
        }
    }
}

/// With its apiVersion, as the API server writes it, so that a second look finds nothing to change.
fn from_annotation(setting: &Setting) -> Value {
    let path = format!("metadata.annotations['{}']", setting.annotation());
    json!({"fieldRef": {"apiVersion": "v1", "fieldPath": path}})
}

fn probes(container: &mut Value, warnings: &mut Vec<String>) {
    // No startup probe: a native sidecar's holds the pod's own containers back until the kubelet's
    // next round, up to a second of every cold start, and Tidegate listens 20 ms after its start.
    // The kubelet runs this one as soon as the container has started, then by its period.
    container["readinessProbe"] = json!({
        "exec": {"command": ["/tidegate", "probe", "ready"]},
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "successThreshold": 1,
        "failureThreshold": 3,
    });
    // No liveness probe, ever: when one fails the kubelet runs the container's preStop and stops it,
    // and that preStop is what says that the pod is going. A pod that stays would drain.
    if let Some(fields) = container.as_object_mut()
        && fields
            .shift_remove("livenessProbe")
            .is_some_and(|probe| !probe.is_null())
    {
        warnings.push(format!(
            "container {CONTAINER:?} loses its livenessProbe: a failure would run its preStop, and drain a \
             pod that stays"
        ));
    }
}

fn security(context: &mut Map<String, Value>, cluster: &Cluster) {
    let mut set = |field: &str, value: Value| context.insert(field.to_owned(), value);
    set("runAsNonRoot", json!(true));
    if let RunAs::Id(id) = cluster.run_as {
        // Said even where the pod says it: the pod's may be 1337, istio-proxy's.
        set("runAsUser", json!(id));
        set("runAsGroup", json!(id));
    }
    set("allowPrivilegeEscalation", json!(false));
    set("readOnlyRootFilesystem", json!(true));
    set("capabilities", json!({"drop": ["ALL"]}));
    set("seccompProfile", json!({"type": "RuntimeDefault"}));
}

// ===== where it is =====

/// Takes the container out of the pod.
fn take(after: &mut Value) -> Option<Value> {
    let mut found = None;
    for list in ["containers", "initContainers"] {
        let Some(containers) = read::list_mut(after, list) else {
            continue;
        };
        let before = containers.len();
        // All of them: two of one name no API server takes, but one in each list can be meant.
        while let Some(index) = containers.iter().position(|c| read::name(c) == CONTAINER) {
            let container = containers.remove(index);
            found = found.or(Some(container));
        }
        if list == "initContainers"
            && containers.is_empty()
            && before > 0
            && let Some(spec) = after["spec"].as_object_mut()
        {
            // It was made for this container alone.
            spec.shift_remove(list);
        }
    }
    found
}

/// A native sidecar goes last, so that it is stopped first, right after the workload. A regular one goes
/// last, too, but before an istio-proxy that is last, where it stands as well if Tidegate comes before
/// Istio.
fn place(after: &mut Value, container: Value, native: bool) {
    let list = if native {
        "initContainers"
    } else {
        "containers"
    };
    let containers = read::list(&mut after["spec"], list);
    let before_proxy = !native
        && containers
            .last()
            .is_some_and(|c| read::name(c) == ISTIO_PROXY);
    containers.insert(containers.len() - usize::from(before_proxy), container);
}
