//! The Helm chart and `tidegate install` make the same objects. Needs helm: `./test helm`.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;
use tidegate::inject::yaml;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/helm/tidegate");

/// Objects by kind and name.
type Objects = BTreeMap<String, Value>;

fn run(command: &mut Command) -> String {
    let output = command.output().expect("cannot start the command");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8(output.stdout).expect("not UTF-8")
}

fn helm() -> Command {
    let helm = std::env::var_os("TIDEGATE_TEST_HELM").expect("TIDEGATE_TEST_HELM names helm");
    Command::new(helm)
}

fn installed(flags: &[&str]) -> Objects {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let mut objects = objects(&run(command.arg("install").args(flags)));
    // Helm makes it, with --create-namespace.
    objects.retain(|name, _| !name.starts_with("Namespace "));
    objects
}

fn templated(namespace: &str, values: &[&str]) -> Objects {
    let mut command = helm();
    command.args(["template", "tidegate", CHART, "--namespace", namespace]);
    for value in values {
        command.args(["--set", value]);
    }
    objects(&run(&mut command))
}

fn objects(text: &str) -> Objects {
    let documents = text.split("\n---\n").map(|d| d.trim_start_matches("---\n"));
    documents
        .map(|document| yaml::parse(document).unwrap_or_else(|e| panic!("{e}:\n{document}")))
        .filter(|object| !object.is_null())
        .map(|mut object| {
            forget_certificates(&mut object);
            let name = object["metadata"]["name"].as_str().expect("a name");
            let kind = object["kind"].as_str().expect("a kind");
            (format!("{kind} {name}"), object)
        })
        .collect()
}

/// Each run makes its own.
fn forget_certificates(object: &mut Value) {
    if object["kind"] == "Secret" {
        let data = object["data"].as_object_mut().expect("data");
        for value in data.values_mut() {
            assert!(value.as_str().is_some_and(|text| text.len() > 100));
            *value = "made".into();
        }
    }
    for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
        if let Some(bundle) = webhook["clientConfig"].get_mut("caBundle") {
            assert!(bundle.as_str().is_some_and(|text| text.len() > 100));
            *bundle = "made".into();
        }
    }
}

#[test]
fn the_chart_has_no_complaint_about_itself() {
    run(helm().args(["lint", "--strict", CHART]));
}

#[test]
fn the_chart_and_the_command_make_the_same_objects() {
    let table: [(&str, &[&str], &[&str]); 4] = [
        ("tidegate", &[], &[]),
        (
            "drains",
            &[
                "--namespace=drains",
                "--certs=cert-manager",
                "--network-policy",
                "--replicas=3",
                "--image=registry.example:5000/tidegate@sha256:0123",
                "--native-sidecars=true",
                "--kubernetes-minor=33",
                "--mesh-excluded-ports=9999,8888",
                "--run-as=1000680000",
                "--default=min-drain=15s",
                "--default=grace=1m30s",
            ],
            &[
                "certs=cert-manager",
                "networkPolicy=true",
                "replicas=3",
                "image=registry.example:5000/tidegate@sha256:0123",
                "nativeSidecars=true",
                "kubernetesMinor=33",
                "meshExcludedPorts={9999,8888}",
                "runAs=1000680000",
                "defaults.min-drain=15s",
                "defaults.grace=1m30s",
            ],
        ),
        ("tidegate", &["--certs=openshift"], &["certs=openshift"]),
        (
            "tidegate",
            &["--run-as=platform", "--native-sidecars=false"],
            &["runAs=platform", "nativeSidecars=false"],
        ),
    ];
    for (namespace, flags, values) in table {
        let (ours, charts) = (installed(flags), templated(namespace, values));
        let names: Vec<_> = ours.keys().collect();
        assert_eq!(names, charts.keys().collect::<Vec<_>>(), "{flags:?}");
        for (name, object) in &ours {
            assert_eq!(object, &charts[name], "{name} of {flags:?}");
        }
    }
}

#[test]
fn a_value_that_will_not_do_is_refused() {
    for value in [
        "certs=selfsigned",
        "replicas=0",
        "runAs=root",
        "min-drain=15s",
    ] {
        let mut command = helm();
        command.args(["template", "tidegate", CHART, "--set", value]);
        let output = command.output().expect("cannot start helm");
        assert!(!output.status.success(), "{value} was taken");
    }
}
