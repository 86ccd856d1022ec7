//! The meshes that a pod can be in.

use crate::pods::{Pod, Sidecar};

/// What a mesh makes of a pod: its sidecar and how that ends.
#[derive(Debug)]
pub(crate) struct Configuration {
    /// In the names of cells and pods.
    pub(crate) name: &'static str,
    /// For readers.
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
    pub(crate) sidecar: Sidecar,
    /// Where it is the same without Tidegate as another one, that is the one to compare with.
    pub(crate) same_without: Option<&'static str>,
    annotations: &'static [(&'static str, &'static str)],
    labels: &'static [(&'static str, &'static str)],
}

/// Pods of this label have no rewritten probes; a PeerAuthentication lets the kubelet's through.
pub(crate) const PLAIN_HOOKS: (&str, &str) = ("tidegate.lab/hooks", "plain");

const PROXY_CONFIG: &str = "proxy.istio.io/config";
const GATE: (&str, &str) = ("tidegate.dev/gate", "http");

const CLASSIC: Configuration = Configuration {
    name: "",
    title: "",
    about: "",
    sidecar: Sidecar::Classic,
    same_without: None,
    annotations: &[],
    labels: &[],
};

/// All of them.
pub(crate) static ALL: [Configuration; 8] = [
    Configuration {
        name: "no-mesh",
        title: "no mesh",
        about: "no istio-proxy; clients reach the pod by its Service",
        sidecar: Sidecar::None,
        ..CLASSIC
    },
    Configuration {
        name: "classic-5s",
        title: "classic, 5 s",
        about: "a regular istio-proxy as Istio makes it by default: it ends 5 s after its SIGTERM",
        ..CLASSIC
    },
    Configuration {
        name: "classic-35s",
        title: "classic, 35 s",
        about: "`terminationDrainDuration: 35s`",
        annotations: &[(
            PROXY_CONFIG,
            r#"{"holdApplicationUntilProxyStarts": true, "terminationDrainDuration": "35s"}"#,
        )],
        ..CLASSIC
    },
    Configuration {
        name: "classic-exit-on-zero",
        title: "classic, exit on zero",
        about: "`EXIT_ON_ZERO_ACTIVE_CONNECTIONS: \"true\"`",
        annotations: &[(
            PROXY_CONFIG,
            r#"{"holdApplicationUntilProxyStarts": true, "proxyMetadata": {"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true"}}"#,
        )],
        ..CLASSIC
    },
    Configuration {
        name: "classic-plain-hooks",
        title: "classic, plain hooks",
        about: "5 s, and the kubelet's hook goes to port 8022 in plain text, as before Istio 1.25: STRICT mTLS resets it",
        annotations: &[("sidecar.istio.io/rewriteAppHTTPProbers", "false")],
        labels: &[PLAIN_HOOKS],
        ..CLASSIC
    },
    Configuration {
        name: "classic-annotate",
        title: "classic, annotate mode",
        about: "`tidegate.dev/mode: annotate`, `terminationDrainDuration: 333s` and `drainDuration: 500s`: \
                istio-proxy's spec stays as it is",
        same_without: Some("classic-5s"),
        annotations: &[
            ("tidegate.dev/mode", "annotate"),
            (
                PROXY_CONFIG,
                r#"{"holdApplicationUntilProxyStarts": true, "terminationDrainDuration": "333s", "drainDuration": "500s"}"#,
            ),
        ],
        ..CLASSIC
    },
    Configuration {
        name: "classic-gate",
        title: "classic, gate",
        about: "`tidegate.dev/gate: http`: Tidegate stands between Envoy and queue-proxy",
        same_without: Some("classic-5s"),
        annotations: &[GATE],
        ..CLASSIC
    },
    Configuration {
        name: "native",
        title: "native",
        about: "istio-proxy is a native sidecar: the kubelet ends it after the other containers",
        sidecar: Sidecar::Native,
        ..CLASSIC
    },
];

impl Configuration {
    /// The configuration's pod of this name.
    pub(crate) fn pod(&self, name: &str) -> Pod {
        let pod = Pod::new(name).sidecar(self.sidecar);
        let annotations = self.annotations.iter();
        let pod = annotations.fold(pod, |pod, (name, value)| pod.annotation(name, value));
        let labels = self.labels.iter();
        labels.fold(pod, |pod, (name, value)| pod.label(name, value))
    }

    /// Whether there is an istio-proxy.
    pub(crate) fn is_mesh(&self) -> bool {
        self.sidecar != Sidecar::None
    }

    /// Whether Tidegate, where it is, stands in the path.
    pub(crate) fn is_gated(&self) -> bool {
        self.annotations.contains(&GATE)
    }
}
