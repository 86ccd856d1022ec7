//! Every fixture pod before the real API server, with the webhook in its place.

use std::time::Duration;

use serde_json::{Value, json};
use tidegate::inject::Cluster as Settings;
use tidegate::webhook::{Mutation, mutation};

use crate::cluster::Cluster;
use crate::installed::Installed;
use crate::netns;
use crate::pods::{self, checked};

/// Where the fixtures live.
const NAMESPACE: &str = "shop";
/// Many calls of kubectl.
const LIMIT: Duration = Duration::from_secs(240);

/// What `tidegate install` without flags tells the webhook.
fn settings() -> Settings {
    Settings::default()
}

/// A fixture, under a name of its own.
struct Fixture {
    name: String,
    pod: Value,
}

/// Those that can be injected, where they ask for it, and those that cannot.
fn fixtures() -> (Vec<Fixture>, Vec<Fixture>) {
    let fixtures = pods::all().into_iter().map(|(name, mut pod)| {
        pod["metadata"]["namespace"] = json!(NAMESPACE);
        pod["metadata"]["name"] = json!(name.replace('.', "-"));
        Fixture { name, pod }
    });
    fixtures.partition(|fixture| !fixture.name.starts_with("refused-"))
}

async fn start() -> (Cluster, Installed) {
    let cluster = Cluster::start().await;
    let installed = Installed::start(&cluster, &[]).await;
    cluster.namespace(NAMESPACE, &json!({})).await;
    (cluster, installed)
}

fn list<'a>(pods: impl IntoIterator<Item = &'a Value>) -> Value {
    let pods: Vec<&Value> = pods.into_iter().collect();
    json!({"apiVersion": "v1", "kind": "List", "items": pods})
}

/// A pod that was created, as a manifest for another one.
fn as_manifest(created: &Value, suffix: &str) -> Value {
    let metadata = &created["metadata"];
    let name = metadata["name"].as_str().expect("a name");
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("{name}{suffix}"),
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "annotations": metadata["annotations"],
        },
        "spec": created["spec"],
    })
}

#[test]
fn every_fixture_is_accepted_and_stays_as_it_was_injected() {
    let name = "fixtures::every_fixture_is_accepted_and_stays_as_it_was_injected";
    netns::test_within(LIMIT, name, || async {
        let (cluster, _installed) = start().await;
        let (accepted, _) = fixtures();
        let manifests = list(accepted.iter().map(|fixture| &fixture.pod));
        let would_be = cluster.dry_run(&manifests).await.jsons();
        let created = cluster.create(&manifests).await.jsons();
        assert_eq!(created.len(), accepted.len());
        for ((fixture, would_be), created) in accepted.iter().zip(&would_be).zip(&created) {
            let expected = checked(&fixture.pod, &settings()).expect("an accepted pod");
            let is_there = pods::container(created, "tidegate").is_some();
            assert_eq!(is_there, expected.skipped.is_none(), "{}", fixture.name);
            let annotations = &expected.pod["metadata"]["annotations"];
            assert_eq!(created["metadata"]["annotations"], *annotations);
            assert_eq!(would_be["metadata"]["annotations"], *annotations);
            // No doubles, and nothing left to change in what the API server made of it.
            let again = checked(created, &settings()).expect("an accepted pod");
            assert_eq!(again.patch, [], "{}", fixture.name);
        }

        let manifests: Vec<Value> = created.iter().map(|pod| as_manifest(pod, "-2")).collect();
        let twice = cluster.create(&list(&manifests)).await.jsons();
        for (manifest, twice) in manifests.iter().zip(&twice) {
            assert_eq!(as_manifest(twice, ""), *manifest);
        }
    });
}

#[test]
fn refusals_and_warnings_reach_who_applies() {
    let name = "fixtures::refusals_and_warnings_reach_who_applies";
    netns::test_within(LIMIT, name, || async {
        let (cluster, _installed) = start().await;
        let (accepted, impossible) = fixtures();
        let (mut warned, mut refused) = (0, 0);
        for Fixture { name, pod } in accepted.iter().chain(&impossible) {
            let expected = match mutation(pod, &settings()) {
                Mutation::Refused(why) => {
                    let said = cluster.dry_run(pod).await.failure();
                    assert!(said.contains(&why), "{name}: {said}");
                    refused += 1;
                    continue;
                }
                Mutation::Patch { warnings, .. } | Mutation::Unchanged { warnings } => warnings,
            };
            // Almost every pod has the one about its grace period, which is enough to see once.
            if expected.len() == 1 && warned > 0 && !name.starts_with("refused-") {
                continue;
            }
            let outcome = cluster.dry_run(pod).await;
            assert_eq!(outcome.warnings(), expected, "{name}: {outcome:?}");
            warned += usize::from(!expected.is_empty());
        }
        assert!(refused > 0, "no fixture is refused");
        assert!(warned > 5, "only {warned} fixtures have warnings");
    });
}
