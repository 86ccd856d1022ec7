//! The objects, and the certificate beside them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::*;
use crate::inject::{INJECT, REVISION_LABEL};

fn options(certs: Certs) -> Options {
    Options {
        namespace: "tidegate".to_owned(),
        replicas: 2,
        certs,
        network_policy: true,
        cluster: Cluster::default(),
    }
}

fn find<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .expect(kind)
}

/// Whether labels match what stands under `matchExpressions`.
fn matches(selector: &Value, labels: &[(&str, &str)]) -> bool {
    let rows = selector["matchExpressions"].as_array().unwrap();
    rows.iter().all(|row| {
        let key = row["key"].as_str().unwrap();
        let value = labels
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value);
        let listed = value.is_some_and(|value| {
            row["values"]
                .as_array()
                .unwrap_or(&vec![])
                .contains(&value.into())
        });
        match row["operator"].as_str().unwrap() {
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            "NotIn" => !listed,
            other => panic!("{other}"),
        }
    })
}

#[test]
fn what_is_printed_is_what_was_meant() {
    for certs in Certs::ALL {
        let tls = SelfSigned::generate(NAME, "tidegate").unwrap();
        let tls = (certs == Certs::SelfSigned).then_some(&tls);
        let objects = objects(&options(certs), tls);
        let text = print(&objects).unwrap();
        let read: Vec<Value> = text
            .split("---\n")
            .skip(1)
            .map(|document| yaml::parse(document).unwrap())
            .collect();
        assert_eq!(read, objects, "{}", certs.name());
        let mut names: Vec<String> = objects
            .iter()
            .map(|o| format!("{} {}", o["kind"], o["metadata"]["name"]))
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}

#[test]
fn the_configuration_is_called_before_istios_and_again_after_it() {
    for istio in [
        "istio-sidecar-injector",
        "istio-revision-tag-default",
        "istiod-basic-istio-system",
        "inferenceservice.serving.kserve.io",
    ] {
        assert!(CONFIGURATION < istio);
    }
    let objects = objects(&options(Certs::CertManager), None);
    let configuration = find(&objects, "MutatingWebhookConfiguration");
    for webhook in configuration["webhooks"].as_array().unwrap() {
        assert_eq!(webhook["reinvocationPolicy"], "IfNeeded");
        assert_eq!(webhook["failurePolicy"], "Ignore");
        assert_eq!(webhook["sideEffects"], "None");
        assert_eq!(webhook["timeoutSeconds"], 5);
    }
}

#[test]
fn each_pod_is_reviewed_once_or_not_at_all() {
    let objects = objects(&options(Certs::CertManager), None);
    let webhooks = find(&objects, "MutatingWebhookConfiguration")["webhooks"]
        .as_array()
        .unwrap();
    let table: [(&[(&str, &str)], usize); 7] = [
        (&[], 0),
        (&[(REVISION_LABEL, "8a6f")], 1),
        (&[(REVISION_LABEL, "8a6f"), (INJECT, "true")], 1),
        (&[(REVISION_LABEL, "8a6f"), (INJECT, "false")], 0),
        (&[(INJECT, "true")], 1),
        (&[(INJECT, "ture")], 1),
        (&[(INJECT, "false")], 0),
    ];
    for (labels, times) in table {
        let called = webhooks
            .iter()
            .filter(|w| matches(&w["objectSelector"], labels));
        assert_eq!(called.count(), times, "{labels:?}");
    }
    let name = "kubernetes.io/metadata.name";
    let table: [(&[(&str, &str)], bool); 5] = [
        (&[(name, "shop")], true),
        (&[(name, "kube-system")], false),
        (&[(name, "tidegate")], false),
        (&[(name, "shop"), (NAMESPACE_LABEL, "disabled")], false),
        (&[(name, "shop"), (NAMESPACE_LABEL, "enabled")], true),
    ];
    for (labels, wanted) in table {
        for webhook in webhooks {
            assert_eq!(
                matches(&webhook["namespaceSelector"], labels),
                wanted,
                "{labels:?}"
            );
        }
    }
}

#[test]
fn the_arguments_make_the_same_cluster_again() {
    let cluster = Cluster {
        image: "registry.example/tidegate:1.2.3".to_owned(),
        native_sidecars: crate::inject::NativeSidecars::True,
        kubernetes_minor: Some(33),
        mesh_excluded_inbound_ports: vec![9999, 8888],
        run_as: crate::inject::RunAs::Platform,
        defaults: [("min-drain".to_owned(), "15s".to_owned())].into(),
    };
    let options = Options {
        cluster: cluster.clone(),
        ..options(Certs::OpenShift)
    };
    let objects = objects(&options, None);
    let container = &find(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let args = container["args"].as_array().unwrap().iter();
    let args = args.map(|arg| std::ffi::OsString::from(arg.as_str().unwrap()));
    let command = crate::cli::parse(std::iter::once("tidegate".into()).chain(args), |_| None);
    match command.unwrap() {
        crate::cli::Command::Webhook(webhook) => {
            assert_eq!(webhook.cluster, cluster);
            let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
            assert!(webhook.options.files.cert.starts_with(mount));
            assert!(webhook.options.files.key.starts_with(mount));
            for (port, name) in [
                (webhook.options.port, "https"),
                (webhook.options.health_port, "http"),
            ] {
                let declared = container["ports"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|p| p["name"] == name);
                assert_eq!(declared.unwrap()["containerPort"], port);
            }
            let leaving = webhook.options.leave_delay + webhook.options.leave_max;
            let spec = &find(&objects, "Deployment")["spec"]["template"]["spec"];
            assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() > leaving.as_secs());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_secret_and_the_bundle_belong_together() {
    let tls = SelfSigned::generate(NAME, "tidegate").unwrap();
    let objects = objects(&options(Certs::SelfSigned), Some(&tls));
    let secret = find(&objects, "Secret");
    let data = |name: &str| {
        STANDARD
            .decode(secret["data"][name].as_str().unwrap())
            .unwrap()
    };
    let pair = crate::webhook::Pair::parse(&data("tls.crt"), &data("tls.key")).unwrap();
    assert!(pair.check(std::time::SystemTime::now()).is_ok());
    let configuration = find(&objects, "MutatingWebhookConfiguration");
    for webhook in configuration["webhooks"].as_array().unwrap() {
        let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap();
        assert_eq!(STANDARD.decode(bundle).unwrap(), data("ca.crt"));
    }
    let again = SelfSigned::generate(NAME, "tidegate").unwrap();
    assert_ne!(again.key, tls.key);
}
