//! Tests of the harness: that the API server is a real one, and that webhooks are called by it.

use serde_json::{Value, json};

use crate::admission::{Mutated, Webhook};
use crate::cluster::Cluster;
use crate::istio::{self, Istio, Mesh, Sidecar};
use crate::netns;

/// A pod of Knative 1.21, as its Deployment's ReplicaSet would create it.
pub(crate) fn knative_pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"app": name, "serving.knative.dev/revisionUID": "0f1e2d3c"},
            "annotations": {"serving.knative.dev/creator": "tests"},
        },
        "spec": {
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 300,
            "containers": [
                {
                    "name": "user-container",
                    "image": "ghcr.io/example/app",
                    "env": [{"name": "PORT", "value": "8080"}],
                    "lifecycle": {"preStop": {"httpGet": {"path": "/wait-for-drain", "port": 8022}}},
                    "ports": [{"containerPort": 8080, "name": "user-port"}],
                },
                {
                    "name": "queue-proxy",
                    "image": "gcr.io/knative-releases/queue",
                    "env": [{"name": "QUEUE_SERVING_PORT", "value": "8012"}],
                    "ports": [{"containerPort": 8012, "name": "queue-port"}],
                    "readinessProbe": {"httpGet": {
                        "port": 8012,
                        "httpHeaders": [{"name": "K-Network-Probe", "value": "queue"}],
                    }},
                },
            ],
        },
    })
}

#[test]
fn the_api_server_judges_pods() {
    netns::test("harness::the_api_server_judges_pods", || async {
        let cluster = Cluster::start().await;
        cluster.namespace("apps", &json!({})).await;
        let mut pod = knative_pod("timeout");
        pod["metadata"]["namespace"] = json!("apps");

        let would_be = cluster.dry_run(&pod).await.json();
        let scheme = "/spec/containers/0/lifecycle/preStop/httpGet/scheme";
        assert_eq!(would_be.pointer(scheme), Some(&json!("HTTP")));
        let get = ["get", "pods", "--namespace", "apps", "-o", "name"];
        assert_eq!(cluster.kubectl(&get).await.stdout(), "");

        cluster.create(&pod).await.json();
        assert_eq!(cluster.kubectl(&get).await.stdout(), "pod/timeout\n");

        pod["spec"]["containers"][0]["ports"][0]["name"] = json!("not_a_name");
        pod["metadata"]["name"] = json!("broken");
        let refused = cluster.create(&pod).await.failure();
        assert!(
            refused.contains("spec.containers[0].ports[0].name"),
            "{refused}"
        );
    });
}

#[test]
fn a_webhook_changes_pods_and_warns() {
    netns::test("harness::a_webhook_changes_pods_and_warns", || async {
        let cluster = Cluster::start().await;
        cluster.namespace("apps", &json!({})).await;
        let webhook = Webhook::start(|pod| {
            let mut pod = pod.clone();
            pod["metadata"]["labels"]["seen"] = json!("yes");
            Mutated {
                pod,
                warnings: vec!["this pod was seen".to_owned()],
            }
        });
        let webhook = webhook.await;
        cluster
            .apply(&json!({
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": "MutatingWebhookConfiguration",
                "metadata": {"name": "seer"},
                "webhooks": [{
                    "name": "seer.tidegate.dev",
                    "clientConfig": webhook.client_config(),
                    "rules": [{
                        "operations": ["CREATE"],
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "resources": ["pods"],
                    }],
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }],
            }))
            .await;
        let mut pod = knative_pod("seen");
        pod["metadata"]["namespace"] = json!("apps");
        let warned = "a webhook's warning is printed";
        cluster
            .until_noticed(warned, &pod, |outcome| !outcome.warnings().is_empty())
            .await;

        webhook.take_pods();
        let outcome = cluster.create(&pod).await;
        assert_eq!(outcome.warnings(), ["this pod was seen"]);
        assert_eq!(outcome.json()["metadata"]["labels"]["seen"], "yes");
        assert_eq!(webhook.take_pods().len(), 1);
    });
}

#[test]
fn the_api_server_takes_what_istio_makes() {
    netns::test("harness::the_api_server_takes_what_istio_makes", || async {
        let cluster = Cluster::start().await;
        let labels = json!({"istio-injection": "enabled"});
        cluster.namespace("mesh", &labels).await;
        cluster.namespace("apps", &json!({})).await;
        let webhook = Istio::start(Mesh::new(Sidecar::Native)).await.webhook;
        let configuration = istio::configuration(istio::CONFIGURATION, &webhook);
        cluster.apply(&configuration).await;

        let mut pod = knative_pod("a");
        pod["metadata"]["namespace"] = json!("mesh");
        cluster
            .until_noticed("Istio is called", &pod, |_| !webhook.take_pods().is_empty())
            .await;
        let native = cluster.create(&pod).await.json();
        assert_eq!(native["spec"]["initContainers"][1]["name"], "istio-proxy");

        pod["metadata"]["name"] = json!("b");
        let classic = "sidecar.istio.io/nativeSidecar";
        pod["metadata"]["annotations"][classic] = json!("false");
        let classic = cluster.create(&pod).await.json();
        assert_eq!(classic["spec"]["containers"][2]["name"], "istio-proxy");

        pod["metadata"]["namespace"] = json!("apps");
        let alone = cluster.create(&pod).await.json();
        assert_eq!(alone["spec"]["initContainers"], Value::Null);
        pod["metadata"]["name"] = json!("c");
        pod["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("true");
        let asked = cluster.create(&pod).await.json();
        assert_eq!(asked["spec"]["containers"][2]["name"], "istio-proxy");
    });
}
