//! Which pods the API server calls the webhook for, and what it does while the webhook is down.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::harness::knative_pod;
use crate::installed::{self, Installed, NAME, get_object};
use crate::netns;
use crate::pods;

/// A Knative pod with one label more, or another value of it.
fn labelled(namespace: &str, label: &str, value: &str) -> Value {
    let mut pod = in_namespace(namespace);
    pod["metadata"]["labels"][label] = json!(value);
    pod
}

fn in_namespace(namespace: &str) -> Value {
    let mut pod = knative_pod("pod");
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// As Knative would not make it.
fn without_revision(mut pod: Value) -> Value {
    let labels = pod["metadata"]["labels"].as_object_mut().expect("labels");
    labels.remove("serving.knative.dev/revisionUID");
    pod
}

async fn is_injected(cluster: &Cluster, pod: &Value) -> bool {
    let pod = cluster.dry_run(pod).await.json();
    pods::container(&pod, "tidegate").is_some()
}

#[test]
fn labels_of_pods_and_namespaces_decide() {
    netns::test(
        "selection::labels_of_pods_and_namespaces_decide",
        || async {
            let cluster = Cluster::start().await;
            let installed = Installed::start(&cluster, &[]).await;
            let disabled = json!({"tidegate.dev/injection": "disabled"});
            cluster.namespace("apps", &json!({})).await;
            cluster.namespace("left-alone", &disabled).await;
            cluster.namespace("kube-system", &json!({})).await;

            let inject = "tidegate.dev/inject";
            let yes = [
                in_namespace("apps"),
                labelled("apps", inject, "true"),
                without_revision(labelled("apps", inject, "true")),
            ];
            for pod in &yes {
                assert!(is_injected(&cluster, pod).await, "{pod}");
            }
            let reviews = installed.reviews().await;
            let no = [
                labelled("apps", inject, "false"),
                without_revision(in_namespace("apps")),
                in_namespace("left-alone"),
                without_revision(labelled("left-alone", inject, "true")),
                in_namespace("kube-system"),
            ];
            for pod in &no {
                assert!(!is_injected(&cluster, pod).await, "{pod}");
            }
            assert_eq!(
                installed.reviews().await,
                reviews,
                "it was called all the same"
            );
        },
    );
}

#[test]
fn the_webhooks_own_pods_are_restricted_and_never_injected() {
    let name = "selection::the_webhooks_own_pods_are_restricted_and_never_injected";
    netns::test(name, || async {
        let cluster = Cluster::start().await;
        let installed = Installed::start(&cluster, &[]).await;
        let reviews = installed.reviews().await;
        let deployment = get_object(&cluster, "deployment").await;
        let mut pod = deployment["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(NAME);
        pod["metadata"]["namespace"] = json!(installed::NAMESPACE);
        pod["metadata"]["labels"]["tidegate.dev/inject"] = json!("true");
        let outcome = cluster.create(&pod).await;
        assert!(outcome.warnings().is_empty(), "{outcome:?}");
        assert!(pods::container(&outcome.json(), "tidegate").is_none());
        assert_eq!(installed.reviews().await, reviews);

        // The namespace lets none pass that asks for more.
        let mut reckless = without_revision(in_namespace(installed::NAMESPACE));
        reckless["spec"]["serviceAccountName"] = json!(NAME);
        let refused = cluster.create(&reckless).await.failure();
        assert!(refused.contains("violates PodSecurity"), "{refused}");
    });
}

#[test]
fn pods_start_without_the_sidecar_while_the_webhook_is_down() {
    let name = "selection::pods_start_without_the_sidecar_while_the_webhook_is_down";
    netns::test(name, || async {
        let cluster = Cluster::start().await;
        let mut installed = Installed::start(&cluster, &[]).await;
        cluster.namespace("apps", &json!({})).await;
        let pod = in_namespace("apps");
        assert!(is_injected(&cluster, &pod).await);
        installed.kill();
        let created = cluster.create(&pod).await.json();
        assert!(pods::container(&created, "tidegate").is_none());
        installed.restart(&cluster).await;
        let mut pod = pod;
        pod["metadata"]["name"] = json!("later");
        assert!(is_injected(&cluster, &pod).await);
    });
}

#[test]
fn every_way_to_install_is_accepted() {
    netns::test("selection::every_way_to_install_is_accepted", || async {
        let cluster = Cluster::start().await;
        let ways: [&[&str]; 3] = [
            &["--certs", "openshift", "--network-policy"],
            &[
                "--certs",
                "self-signed",
                "--namespace",
                "elsewhere",
                "--replicas",
                "1",
            ],
            &[
                "--native-sidecars",
                "true",
                "--kubernetes-minor",
                "37",
                "--mesh-excluded-ports",
                "8444,9090",
                "--run-as",
                "platform",
                "--default",
                "min-drain=15s",
            ],
        ];
        for flags in ways {
            installed::apply(&cluster, flags).await;
        }
    });
}
