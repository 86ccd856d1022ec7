//! `tidegate inject` as a process: what it prints, and how it leaves.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tidegate::inject::yaml;

use crate::pods;

fn inject(input: &str, args: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["inject", "-f", "-"])
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // From a thread of its own: a pipe holds less than a pod's answer.
    let writer = std::thread::spawn(move || {
        // It may leave before it has read all, on bad usage.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn printed(input: &str, args: &[&str]) -> String {
    let output = inject(input, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it says, with its exit code; nothing is printed.
fn refused(input: &str, args: &[&str]) -> (i32, String) {
    let output = inject(input, args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), said)
}

#[test]
fn a_pipe_of_two_is_one() {
    for (name, _) in pods::all() {
        if name.starts_with("refused-") {
            continue;
        }
        let text = std::fs::read_to_string(pods::directory().join(format!("{name}.yaml"))).unwrap();
        let once = printed(&text, &[]);
        assert_eq!(printed(&once, &[]), once, "{name}");
        assert_eq!(printed(&once, &["--diff"]), "", "{name}");
        assert_eq!(printed(&once, &["--patch"]), "[]\n", "{name}");
    }
}

#[test]
fn documents_without_a_change_keep_every_byte() {
    let text = "\u{feff}# top\r\n%YAML 1.1\r\n---   # one\nkind: ConfigMap\napiVersion: v1\ndata: {a:   yes, m: 0644}\n\
                ...\n# between\n---\n\n--- \napiVersion: apps/v1\nkind: Deployment\nspec: 5   # not a pod\n---\n- 1\n-   2";
    assert_eq!(printed(text, &[]), text);
    let json = " {\"apiVersion\":\"v1\" , \"kind\":\"Pod\",\"spec\":{\"containers\":[]}}\n\n{\"a\": 1.0}  \n";
    assert_eq!(printed(json, &[]), json);
}

/// A pod template that asks for the sidecar.
fn template() -> Value {
    json!({
        "metadata": {"labels": {"tidegate.dev/inject": "true"}},
        "spec": {"containers": [{
            "name": "app",
            "image": "yes",
            "args": ["on", "0644", "1e3", "~"],
            "ports": [{"containerPort": 8080}],
        }]},
    })
}

fn objects() -> Vec<Value> {
    let workload = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": {"template": template()}});
    let mut pod = template();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    vec![
        pod,
        workload("apps/v1", "Deployment"),
        workload("apps/v1", "StatefulSet"),
        workload("apps/v1", "DaemonSet"),
        workload("batch/v1", "Job"),
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "x"},
               "spec": {"jobTemplate": {"spec": {"template": template()}}}}),
    ]
}

/// How many sidecars there are in a value.
fn sidecars(value: &Value) -> usize {
    match value {
        Value::Object(fields) => {
            usize::from(fields.get("name").is_some_and(|name| name == "tidegate"))
                + fields.values().map(sidecars).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(sidecars).sum(),
        _ => 0,
    }
}

#[test]
fn all_kinds_of_workloads_are_injected() {
    for object in objects() {
        let kind = object["kind"].as_str().unwrap();
        let text = printed(&yaml::print(&object).unwrap(), &[]);
        let after = yaml::parse(&text).unwrap();
        assert_eq!(sidecars(&after), 1, "{kind}: {text}");
        // What older YAML would read as something else came through as it was.
        assert!(
            text.contains("\"yes\"") && text.contains("\"0644\""),
            "{text}"
        );
        let json = printed(&object.to_string(), &[]);
        assert_eq!(
            serde_json::from_str::<Value>(&json).unwrap(),
            after,
            "{kind}"
        );
    }
}

#[test]
fn a_list_is_injected_in_its_place() {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects()});
    let pretty = serde_json::to_string_pretty(&list).unwrap() + "\n";
    let text = printed(&pretty, &[]);
    assert!(
        text.starts_with("{\n  \"apiVersion\"") && text.ends_with("}\n"),
        "{text}"
    );
    let after: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(sidecars(&after), objects().len());
    let patch = printed(&pretty, &["--patch"]);
    let patch: Vec<_> = serde_json::from_str::<Vec<Value>>(&patch).unwrap();
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(patch)).unwrap();
    let mut patched = list;
    json_patch::patch(&mut patched, &patch).unwrap();
    assert_eq!(patched, after);
}

