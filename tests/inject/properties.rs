//! Injection and its patches on pods that nobody wrote.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use tidegate::inject::patch::diff;
use tidegate::inject::{Cluster, NativeSidecars, inject};

use crate::istio::{Istio, without_traces};
use crate::pods::{self, apply, checked};

/// A change to a pod.
#[derive(Clone, Debug)]
enum Change {
    DropContainer(usize),
    SwapContainers(usize, usize),
    AddContainer(u16),
    DropField(usize, &'static str),
    Annotate(&'static str, &'static str),
    Grace(u64),
    Unknown(usize, u32),
    NoAnnotations,
}

const ANNOTATIONS: &[(&str, &str)] = &[
    ("tidegate.dev/mode", "hold"),
    ("tidegate.dev/mode", "native"),
    ("tidegate.dev/mode", "annotate"),
    ("tidegate.dev/mode", "no-mesh"),
    ("tidegate.dev/hook-port", "28022"),
    ("tidegate.dev/hold-queue-proxy", "always"),
    ("tidegate.dev/gate", "http"),
    ("tidegate.dev/gate", "tcp"),
    ("tidegate.dev/gate-tls", "/var/lib/knative/certs"),
    ("tidegate.dev/grace", "10m"),
    ("tidegate.dev/margin", "1500ms"),
    ("tidegate.dev/workload-ports", "8012,8080"),
    ("sidecar.istio.io/nativeSidecar", "true"),
    ("traffic.sidecar.istio.io/excludeInboundPorts", ""),
    ("traffic.sidecar.istio.io/excludeInboundPorts", "1, 2,"),
    ("proxy.istio.io/config", "terminationDrainDuration: 5"),
];

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (0..4_usize).prop_map(Change::DropContainer),
        (0..4_usize, 0..4_usize).prop_map(|(one, other)| Change::SwapContainers(one, other)),
        (1024..20000_u16).prop_map(Change::AddContainer),
        (
            0..4_usize,
            prop::sample::select(vec!["env", "ports", "lifecycle", "image"])
        )
            .prop_map(|(index, field)| Change::DropField(index, field)),
        prop::sample::select(ANNOTATIONS).prop_map(|(name, value)| Change::Annotate(name, value)),
        (0..90_000_u64).prop_map(Change::Grace),
        (0..4_usize, any::<u32>()).prop_map(|(index, value)| Change::Unknown(index, value)),
        Just(Change::NoAnnotations),
    ]
}

fn make(pod: &mut Value, change: &Change) {
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    let count = containers.len();
    match *change {
        Change::DropContainer(index) if index < count && count > 1 => {
            containers.remove(index);
        }
        Change::SwapContainers(one, other) if one.max(other) < count => containers.swap(one, other),
        Change::AddContainer(port) => containers.push(json!({
            "name": format!("added-{port}-{count}"),
            "ports": [{"containerPort": port, "protocol": "UDP"}],
        })),
        Change::DropField(index, field) if index < count => {
            containers[index]
                .as_object_mut()
                .unwrap()
                .shift_remove(field);
        }
        Change::Annotate(name, value) => pod["metadata"]["annotations"][name] = json!(value),
        Change::Grace(seconds) => pod["spec"]["terminationGracePeriodSeconds"] = json!(seconds),
        Change::Unknown(index, value) if index < count => {
            let unknown = json!({"deep": [value, {"null": null}]});
            containers[index]["newInKubernetes"] = unknown.clone();
            pod["spec"]["newInKubernetes"] = unknown.clone();
            pod["newInKubernetes"] = unknown;
        }
        Change::NoAnnotations => pod["metadata"]["annotations"] = Value::Null,
        _ => {}
    }
}

fn pod() -> impl Strategy<Value = Value> {
    let pods = pods::all()
        .into_iter()
        .map(|(_, pod)| pod)
        .collect::<Vec<_>>();
    (
        prop::sample::select(pods),
        prop::collection::vec(change(), 0..8),
    )
        .prop_map(|(mut pod, changes)| {
            changes.iter().for_each(|change| make(&mut pod, change));
            pod
        })
}

fn cluster() -> impl Strategy<Value = Cluster> {
    let native = prop::sample::select(vec![
        NativeSidecars::Auto,
        NativeSidecars::True,
        NativeSidecars::False,
    ]);
    (native, prop::option::of(25..40_u32)).prop_map(|(native_sidecars, kubernetes_minor)| Cluster {
        native_sidecars,
        kubernetes_minor,
        mesh_excluded_inbound_ports: vec![9443],
        ..Cluster::default()
    })
}

fn unknown(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) => {
            let own = fields.get("newInKubernetes");
            own.into_iter()
                .chain(fields.values().flat_map(unknown))
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(unknown).collect(),
        _ => Vec::new(),
    }
}

/// Small JSON values in which the same keys and names come up again and again.
fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4_u8).prop_map(Value::from),
        "[a-c~/]{0,2}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let named = ("[a-d]", inner.clone())
            .prop_map(|(name, value)| json!({"name": name, "value": value}));
        prop_oneof![
            prop::collection::vec(prop_oneof![inner.clone(), named], 0..6).prop_map(Value::from),
            prop::collection::btree_map("[a-c~/]{1,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn injecting_twice_is_injecting_once(pod in pod(), cluster in cluster()) {
        if let Ok(injection) = checked(&pod, &cluster) {
            // Sorted: a sidecar that was there may have moved.
            let sorted = |pod| {
                let mut texts: Vec<_> = unknown(pod).into_iter().map(Value::to_string).collect();
                texts.sort();
                texts
            };
            prop_assert_eq!(sorted(&injection.pod), sorted(&pod));
        }
    }

    #[test]
    fn istio_in_between_makes_no_difference(pod in pod(), cluster in cluster(), style in 0..16_usize) {
        let istio = Istio::all().nth(style).unwrap();
        let seen = pods::containers(&pod).any(|container| {
            container["name"] == "istio-init" || container["name"] == "istio-proxy" && container["image"] != "auto"
        });
        if !seen && let (Ok(first), Ok(once)) = (inject(&pod, &cluster), inject(&istio.inject(&pod), &cluster)) {
            let both = checked(&istio.inject(&first.pod), &cluster).unwrap();
            // As a patch, which is easier to read than two pods.
            prop_assert_eq!(diff(&without_traces(&once.pod), &without_traces(&both.pod)), []);
        }
    }

    #[test]
    fn a_patch_leads_where_it_should(before in json_value(), after in json_value()) {
        let patch = diff(&before, &after);
        prop_assert_eq!(patch.is_empty(), before == after);
        prop_assert_eq!(apply(&before, &patch), after);
    }
}
