//! Where the pods are in the objects of Kubernetes.

use serde_json::Value;

use crate::config::Mode;
use crate::inject::patch::{Op, diff};
use crate::inject::{
    Cluster, Injection, Refusal, annotate_template, inject as inject_pod, shown_mode,
};

/// How deep lists may lie in lists.
const DEPTH: usize = 8;

/// What injection made of an object.
pub(super) struct Injected {
    /// The object afterwards, where it changed.
    pub(super) after: Option<Value>,
    pub(super) patch: Vec<Op>,
    /// Each with the object's kind and name.
    pub(super) warnings: Vec<String>,
}

/// Whose template a pod comes from.
#[derive(Clone, Copy)]
enum Template {
    /// Kubernetes' own: the pod itself.
    Pod,
    /// Knative's, of which it makes the pod.
    Knative,
}

/// Injects all pods of an object. One that has none stays as it is.
///
/// # Errors
///
/// Every pod that cannot have the sidecar, with its object's kind and name.
pub(super) fn inject(
    object: &Value,
    cluster: &Cluster,
) -> Result<Injected, Vec<(String, Refusal)>> {
    let mut after = object.clone();
    let mut warnings = Vec::new();
    let mut refused = Vec::new();
    walk(&mut after, 0, &mut |name, template, pod| {
        let result = match template {
            Template::Pod => inject_pod(pod, cluster),
            Template::Knative => annotate_template(pod, cluster),
        };
        match result {
            Ok(injection) => {
                let notes = injection.warnings.iter().cloned();
                let notes = notes.chain(late_proxy(&injection, template));
                warnings.extend(notes.map(|note| format!("{name}: warning: {note}")));
                if !injection.patch.is_empty() {
                    *pod = injection.pod;
                }
            }
            Err(refusal) => refused.push((name, refusal)),
        }
    });
    if !refused.is_empty() {
        return Err(refused);
    }
    let patch = diff(object, &after);
    Ok(Injected {
        after: (!patch.is_empty()).then_some(after),
        patch,
        warnings,
    })
}

/// In a file nobody looks at the pod again once Istio has added its sidecar.
fn late_proxy(injection: &Injection, template: Template) -> Option<String> {
    let undecided = matches!(template, Template::Pod)
        && injection.skipped.is_none()
        && shown_mode(&injection.pod) == Some(Mode::Auto.name());
    undecided.then(|| {
        "there is no istio-proxy yet, so nothing holds one: unless the webhook runs in the cluster, add \
         {name: istio-proxy, image: auto} to the containers and inject again; outside the mesh, label it \
         sidecar.istio.io/inject: \"false\""
            .to_owned()
    })
}

/// `Deployment shop/cart`, as far as the object says.
pub(super) fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]);
    let metadata = &object["metadata"];
    let own = match text(&metadata["name"]) {
        own if own.is_empty() => text(&metadata["generateName"]),
        own => own,
    };
    let full = match text(&metadata["namespace"]) {
        namespace if namespace.is_empty() => own,
        namespace => format!("{namespace}/{own}"),
    };
    format!("{kind} {full}").trim().to_owned()
}

fn walk(object: &mut Value, depth: usize, visit: &mut dyn FnMut(String, Template, &mut Value)) {
    let is_list = object["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    if is_list && depth < DEPTH {
        let items = object.get_mut("items").and_then(Value::as_array_mut);
        for item in items.into_iter().flatten() {
            walk(item, depth + 1, visit);
        }
        return;
    }
    let Some((pointer, template)) = place(object) else {
        return;
    };
    let name = name(object);
    if let Some(pod) = object.pointer_mut(pointer) {
        visit(name, template, pod);
    }
}

/// Where an object keeps its pod, as a JSON pointer.
fn place(object: &Value) -> Option<(&'static str, Template)> {
    let group = object["apiVersion"]
        .as_str()?
        .split_once('/')
        .map_or("", |(group, _)| group);
    Some(match (group, object["kind"].as_str()?) {
        ("", "Pod") => ("", Template::Pod),
        ("", "PodTemplate") => ("/template", Template::Pod),
        ("", "ReplicationController")
        | ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
        | ("batch", "Job") => ("/spec/template", Template::Pod),
        ("batch", "CronJob") => ("/spec/jobTemplate/spec/template", Template::Pod),
        ("serving.knative.dev", "Service" | "Configuration") => {
            ("/spec/template", Template::Knative)
        }
        ("serving.knative.dev", "Revision") => ("", Template::Knative),
        _ => return None,
    })
}
