//! Istio's part: what its injector makes of a pod, as far as a drain has to do with it, as one pure
//! function, and the configuration of its webhook.
//!
//! After pkg/kube/inject (webhook.go, inject.go, app_probe.go) and the injection template of 1.24 to
//! 1.31. Of the many volumes and variables of istio-proxy there are as many as a pod's shape needs.

mod merge;
mod probes;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::admission::{Mutated, Webhook};

/// The name of the configuration: what sorts before it is called before Istio.
pub(crate) const CONFIGURATION: &str = "istio-sidecar-injector";

/// The agent, which answers for rewritten probes and hooks.
const AGENT_PORT: u16 = 15020;
const PROXY: &str = "istio-proxy";
const INIT: &str = "istio-init";
const VALIDATION: &str = "istio-validation";
const IMAGE: &str = "docker.io/istio/proxyv2:1.26.0";
const PROXY_ID: u32 = 1337;

const INJECT: &str = "sidecar.istio.io/inject";
const STATUS: &str = "sidecar.istio.io/status";
const NATIVE: &str = "sidecar.istio.io/nativeSidecar";
const CONFIG: &str = "proxy.istio.io/config";
const EXCLUDED_PORTS: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
const REWRITE_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";

/// Where istio-proxy goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sidecar {
    /// Among the containers.
    Classic,
    /// An init container that restarts; the default since Istio 1.27 on Kubernetes 1.33.
    Native,
}

/// Who redirects the pod's traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redirection {
    /// An init container, with the rules as arguments.
    Init,
    /// The node, by what the annotations say; an init container looks whether it has.
    Cni,
}

/// What becomes of an httpGet hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hooks {
    /// It stays: Istio 1.24 and older.
    Kept,
    /// The agent gets it: Istio 1.25 and newer.
    Rewritten,
}

/// A mesh's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mesh {
    pub(crate) sidecar: Sidecar,
    pub(crate) redirection: Redirection,
    pub(crate) hooks: Hooks,
    /// `values.global.proxy.excludeInboundPorts`, for pods that say nothing.
    pub(crate) excluded_inbound_ports: &'static str,
}

impl Mesh {
    /// Istio 1.25 and newer as it comes.
    pub(crate) fn new(sidecar: Sidecar) -> Mesh {
        Mesh {
            sidecar,
            redirection: Redirection::Init,
            hooks: Hooks::Rewritten,
            excluded_inbound_ports: "",
        }
    }
}

/// A mesh whose settings can be changed while its webhook serves.
pub(crate) struct Istio {
    pub(crate) webhook: Webhook,
    mesh: Arc<Mutex<Mesh>>,
}

impl Istio {
    /// Serves a mesh's injection.
    pub(crate) async fn start(mesh: Mesh) -> Istio {
        let mesh = Arc::new(Mutex::new(mesh));
        let current = mesh.clone();
        let mutate = move |pod: &Value| Mutated {
            pod: inject(pod, &current.lock().expect("no injection panics with it")),
            warnings: Vec::new(),
        };
        Istio {
            webhook: Webhook::start(mutate).await,
            mesh,
        }
    }

    /// What is injected from now on.
    pub(crate) fn set(&self, mesh: Mesh) {
        *self.mesh.lock().expect("no injection panics with it") = mesh;
    }
}

/// Injection for namespaces with `istio-injection: enabled`, and for pods that ask for it elsewhere.
/// `name` decides who is called first; Istio's own is [`CONFIGURATION`].
pub(crate) fn configuration(name: &str, webhook: &Webhook) -> Value {
    let with = |name: &str, namespaces: Value, objects: Value| {
        json!({
            "name": name,
            "clientConfig": webhook.client_config(),
            "rules": [{
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
            }],
            "namespaceSelector": {"matchExpressions": namespaces},
            "objectSelector": {"matchExpressions": objects},
            "reinvocationPolicy": "Never",
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            with(
                "namespace.sidecar-injector.istio.io",
                json!([{"key": "istio-injection", "operator": "In", "values": ["enabled"]}]),
                json!([{"key": INJECT, "operator": "NotIn", "values": ["false"]}]),
            ),
            with(
                "object.sidecar-injector.istio.io",
                json!([{"key": "istio-injection", "operator": "DoesNotExist"}]),
                json!([{"key": INJECT, "operator": "In", "values": ["true"]}]),
            ),
        ],
    })
}

