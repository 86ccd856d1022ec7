//! Tidegate's webhook and Istio's on one pod, in either order.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::inject::{Cluster as Settings, NativeSidecars};

use crate::cluster::Cluster;
use crate::harness::knative_pod;
use crate::installed::Installed;
use crate::istio::{self, Hooks, Istio, Mesh, Redirection, Sidecar};
use crate::netns;
use crate::pods::{checked, container};

const NAMESPACE: &str = "mesh";
/// Sorts before Tidegate's, so that Istio is called first.
const EARLY: &str = "a-istio-sidecar-injector";
const LIMIT: Duration = Duration::from_secs(180);

async fn start(configuration: &str, flags: &[&str]) -> (Cluster, Installed, Istio) {
    let cluster = Cluster::start().await;
    let installed = Installed::start(&cluster, flags).await;
    let labels = json!({"istio-injection": "enabled"});
    cluster.namespace(NAMESPACE, &labels).await;
    let istio = Istio::start(Mesh::new(Sidecar::Classic)).await;
    let configuration = istio::configuration(configuration, &istio.webhook);
    cluster.apply(&configuration).await;
    cluster
        .until_noticed("Istio is called", &pod("probe"), |_| {
            !istio.webhook.take_pods().is_empty()
        })
        .await;
    (cluster, installed, istio)
}

fn pod(name: &str) -> Value {
    let mut pod = knative_pod(name);
    pod["metadata"]["namespace"] = json!(NAMESPACE);
    pod
}

/// Every kind of mesh, and a name for a pod in it.
fn meshes() -> Vec<(String, Mesh)> {
    let mut meshes = Vec::new();
    for sidecar in [Sidecar::Classic, Sidecar::Native] {
        for redirection in [Redirection::Init, Redirection::Cni] {
            for hooks in [Hooks::Kept, Hooks::Rewritten] {
                let name = format!("{sidecar:?}-{redirection:?}-{hooks:?}").to_lowercase();
                let mesh = Mesh {
                    redirection,
                    hooks,
                    ..Mesh::new(sidecar)
                };
                meshes.push((name, mesh));
            }
        }
    }
    meshes
}

fn names(pod: &Value, list: &str) -> Vec<String> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    let names = containers.map(|c| c["name"].as_str().expect("a name").to_owned());
    names.collect()
}

/// Where a drain needs everything to be, whoever was called first.
fn must_drain(name: &str, mesh: &Mesh, settings: &Settings, pod: &Value) {
    let user = container(pod, "user-container").expect("the user's container");
    assert_eq!(
        user["lifecycle"]["preStop"]["httpGet"]["port"], 18022,
        "{name}: {user}"
    );
    let proxy = container(pod, "istio-proxy").expect("Istio's container");
    let wait = proxy["lifecycle"]["preStop"]["exec"]["command"].as_array();
    match mesh.sidecar {
        Sidecar::Classic => assert_eq!(wait.expect("a preStop")[1], "wait", "{name}: {proxy}"),
        Sidecar::Native => assert_eq!(wait, None, "{name}: {proxy}"),
    }
    let excluded = "traffic.sidecar.istio.io/excludeInboundPorts";
    assert_eq!(pod["metadata"]["annotations"][excluded], "18022", "{name}");
    if mesh.redirection == Redirection::Init {
        let init = container(pod, "istio-init").expect("Istio's init container");
        let arguments = init["args"].as_array().expect("a list").iter();
        let ports = arguments.skip_while(|argument| **argument != "-d").nth(1);
        let ports = ports.and_then(Value::as_str).expect("a list of ports");
        assert_eq!(
            ports.split(',').filter(|p| *p == "18022").count(),
            1,
            "{name}"
        );
    }
    match mesh.sidecar {
        Sidecar::Classic => {
            let containers = names(pod, "containers");
            assert!(
                containers.contains(&"tidegate".to_owned()),
                "{containers:?}"
            );
        }
        Sidecar::Native => {
            let last = names(pod, "initContainers").pop();
            assert_eq!(last.as_deref(), Some("tidegate"), "{name}");
        }
    }
    let again = checked(pod, settings).expect("an accepted pod");
    assert_eq!(again.patch, [], "{name}: a second injection changes it");
}

/// Creates a pod in every kind of mesh; Istio must see the sidecar or not, and a drain must work.
async fn every_mesh_drains(
    configuration: &str,
    flags: &[&str],
    settings: &Settings,
    seen_by_istio: bool,
) {
    let (cluster, installed, istio) = start(configuration, flags).await;
    for (name, mesh) in meshes() {
        istio.set(mesh);
        istio.webhook.take_pods();
        let reviews = installed.reviews().await;
        let created = cluster.create(&pod(&name)).await.json();
        // Again after Istio, or where Istio came first, after the API server has mounted the
        // ServiceAccount's token in the container that was added.
        let reviews = installed.reviews().await - reviews;
        assert_eq!(reviews, 2, "{name}: not called twice");
        let [seen] = &istio.webhook.take_pods()[..] else {
            panic!("{name}: Istio is called once a pod");
        };
        let is_seen = container(seen, "tidegate").is_some();
        assert_eq!(is_seen, seen_by_istio, "{name}");
        must_drain(&name, &mesh, settings, &created);
    }
}

#[test]
fn tidegate_is_called_before_istio_and_again_after_it() {
    let name = "mesh::tidegate_is_called_before_istio_and_again_after_it";
    netns::test_within(LIMIT, name, || async {
        every_mesh_drains(istio::CONFIGURATION, &[], &Settings::default(), true).await;
    });
}

#[test]
fn istios_place_decides_against_the_clusters_setting() {
    let name = "mesh::istios_place_decides_against_the_clusters_setting";
    netns::test_within(LIMIT, name, || async {
        let settings = Settings {
            native_sidecars: NativeSidecars::True,
            ..Settings::default()
        };
        let flags = ["--native-sidecars", "true"];
        every_mesh_drains(istio::CONFIGURATION, &flags, &settings, true).await;
    });
}

#[test]
fn tidegate_can_come_after_istio_alone() {
    let name = "mesh::tidegate_can_come_after_istio_alone";
    netns::test_within(LIMIT, name, || async {
        every_mesh_drains(EARLY, &[], &Settings::default(), false).await;
    });
}
