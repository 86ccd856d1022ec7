//! Lays a part of istio-proxy that a pod brings over the template's: webhook.go,
//! reapplyOverwrittenContainers.

use serde_json::{Map, Value};

/// The lists that are merged item by item, and what identifies an item; all others are replaced whole.
const KEYED: [(&str, &str); 3] = [
    ("env", "name"),
    ("ports", "containerPort"),
    ("volumeMounts", "mountPath"),
];

/// The template with the pod's own part on top: what the pod says wins. An image `auto` says nothing.
pub(super) fn overlay(template: Value, mut own: Value) -> Value {
    if let Some(fields) = own.as_object_mut()
        && fields.get("image").is_some_and(|image| image == "auto")
    {
        fields.shift_remove("image");
    }
    merge("", template, own)
}

fn merge(field: &str, below: Value, above: Value) -> Value {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => Value::Object(objects(below, above)),
        (Value::Array(below), Value::Array(above)) => {
            match KEYED.iter().find(|(name, _)| *name == field) {
                Some((_, key)) => Value::Array(lists(key, below, above)),
                None => Value::Array(above),
            }
        }
        (_, above) => above,
    }
}

fn objects(mut below: Map<String, Value>, above: Map<String, Value>) -> Map<String, Value> {
    for (field, value) in above {
        let merged = match below.shift_remove(&field) {
            Some(old) => merge(&field, old, value),
            None => value,
        };
        below.insert(field, merged);
    }
    below
}

fn lists(key: &str, mut below: Vec<Value>, above: Vec<Value>) -> Vec<Value> {
    for item in above {
        match below.iter_mut().find(|old| old[key] == item[key]) {
            Some(old) => *old = item,
            None => below.push(item),
        }
    }
    below
}