/// What the injector makes of a pod.
///
/// A pod on the host's network, or with Istio's status on it, stays as it is.
pub(crate) fn inject(pod: &Value, mesh: &Mesh) -> Value {
    let mut pod = pod.clone();
    if pod["spec"]["hostNetwork"] == true || pod["metadata"]["annotations"][STATUS].is_string() {
        return pod;
    }
    let sidecar = match annotation(&pod, NATIVE) {
        Some("true") => Sidecar::Native,
        Some("false") => Sidecar::Classic,
        _ => mesh.sidecar,
    };
    add_redirection(&mut pod, mesh, sidecar);
    add_proxy(&mut pod, sidecar);
    if annotation(&pod, REWRITE_PROBES) != Some("false") {
        probes::rewrite(&mut pod, mesh.hooks);
    }
    add_volumes(&mut pod);
    add_metadata(&mut pod, mesh, sidecar);
    pod
}

fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][name].as_str()
}

/// istio-validation goes first; istio-init goes first beside a native sidecar, else last.
fn add_redirection(pod: &mut Value, mesh: &Mesh, sidecar: Sidecar) {
    let first = match mesh.redirection {
        Redirection::Cni => true,
        Redirection::Init => sidecar == Sidecar::Native,
    };
    let container = match mesh.redirection {
        Redirection::Init => init(&excluded_ports(pod, mesh)),
        Redirection::Cni => validation(),
    };
    let containers = list(&mut pod["spec"]["initContainers"]);
    let place = if first { 0 } else { containers.len() };
    containers.insert(place, container);
}

/// The value of istio-iptables' `-d`: the annotation goes before the mesh's setting.
fn excluded_ports(pod: &Value, mesh: &Mesh) -> String {
    let asked = annotation(pod, EXCLUDED_PORTS).unwrap_or(mesh.excluded_inbound_ports);
    let asked = asked.split(',').map(str::trim);
    let agent = AGENT_PORT.to_string();
    let asked = asked.filter(|port| !port.is_empty() && *port != agent);
    let ports = ["15090", "15021"].into_iter().chain(asked);
    ports.chain([agent.as_str()]).collect::<Vec<_>>().join(",")
}

fn init(excluded_ports: &str) -> Value {
    json!({
        "name": INIT,
        "image": IMAGE,
        "args": [
            "istio-iptables", "-p", "15001", "-z", "15006", "-u", PROXY_ID.to_string(), "-m", "REDIRECT",
            "-i", "*", "-x", "", "-b", "*", "-d", excluded_ports, "--log_output_level=default:info",
        ],
        "resources": resources(),
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "privileged": false,
            "capabilities": {"add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"]},
            "readOnlyRootFilesystem": false,
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "runAsUser": 0,
        },
    })
}

fn validation() -> Value {
    json!({
        "name": VALIDATION,
        "image": IMAGE,
        "args": [
            "istio-iptables", "-p", "15001", "-z", "15006", "-u", PROXY_ID.to_string(), "-m", "REDIRECT",
            "-i", "*", "-x", "", "-b", "*", "--log_output_level=default:info", "--run-validation",
            "--skip-rule-apply",
        ],
        "resources": resources(),
        "securityContext": unprivileged(),
    })
}

/// Puts istio-proxy where it belongs, and a part of it that the pod brings on top.
fn add_proxy(pod: &mut Value, sidecar: Sidecar) {
    let hold = annotation(pod, CONFIG).is_some_and(holds_application);
    let native = sidecar == Sidecar::Native;
    let apps = names(&pod["spec"]["containers"]);
    let mut proxy = proxy(native, hold, &apps);
    let containers = list(&mut pod["spec"]["containers"]);
    if let Some(own) = take(containers, PROXY) {
        proxy = merge::overlay(proxy, own);
    }
    if native {
        let inits = list(&mut pod["spec"]["initContainers"]);
        let place = inits.iter().take_while(|c| is_redirection(c)).count();
        inits.insert(place, proxy);
    } else if hold {
        containers.insert(0, proxy);
    } else {
        containers.push(proxy);
    }
}

/// `holdApplicationUntilProxyStarts`, in JSON or in YAML.
fn holds_application(config: &str) -> bool {
    let bare: String = config
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '"')
        .collect();
    bare.contains("holdApplicationUntilProxyStarts:true")
}

fn is_redirection(container: &Value) -> bool {
    [INIT, VALIDATION].contains(&container["name"].as_str().unwrap_or_default())
}

fn names(containers: &Value) -> String {
    let containers = containers.as_array().into_iter().flatten();
    let names = containers.filter_map(|container| container["name"].as_str());
    let names = names.filter(|name| *name != PROXY);
    names.collect::<Vec<_>>().join(",")
}

