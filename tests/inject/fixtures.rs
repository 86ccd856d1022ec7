//! Every fixture as a snapshot, and every order of the two webhooks.

use serde_json::{Value, json};
use tidegate::inject::patch::diff;
use tidegate::inject::{Cluster, NativeSidecars, Refusal, RunAs, annotate_template, inject, yaml};

use crate::istio::{Istio, without_traces};
use crate::pods::{self, checked, container};

#[test]
fn every_fixture_is_injected_as_its_snapshot_says() {
    let cluster = Cluster {
        mesh_excluded_inbound_ports: vec![9443],
        ..Cluster::default()
    };
    for (name, pod) in pods::all() {
        let text = match checked(&pod, &cluster) {
            Ok(injection) => {
                let mut text = String::new();
                for warning in &injection.warnings {
                    text += &format!("# warning: {warning}\n");
                }
                if let Some(skip) = injection.skipped {
                    assert_eq!(injection.pod, pod, "{name}");
                    text += &format!("# skipped: {skip}\n");
                } else {
                    text += &yaml::print(&injection.pod).unwrap();
                }
                text
            }
            Err(refusal) => format!("# refused: {refusal}\n"),
        };
        assert_eq!(
            name.starts_with("refused-"),
            text.starts_with("# refused"),
            "{name}"
        );
        insta::with_settings!({omit_expression => true, prepend_module_to_snapshot => false}, {
            insta::assert_snapshot!(name, text);
        });
    }
}

#[test]
fn a_printed_pod_reads_as_it_was() {
    for (name, pod) in pods::all() {
        let text = yaml::print(&pod).unwrap();
        assert_eq!(yaml::parse(&text), Ok(pod), "{name}");
    }
}

/// Pods that Istio has not seen yet.
fn before_istio() -> impl Iterator<Item = (String, Value)> {
    pods::all().into_iter().filter(|(name, pod)| {
        let seen = container(pod, "istio-proxy").is_some_and(|proxy| proxy["image"] != "auto");
        !seen && !name.starts_with("refused-") && !["no-mesh", "ambient"].contains(&&**name)
    })
}

#[test]
fn istio_in_between_makes_no_difference() {
    let natives = [
        NativeSidecars::Auto,
        NativeSidecars::True,
        NativeSidecars::False,
    ];
    for (name, pod) in before_istio() {
        for istio in Istio::all() {
            for native_sidecars in natives {
                let cluster = Cluster {
                    native_sidecars,
                    mesh_excluded_inbound_ports: vec![9443],
                    ..Cluster::default()
                };
                let first = checked(&pod, &cluster).unwrap().pod;
                let both = checked(&istio.inject(&first), &cluster).unwrap();
                let once = checked(&istio.inject(&pod), &cluster).unwrap();
                // As a patch, which is easier to read than two pods.
                let patch = diff(&without_traces(&once.pod), &without_traces(&both.pod));
                assert_eq!(patch, [], "{name} {istio:?} {native_sidecars:?}");
            }
        }
    }
}

#[test]
fn istios_place_decides() {
    let pod = pods::read("knative-1.22");
    for istio in Istio::all() {
        for native_sidecars in [NativeSidecars::True, NativeSidecars::False] {
            let cluster = Cluster {
                native_sidecars,
                ..Cluster::default()
            };
            let after = checked(&istio.inject(&pod), &cluster).unwrap().pod;
            let own = container(&after, "tidegate").unwrap();
            let proxy = container(&after, "istio-proxy").unwrap();
            assert_eq!(own["restartPolicy"] == "Always", istio.native);
            assert_eq!(proxy["lifecycle"].is_object(), !istio.native, "{proxy}");
            let last = after["spec"]["initContainers"]
                .as_array()
                .and_then(|list| list.last());
            assert_eq!(
                last.is_some_and(|last| last["name"] == "tidegate"),
                istio.native
            );
        }
    }
}

#[test]
fn what_the_api_server_adds_changes_nothing() {
    for (name, pod) in pods::all() {
        let Ok(injection) = inject(&pod, &Cluster::default()) else {
            continue;
        };
        let mut pod = injection.pod;
        for list in ["initContainers", "containers"] {
            let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                let fields = container.as_object_mut().unwrap();
                for (field, value) in [
                    ("imagePullPolicy", "IfNotPresent"),
                    ("terminationMessagePath", "/dev/termination-log"),
                    ("terminationMessagePolicy", "File"),
                ] {
                    fields.entry(field).or_insert_with(|| json!(value));
                }
            }
        }
        assert_eq!(
            inject(&pod, &Cluster::default()).unwrap().patch,
            [],
            "{name}"
        );
    }
}

// ===== the cluster =====

#[test]
fn kubernetes_decides_where_nobody_else_does() {
    let place = |minor, annotation: Option<&str>| {
        let mut pod = pods::read("knative-1.22");
        if let Some(text) = annotation {
            pod["metadata"]["annotations"]["sidecar.istio.io/nativeSidecar"] = json!(text);
        }
        let cluster = Cluster {
            kubernetes_minor: minor,
            ..Cluster::default()
        };
        checked(&pod, &cluster).unwrap().pod["spec"]["initContainers"].is_array()
    };
    assert!(!place(None, None));
    assert!(!place(Some(28), None));
    assert!(place(Some(29), None));
    assert!(place(None, Some("true")));
    assert!(!place(Some(33), Some("false")));
}

