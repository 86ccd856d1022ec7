//! docs/by-hand.md: its pods are what injection makes of their bare twins.

use serde_json::Value;
use tidegate::inject::{Cluster, RunAs, inject, yaml};

const PAGE: &str = include_str!("../../docs/by-hand.md");
const IMAGE: &str = "registry.example.com/tidegate:0.1.0";

/// The YAML that follows a heading, taken out of its fences.
fn documented(heading: &str) -> Value {
    let (_, section) = PAGE
        .split_once(&format!("\n## {heading}\n"))
        .unwrap_or_else(|| panic!("no section {heading:?}"));
    let section = section.split("\n## ").next().unwrap();
    let (_, block) = section.split_once("```yaml\n").expect("a YAML block");
    let block = block.split("```").next().unwrap();
    yaml::parse(block).unwrap_or_else(|error| panic!("{heading}: {error}"))
}

/// The documented template before anybody added anything of Tidegate's.
fn bare(template: &Value) -> Value {
    let mut bare = template.clone();
    let annotations = bare["metadata"]["annotations"].as_object_mut().unwrap();
    let added = ["traffic.sidecar.istio.io/", "sidecar.istio.io/stats"];
    annotations.retain(|name, _| !added.iter().any(|prefix| name.starts_with(prefix)));
    let spec = bare["spec"].as_object_mut().unwrap();
    spec["terminationGracePeriodSeconds"] = 300.into();
    spec.shift_remove("initContainers");
    let containers = spec["containers"].as_array_mut().unwrap();
    containers.retain(|container| container["name"] != "tidegate");
    for container in containers {
        let fields = container.as_object_mut().unwrap();
        let lifecycle = fields.shift_remove("lifecycle");
        if lifecycle.is_some_and(|lifecycle| lifecycle["preStop"]["httpGet"].is_object()) {
            let hook = serde_json::json!({"preStop": {"httpGet": {"path": "/wait-for-drain", "port": 8022}}});
            fields.insert("lifecycle".into(), hook);
        }
    }
    bare
}

fn compare(heading: &str, run_as: RunAs) {
    let wanted = documented(heading);
    let cluster = Cluster {
        image: IMAGE.into(),
        run_as,
        ..Cluster::default()
    };
    let bare = bare(&wanted);
    let injection = inject(&bare, &cluster).unwrap();
    assert_ne!(injection.pod, bare);
    let mut made = injection.pod;
    // What is written by hand was made by no injection.
    made["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .shift_remove("tidegate.dev/status");
    assert_eq!(
        made,
        wanted,
        "docs/by-hand.md, {heading}; it should be:\n{}",
        yaml::print(&made).unwrap()
    );
    // And the webhook finds nothing to do but to say that it was there.
    let again = inject(&wanted, &cluster).unwrap();
    assert_eq!(again.patch.len(), 1, "{:?}", again.patch);
}

#[test]
fn the_classic_pod() {
    compare("A classic istio-proxy", RunAs::Id(65532));
}

#[test]
fn the_native_pod() {
    compare("A native istio-proxy", RunAs::Id(65532));
}

#[test]
fn the_pod_on_openshift() {
    compare("OpenShift Service Mesh", RunAs::Platform);
}