fn take(containers: &mut Vec<Value>, name: &str) -> Option<Value> {
    let place = containers.iter().position(|c| c["name"] == name)?;
    Some(containers.remove(place))
}

fn proxy(native: bool, hold: bool, apps: &str) -> Value {
    let mut proxy = json!({
        "name": PROXY,
        "image": IMAGE,
        "args": [
            "proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local",
            "--proxyLogLevel=warning", "--proxyComponentLogLevel=misc:error",
            "--log_output_level=default:info",
        ],
        "ports": [{"containerPort": 15090, "protocol": "TCP", "name": "http-envoy-prom"}],
        "env": [
            {"name": "PILOT_CERT_PROVIDER", "value": "istiod"},
            {"name": "CA_ADDR", "value": "istiod.istio-system.svc:15012"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "PROXY_CONFIG", "value": "{}\n"},
            {"name": "ISTIO_META_APP_CONTAINERS", "value": apps},
            {"name": "ISTIO_META_INTERCEPTION_MODE", "value": "REDIRECT"},
        ],
        "readinessProbe": ready_probe(4, 15),
        "resources": resources(),
        "securityContext": unprivileged(),
        "volumeMounts": [
            {"mountPath": "/var/run/secrets/istio", "name": "istiod-ca-cert"},
            {"mountPath": "/var/lib/istio/data", "name": "istio-data"},
            {"mountPath": "/etc/istio/proxy", "name": "istio-envoy"},
            {"mountPath": "/var/run/secrets/tokens", "name": "istio-token"},
            {"mountPath": "/etc/istio/pod", "name": "istio-podinfo"},
        ],
    });
    if native {
        proxy["restartPolicy"] = json!("Always");
        proxy["startupProbe"] = ready_probe(600, 1);
        proxy["lifecycle"] = json!({"preStop": {"exec": {"command": [
            "pilot-agent", "request", "--debug-port=15020", "POST", "drain",
        ]}}});
    } else if hold {
        proxy["lifecycle"] = json!({"postStart": {"exec": {"command": ["pilot-agent", "wait"]}}});
    }
    proxy
}

fn ready_probe(failure_threshold: u32, period_seconds: u32) -> Value {
    json!({
        "httpGet": {"path": "/healthz/ready", "port": 15021},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 3,
        "failureThreshold": failure_threshold,
    })
}

fn resources() -> Value {
    json!({
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "10m", "memory": "40Mi"},
    })
}

fn unprivileged() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": {"drop": ["ALL"]},
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "runAsGroup": PROXY_ID,
        "runAsNonRoot": true,
        "runAsUser": PROXY_ID,
    })
}

fn add_volumes(pod: &mut Value) {
    let field = |path: &str, field: &str| json!({"path": path, "fieldRef": {"fieldPath": field}});
    let token = json!({"path": "istio-token", "expirationSeconds": 43200, "audience": "istio-ca"});
    let volumes = [
        json!({"name": "istio-envoy", "emptyDir": {"medium": "Memory"}}),
        json!({"name": "istio-data", "emptyDir": {}}),
        json!({"name": "istio-podinfo", "downwardAPI": {"items": [
            field("labels", "metadata.labels"),
            field("annotations", "metadata.annotations"),
        ]}}),
        json!({"name": "istio-token", "projected": {"sources": [{"serviceAccountToken": token}]}}),
        json!({"name": "istiod-ca-cert", "configMap": {"name": "istio-ca-root-cert"}}),
    ];
    list(&mut pod["spec"]["volumes"]).splice(0..0, volumes);
}

fn add_metadata(pod: &mut Value, mesh: &Mesh, sidecar: Sidecar) {
    let redirection = match mesh.redirection {
        Redirection::Init => INIT,
        Redirection::Cni => VALIDATION,
    };
    let (inits, containers) = match sidecar {
        Sidecar::Classic => (vec![redirection], vec![PROXY]),
        Sidecar::Native => (vec![redirection, PROXY], vec![]),
    };
    let status = json!({
        "initContainers": inits,
        "containers": containers,
        "volumes": ["istio-envoy", "istio-data", "istio-podinfo", "istio-token", "istiod-ca-cert"],
        "imagePullSecrets": null,
        "revision": "default",
    });
    pod["metadata"]["annotations"][STATUS] = json!(status.to_string());
    pod["metadata"]["annotations"]["istio.io/rev"] = json!("default");
    pod["metadata"]["labels"]["security.istio.io/tlsMode"] = json!("istio");
}

/// A list that may not be there yet.
fn list(value: &mut Value) -> &mut Vec<Value> {
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().expect("a list, as in every pod")
}