#[test]
fn one_document_changes_among_others() {
    let pod = yaml::print(&objects()[0]).unwrap();
    let text = format!("a:   1 # kept\n---\n{pod}...\n--- # next\nb:   2\n");
    let after = printed(&text, &[]);
    assert!(
        after.starts_with("a:   1 # kept\n---\napiVersion: v1\n")
            || after.starts_with("a:   1 # kept\n---\nmetadata:"),
        "{after}"
    );
    assert!(after.ends_with("...\n--- # next\nb:   2\n"), "{after}");
    assert_eq!(printed(&after, &[]), after);
    assert_eq!(printed(&text, &["--patch"]).lines().count(), 3);
    let crlf = printed(&text.replace('\n', "\r\n"), &[]);
    assert_eq!(crlf.replace("\r\n", "\n"), after);
    assert!(!crlf.replace("\r\n", "").contains('\n'));
}

#[test]
fn a_diff_shows_what_would_change() {
    let text = std::fs::read_to_string(pods::directory().join("knative-1.20.yaml")).unwrap();
    insta::assert_snapshot!(
        "diff",
        printed(
            &text,
            &["--diff", "--image=registry.example.com/tidegate:1"]
        )
    );
}

#[test]
fn a_ksvc_is_prepared_and_its_owner_told() {
    let text = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: hello, namespace: shop}\n\
                spec:\n  template:\n    spec:\n      containers:\n      - image: ghcr.io/example/hello\n";
    let output = inject(text, &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("Service shop/hello") && said.contains("takes no sidecar"),
        "{said}"
    );
    let after = yaml::parse(&String::from_utf8(output.stdout).unwrap()).unwrap();
    let template = &after["spec"]["template"];
    assert_eq!(sidecars(&after), 0);
    let annotations = &template["metadata"]["annotations"];
    assert_eq!(
        annotations["traffic.sidecar.istio.io/excludeInboundPorts"],
        "18022"
    );
}

// ===== what goes wrong =====

#[test]
fn bad_input_is_named_by_its_place() {
    for (input, place) in [
        ("a: 1\n---\nb: [1\nc: 2\n", "standard input:4:"),
        ("a: 1\n--- {a: ]\n", "standard input:2:"),
        ("a: 1\na: 2\n", "standard input:2:1: "),
        ("{\"a\": 1,\n \"b\" 2}\n", "standard input:2:6: "),
    ] {
        let (code, said) = refused(input, &[]);
        assert_eq!(code, 65, "{said}");
        assert!(said.starts_with(place), "{input:?}: {said}");
    }
}

#[test]
fn a_refused_pod_is_named_by_its_place() {
    for name in [
        "refused-port",
        "refused-windows",
        "refused-host-network",
        "refused-settings",
    ] {
        let text = std::fs::read_to_string(pods::directory().join(format!("{name}.yaml"))).unwrap();
        let (code, said) = refused(&format!("a: 1\n---\n{text}"), &[]);
        assert_eq!(code, 65);
        assert!(
            said.starts_with("standard input:4:1: Pod shop/hello-00001"),
            "{said}"
        );
    }
}

#[test]
fn not_utf8_is_bad_input_and_not_there_is_no_input() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("latin1.yaml");
    std::fs::write(&path, b"a: 1\nb: \xe4\n").unwrap();
    let run = |path: &std::path::Path| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["inject", "-f"])
            .arg(path)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (code, said) = run(&path);
    assert_eq!(code, Some(65));
    assert!(said.contains("latin1.yaml:2:4: not UTF-8"), "{said}");
    let (code, said) = run(&directory.path().join("missing.yaml"));
    assert_eq!(code, Some(66));
    assert!(said.contains("missing.yaml: No such file"), "{said}");
}

#[test]
fn bad_usage_is_64() {
    for args in [
        &["--run-as=0"][..],
        &["--run-as=1337"],
        &["--run-as=me"],
        &["--mesh-excluded-ports=http"],
        &["--native-sidecars=maybe"],
        &["--diff", "--patch"],
    ] {
        assert_eq!(refused("", args).0, 64, "{args:?}");
    }
}
