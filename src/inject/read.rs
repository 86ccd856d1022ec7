//! Reads a pod's JSON: checks once that it is shaped like a pod, then looks things up in it.

use serde_json::{Map, Value};

use super::Refusal;

/// Lists of containers, by their name in the pod's spec.
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// That all which injection reads and writes has the type it should have. What is absent or null is
/// fine, except for the containers themselves.
///
/// # Errors
///
/// The first place that is not.
pub(super) fn check(pod: &Value) -> Result<(), Refusal> {
    check_metadata(pod)?;
    let malformed = |at: &str, problem| {
        Err(Refusal::Malformed {
            at: at.to_owned(),
            problem,
        })
    };
    if !pod["spec"]["containers"].is_array() {
        return malformed("/spec/containers", "not a list; a pod has containers");
    }
    let seconds = &pod["spec"]["terminationGracePeriodSeconds"];
    if !seconds.is_null() && !seconds.is_u64() {
        return malformed(
            "/spec/terminationGracePeriodSeconds",
            "not a whole number of seconds; write one, without quotes",
        );
    }
    if !is_object(&pod["spec"]["securityContext"]) {
        return malformed("/spec/securityContext", "not an object; make it one");
    }
    for list in LISTS {
        check_list(pod, list)?;
    }
    Ok(())
}

/// That it is a pod or a pod's template, with labels and annotations of texts.
///
/// # Errors
///
/// The first place that is not.
pub(super) fn check_metadata(pod: &Value) -> Result<(), Refusal> {
    let malformed = |at: &str, problem| {
        Err(Refusal::Malformed {
            at: at.to_owned(),
            problem,
        })
    };
    if !pod.is_object() {
        return malformed("/", "not an object; give a pod, or a pod template");
    }
    if !pod["spec"].is_object() {
        return malformed("/spec", "not an object; give a pod, or a pod template");
    }
    if !is_object(&pod["metadata"]) {
        return malformed("/metadata", "not an object; make it one");
    }
    for kind in ["labels", "annotations"] {
        let Some(texts) = pod["metadata"][kind].as_object() else {
            if pod["metadata"][kind].is_null() {
                continue;
            }
            return malformed(&format!("/metadata/{kind}"), "not an object; make it one");
        };
        if let Some((name, _)) = texts.iter().find(|(_, value)| !value.is_string()) {
            return malformed(
                &format!("/metadata/{kind}/{name}"),
                "not a string; put its value in quotes",
            );
        }
    }
    Ok(())
}

fn check_list(pod: &Value, list: &str) -> Result<(), Refusal> {
    let containers = &pod["spec"][list];
    if !is_list(containers) {
        return Err(Refusal::Malformed {
            at: format!("/spec/{list}"),
            problem: "not a list; make it one",
        });
    }
    for (index, container) in items(containers).enumerate() {
        let malformed = |field: &str, problem| {
            Err(Refusal::Malformed {
                at: format!("/spec/{list}/{index}{field}"),
                problem,
            })
        };
        if !container["name"].is_string() {
            return malformed("", "not an object with a name; name the container");
        }
        for field in ["lifecycle", "securityContext", "resources"] {
            if !is_object(&container[field]) {
                return malformed(&format!("/{field}"), "not an object; make it one");
            }
        }
        for field in ["env", "ports", "args", "command", "volumeMounts"] {
            if !is_list(&container[field]) {
                return malformed(&format!("/{field}"), "not a list; make it one");
            }
        }
        for field in ["env", "ports"] {
            if !items(&container[field]).all(Value::is_object) {
                return malformed(&format!("/{field}"), "holds what is not an object");
            }
        }
    }
    Ok(())
}

fn is_object(value: &Value) -> bool {
    value.is_null() || value.is_object()
}

fn is_list(value: &Value) -> bool {
    value.is_null() || value.is_array()
}

// ===== looking things up =====

pub(super) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"].get(name)?.as_str()
}

pub(super) fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["labels"].get(name)?.as_str()
}

pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["containers"])
}

pub(super) fn init_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    items(&pod["spec"]["initContainers"])
}

pub(super) fn all_containers(pod: &Value) -> impl Iterator<Item = &Value> {
    init_containers(pod).chain(containers(pod))
}

/// A regular container by name.
pub(super) fn container<'a>(pod: &'a Value, wanted: &str) -> Option<&'a Value> {
    containers(pod).find(|container| name(container) == wanted)
}

pub(super) fn name(container: &Value) -> &str {
    container["name"].as_str().unwrap_or_default()
}

/// Whether an init container is a native sidecar.
pub(super) fn restarts(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// The literal value of an environment variable.
pub(super) fn env<'a>(container: &'a Value, variable: &str) -> Option<&'a str> {
    items(&container["env"]).find(|entry| entry["name"] == variable)?["value"].as_str()
}

/// The TCP ports that a container declares.
pub(super) fn tcp_ports(container: &Value) -> impl Iterator<Item = u16> {
    items(&container["ports"])
        .filter(|port| port["protocol"].as_str().unwrap_or("TCP") == "TCP")
        .filter_map(|port| u16::try_from(port["containerPort"].as_u64()?).ok())
}

/// A list's items; none where there is no list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

// ===== changing =====

/// The object under a key, made where there is none.
pub(super) fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    if !parent[key].is_object() {
        parent[key] = Value::Object(Map::new());
    }
    parent[key].as_object_mut().expect("it was just made one")
}

/// The list under a key, made where there is none.
pub(super) fn list<'a>(parent: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    if !parent[key].is_array() {
        parent[key] = Value::Array(Vec::new());
    }
    parent[key].as_array_mut().expect("it was just made one")
}

pub(super) fn set_annotation(pod: &mut Value, name: &str, value: String) {
    object(&mut pod["metadata"], "annotations").insert(name.to_owned(), Value::String(value));
}

/// A list of containers, to change; `None` where there is none. Indexing would leave a null there.
pub(super) fn list_mut<'a>(pod: &'a mut Value, list: &str) -> Option<&'a mut Vec<Value>> {
    pod.get_mut("spec")?.get_mut(list)?.as_array_mut()
}

/// The regular containers, to change.
pub(super) fn containers_mut(pod: &mut Value) -> impl Iterator<Item = &mut Value> {
    list_mut(pod, "containers").into_iter().flatten()
}
