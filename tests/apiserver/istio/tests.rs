//! The stand-in against what Istio's injector is known to do.

use serde_json::{Value, json};

use super::probes::ORIGINALS;
use super::{Hooks, Mesh, Redirection, Sidecar, inject};
use crate::harness::knative_pod;

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    let names = containers.map(|c| c["name"].as_str().expect("a name").to_owned());
    names.collect()
}

fn container<'a>(pod: &'a Value, list: &str, name: &str) -> &'a Value {
    let mut containers = pod["spec"][list].as_array().expect("a list").iter();
    let container = containers.find(|c| c["name"] == name);
    container.unwrap_or_else(|| panic!("{list} has no {name}"))
}

fn originals(proxy: &Value) -> Value {
    let variables = proxy["env"].as_array().expect("a list");
    let originals = variables.iter().find(|v| v["name"] == ORIGINALS);
    let originals = originals.expect("the variable")["value"].as_str();
    serde_json::from_str(originals.expect("a text")).expect("JSON")
}

fn redirection(pod: &Value) -> &Value {
    &container(pod, "initContainers", "istio-init")["args"]
}

#[test]
fn a_classic_sidecar_comes_last_and_gets_the_hooks() {
    let pod = inject(&knative_pod("a"), &Mesh::new(Sidecar::Classic));
    assert_eq!(
        names(&pod, "containers"),
        ["user-container", "queue-proxy", "istio-proxy"]
    );
    assert_eq!(names(&pod, "initContainers"), ["istio-init"]);
    let user = container(&pod, "containers", "user-container");
    let path = "/app-lifecycle/user-container/prestopz";
    assert_eq!(
        user["lifecycle"]["preStop"],
        json!({"httpGet": {"path": path, "port": 15020, "scheme": "HTTP"}})
    );
    let proxy = container(&pod, "containers", "istio-proxy");
    assert_eq!(
        originals(proxy)[path],
        json!({"httpGet": {"path": "/wait-for-drain", "port": 8022}})
    );
    assert!(proxy.get("lifecycle").is_none());
}

#[test]
fn a_native_sidecar_comes_before_other_init_containers_and_drains() {
    let mut pod = knative_pod("a");
    pod["spec"]["initContainers"] = json!([{"name": "other", "image": "other"}]);
    let pod = inject(&pod, &Mesh::new(Sidecar::Native));
    assert_eq!(
        names(&pod, "initContainers"),
        ["istio-init", "istio-proxy", "other"]
    );
    let proxy = container(&pod, "initContainers", "istio-proxy");
    assert_eq!(proxy["restartPolicy"], "Always");
    let command = &proxy["lifecycle"]["preStop"]["exec"]["command"];
    assert_eq!(command[4], "drain");
}

#[test]
fn old_versions_keep_the_hooks_but_not_the_probes() {
    let mesh = Mesh {
        hooks: Hooks::Kept,
        ..Mesh::new(Sidecar::Classic)
    };
    let before = knative_pod("a");
    let pod = inject(&before, &mesh);
    assert_eq!(
        container(&pod, "containers", "user-container"),
        container(&before, "containers", "user-container")
    );
    let queue = container(&pod, "containers", "queue-proxy");
    assert_eq!(queue["readinessProbe"]["httpGet"]["port"], 15020);
}

#[test]
fn the_annotation_replaces_the_excluded_ports_of_the_mesh() {
    let mesh = Mesh {
        excluded_inbound_ports: "8444,9090",
        ..Mesh::new(Sidecar::Classic)
    };
    let mut pod = knative_pod("a");
    let injected = inject(&pod, &mesh);
    assert_eq!(redirection(&injected)[15], "-d");
    assert_eq!(redirection(&injected)[16], "15090,15021,8444,9090,15020");
    pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] = json!("18022");
    let injected = inject(&pod, &mesh);
    assert_eq!(redirection(&injected)[16], "15090,15021,18022,15020");
}

#[test]
fn a_node_that_redirects_needs_no_istio_init() {
    let mesh = Mesh {
        redirection: Redirection::Cni,
        ..Mesh::new(Sidecar::Native)
    };
    let pod = inject(&knative_pod("a"), &mesh);
    assert_eq!(
        names(&pod, "initContainers"),
        ["istio-validation", "istio-proxy"]
    );
}

#[test]
fn a_part_of_istio_proxy_is_laid_over_the_template() {
    let mut pod = knative_pod("a");
    let own = json!({
        "name": "istio-proxy",
        "image": "auto",
        "env": [{"name": "OWN", "value": "1"}],
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "9"]}}},
    });
    let containers = pod["spec"]["containers"].as_array_mut();
    containers.expect("a list").insert(0, own);
    let pod = inject(&pod, &Mesh::new(Sidecar::Native));
    assert_eq!(names(&pod, "containers"), ["user-container", "queue-proxy"]);
    let proxy = container(&pod, "initContainers", "istio-proxy");
    assert_eq!(proxy["image"], super::IMAGE);
    let command = &proxy["lifecycle"]["preStop"]["exec"]["command"];
    assert_eq!(*command, json!(["sleep", "9"]));
    let variables = proxy["env"].as_array().expect("a list");
    assert!(variables.iter().any(|v| v["name"] == "OWN"));
    assert!(variables.iter().any(|v| v["name"] == "PROXY_CONFIG"));
}

#[test]
fn an_application_that_is_held_comes_after_istio_proxy() {
    let mut pod = knative_pod("a");
    pod["metadata"]["annotations"]["proxy.istio.io/config"] =
        json!("{ \"holdApplicationUntilProxyStarts\": true }");
    let pod = inject(&pod, &Mesh::new(Sidecar::Classic));
    assert_eq!(names(&pod, "containers")[0], "istio-proxy");
    let proxy = container(&pod, "containers", "istio-proxy");
    let command = &proxy["lifecycle"]["postStart"]["exec"]["command"];
    assert_eq!(*command, json!(["pilot-agent", "wait"]));
}

#[test]
fn what_is_injected_stays_as_it_is() {
    let mesh = Mesh::new(Sidecar::Native);
    let once = inject(&knative_pod("a"), &mesh);
    assert_eq!(inject(&once, &mesh), once);
}