#[test]
fn defaults_become_annotations_that_the_pods_own_go_before() {
    let defaults = [("min-drain", "20s"), ("quiet", "6s")];
    let cluster = Cluster {
        defaults: defaults
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..Cluster::default()
    };
    assert_eq!(cluster.check(), Ok(()));
    let mut pod = pods::read("knative-1.20");
    pod["metadata"]["annotations"]["tidegate.dev/quiet"] = json!("7s");
    let after = checked(&pod, &cluster).unwrap().pod;
    let annotations = &after["metadata"]["annotations"];
    assert_eq!(annotations["tidegate.dev/min-drain"], "20s");
    assert_eq!(annotations["tidegate.dev/quiet"], "7s");
}

#[test]
fn bad_defaults_are_known_before_a_pod_comes() {
    let with = |name: &str, value: &str| Cluster {
        defaults: [(name.to_owned(), value.to_owned())].into(),
        ..Cluster::default()
    };
    let unknown = with("min_drain", "20s").check();
    assert_eq!(unknown, Err(Refusal::UnknownSetting("min_drain".into())));
    let bad = with("min-drain", "20").check().unwrap_err().to_string();
    assert!(bad.contains("min-drain") && bad.contains("20s"), "{bad}");
}

#[test]
fn the_platform_may_give_the_user() {
    let cluster = Cluster {
        run_as: RunAs::Platform,
        ..Cluster::default()
    };
    let after = checked(&pods::read("knative-1.20"), &cluster).unwrap().pod;
    let context = &container(&after, "tidegate").unwrap()["securityContext"];
    assert_eq!(context["runAsNonRoot"], true);
    assert!(context.get("runAsUser").is_none() && context.get("runAsGroup").is_none());
    let refusal = checked(&pods::read("uid-1337"), &cluster).unwrap_err();
    assert_eq!(refusal, Refusal::ProxyIdentity { field: "runAsUser" });
}

// ===== malformed pods =====

#[test]
fn what_is_no_pod_is_refused_with_its_place() {
    let cases = [
        ("/spec", json!(3), "/spec"),
        ("/spec/containers", json!({}), "/spec/containers"),
        ("/spec/containers/0", json!("x"), "/spec/containers/0"),
        ("/spec/containers/0/name", json!(1), "/spec/containers/0"),
        (
            "/spec/containers/1/env",
            json!({}),
            "/spec/containers/1/env",
        ),
        (
            "/spec/containers/1/env/0",
            json!("A=b"),
            "/spec/containers/1/env",
        ),
        (
            "/spec/containers/0/lifecycle",
            json!([]),
            "/spec/containers/0/lifecycle",
        ),
        (
            "/spec/terminationGracePeriodSeconds",
            json!("300"),
            "/spec/terminationGracePeriodSeconds",
        ),
        (
            "/metadata/annotations/serving.knative.dev~1creator",
            json!(5),
            "/metadata/annotations/serving.knative.dev/creator",
        ),
    ];
    for (pointer, value, wanted) in cases {
        let mut pod = pods::read("knative-1.20");
        *pod.pointer_mut(pointer).unwrap() = value;
        match inject(&pod, &Cluster::default()) {
            Err(Refusal::Malformed { at, .. }) => assert_eq!(at, wanted),
            other => panic!("{pointer}: {other:?}"),
        }
    }
}

#[test]
fn a_wish_without_quotes_is_not_ignored() {
    for wish in [json!(true), json!(false)] {
        let mut pod = pods::read("not-selected");
        pod["metadata"]["annotations"] = json!({"tidegate.dev/inject": wish});
        let refusal = inject(&pod, &Cluster::default()).unwrap_err().to_string();
        assert!(
            refusal.contains("tidegate.dev/inject") && refusal.contains("quotes"),
            "{refusal}"
        );
    }
}

#[test]
fn nobody_elses_pod_is_looked_at_closely() {
    let pod = json!({"metadata": {"labels": 5}, "spec": {"containers": "none"}});
    assert_eq!(inject(&pod, &Cluster::default()).unwrap().pod, pod);
}

// ===== Knative's templates =====

#[test]
fn a_knative_template_gets_annotations_only() {
    let template = json!({"spec": {"containers": [{"image": "ghcr.io/example/hello"}]}});
    // Knative names its containers itself.
    let after = annotate_template(&template, &Cluster::default()).unwrap();
    assert_eq!(
        after.pod,
        json!({
            "metadata": {"annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "18022"}},
            "spec": {"containers": [{"image": "ghcr.io/example/hello"}]},
        })
    );
    assert_eq!(
        annotate_template(&after.pod, &Cluster::default())
            .unwrap()
            .patch,
        []
    );
    let bad = json!({"metadata": {"annotations": {"tidegate.dev/quiet": "5"}}, "spec": {"containers": []}});
    let refusal = annotate_template(&bad, &Cluster::default())
        .unwrap_err()
        .to_string();
    assert!(refusal.contains("tidegate.dev/quiet"), "{refusal}");
}
