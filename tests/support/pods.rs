//! The fixture pods, and what must hold of every injected pod.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate::inject::patch::Op;
use tidegate::inject::{Cluster, Injection, Refusal, inject, yaml};

/// `tests/fixtures/pods`.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pods")
}

/// All fixtures, by name.
pub(crate) fn all() -> Vec<(String, Value)> {
    let mut pods: Vec<_> = std::fs::read_dir(directory())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name.clone(), read(&name))
        })
        .collect();
    pods.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert!(pods.len() > 30, "where are the fixtures?");
    pods
}

/// One fixture.
pub(crate) fn read(name: &str) -> Value {
    let path = directory().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    yaml::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Injects, and checks all that must hold whatever the pod.
pub(crate) fn checked(pod: &Value, cluster: &Cluster) -> Result<Injection, Refusal> {
    let once = inject(pod, cluster)?;
    assert_eq!(
        apply(pod, &once.patch),
        once.pod,
        "the patch leads elsewhere"
    );
    let twice = inject(&once.pod, cluster).expect("an injected pod is not refused");
    assert_eq!(twice.patch, [], "a second injection changes it");
    assert_eq!(twice.pod, once.pod);
    assert_eq!(twice.skipped, once.skipped);
    no_doubles(&once.pod);
    Ok(once)
}

/// Another implementation's idea of what the patch does.
pub(crate) fn apply(before: &Value, patch: &[Op]) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(patch).unwrap()).unwrap();
    let mut after = before.clone();
    json_patch::patch(&mut after, &patch).unwrap();
    after
}

pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

/// The container of this name, wherever it is.
pub(crate) fn container<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    containers(pod).find(|container| container["name"] == name)
}

/// What the API server would refuse.
fn no_doubles(pod: &Value) {
    unique("container", containers(pod).map(|c| c["name"].to_string()));
    let ports = containers(pod).flat_map(|c| c["ports"].as_array().into_iter().flatten());
    unique(
        "port",
        ports.map(|p| format!("{} {}", p["containerPort"], p["protocol"])),
    );
    for container in containers(pod) {
        let env = container["env"].as_array().into_iter().flatten();
        unique("variable", env.map(|entry| entry["name"].to_string()));
    }
}

fn unique(what: &str, names: impl Iterator<Item = String>) {
    let mut seen = HashSet::new();
    for name in names {
        assert!(seen.insert(name.clone()), "two of {what} {name}");
    }
}
