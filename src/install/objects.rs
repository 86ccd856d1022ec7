//! The objects themselves; deploy/helm/tidegate has the same, and a test compares them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{CONFIGURATION, Certs, NAME, NAMESPACE_LABEL, Options, SelfSigned};
use crate::inject::{Cluster, INJECT, NativeSidecars, REVISION_LABEL, RunAs};
use crate::webhook::PATH;

/// Where the Secret is mounted.
const TLS_DIR: &str = "/etc/tidegate/tls";
/// The API server's patience, in seconds: a review takes milliseconds.
const TIMEOUT: u32 = 5;
/// 5 s until the endpoints have converged, 10 s for reviews in flight, and room.
const GRACE: u32 = 30;

/// All objects, in the order to apply them in; deterministic. `tls` is what [`Certs::SelfSigned`]
/// needs.
pub fn objects(options: &Options, tls: Option<&SelfSigned>) -> Vec<Value> {
    let Options {
        namespace,
        replicas: _,
        certs,
        network_policy: with_network_policy,
        cluster: _,
    } = options;
    let mut objects = vec![namespaces(namespace), service_account(namespace)];
    match certs {
        Certs::SelfSigned => objects.extend(tls.map(|tls| secret(namespace, tls))),
        Certs::CertManager => objects.extend(cert_manager(namespace)),
        // The annotation on the Service asks for it.
        Certs::OpenShift => {}
    }
    objects.push(service(namespace, *certs));
    objects.push(disruption_budget(namespace));
    if *with_network_policy {
        objects.push(network_policy(namespace));
    }
    objects.push(deployment(options));
    objects.push(configuration(namespace, *certs, tls));
    objects
}

fn labels() -> Value {
    json!({
        "app.kubernetes.io/name": "tidegate",
        "app.kubernetes.io/component": "webhook",
    })
}

fn metadata(namespace: &str, name: &str) -> Value {
    json!({"name": name, "namespace": namespace, "labels": labels()})
}

fn namespaces(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": namespace,
            "labels": {
                "app.kubernetes.io/name": "tidegate",
                "pod-security.kubernetes.io/enforce": "restricted",
            },
        },
    })
}

/// The webhook asks nothing of the API server.
fn service_account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(namespace, NAME),
        "automountServiceAccountToken": false,
    })
}

// ===== certificates =====

fn secret(namespace: &str, tls: &SelfSigned) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(namespace, NAME),
        "type": "kubernetes.io/tls",
        "data": {
            "ca.crt": STANDARD.encode(&tls.ca),
            "tls.crt": STANDARD.encode(&tls.cert),
            "tls.key": STANDARD.encode(&tls.key),
        },
    })
}

/// A CA between the self-signed issuer and the certificate: when the certificate is renewed, the
/// bundle that the API server trusts stays, so that no webhook is distrusted until it has the new one.
fn cert_manager(namespace: &str) -> [Value; 4] {
    let ca = format!("{NAME}-ca");
    let self_signed = format!("{NAME}-self-signed");
    let issuer = |name: &str, spec: Value| {
        json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Issuer",
            "metadata": metadata(namespace, name),
            "spec": spec,
        })
    };
    let certificate = |name: &str, spec: Value| {
        json!({
            "apiVersion": "cert-manager.io/v1",
            "kind": "Certificate",
            "metadata": metadata(namespace, name),
            "spec": spec,
        })
    };
    [
        issuer(&self_signed, json!({"selfSigned": {}})),
        certificate(
            &ca,
            json!({
                "isCA": true,
                "commonName": ca,
                "secretName": ca,
                "duration": "87600h",
                "privateKey": {"algorithm": "ECDSA", "size": 256},
                "issuerRef": {"kind": "Issuer", "name": self_signed},
            }),
        ),
        issuer(&ca, json!({"ca": {"secretName": ca}})),
        certificate(
            NAME,
            json!({
                "secretName": NAME,
                "dnsNames": [
                    format!("{NAME}.{namespace}"),
                    format!("{NAME}.{namespace}.svc"),
                    format!("{NAME}.{namespace}.svc.cluster.local"),
                ],
                "duration": "2160h",
                "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
                "issuerRef": {"kind": "Issuer", "name": ca},
            }),
        ),
    ]
}

// ===== the webhook =====

fn service(namespace: &str, certs: Certs) -> Value {
    let mut metadata = metadata(namespace, NAME);
    if certs == Certs::OpenShift {
        metadata["annotations"] =
            json!({"service.beta.openshift.io/serving-cert-secret-name": NAME});
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "selector": labels(),
            "ports": [{"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}],
        },
    })
}

fn disruption_budget(namespace: &str) -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(namespace, NAME),
        // With one replica, `minAvailable: 1` would keep its node from ever being drained.
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })
}

/// The API server and the kubelets have addresses that no selector knows, so who may come is left
/// open; out goes nothing.
fn network_policy(namespace: &str) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(namespace, NAME),
        "spec": {
            "podSelector": {"matchLabels": labels()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": [
                {"port": "https", "protocol": "TCP"},
                {"port": "http", "protocol": "TCP"},
            ]}],
            "egress": [],
        },
    })
}

fn deployment(options: &Options) -> Value {
    let mut pod_labels = labels();
    // Istio's sidecar would stand between the API server and the webhook.
    pod_labels["sidecar.istio.io/inject"] = json!("false");
    let spread = |key: &str| {
        json!({
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels()},
        })
    };
    let spec = json!({
        "serviceAccountName": NAME,
        "automountServiceAccountToken": false,
        "terminationGracePeriodSeconds": GRACE,
        // No user: the image has one, and OpenShift gives each namespace its own.
        "securityContext": {
            "runAsNonRoot": true,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            spread("kubernetes.io/hostname"),
            spread("topology.kubernetes.io/zone"),
        ],
        "containers": [container(options)],
        "volumes": [{"name": "tls", "secret": {"secretName": NAME}}],
    });
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(&options.namespace, NAME),
        "spec": {
            "replicas": options.replicas,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": labels()},
            "template": {"metadata": {"labels": pod_labels}, "spec": spec},
        },
    })
}

fn container(options: &Options) -> Value {
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "http", "scheme": "HTTP"},
            "periodSeconds": period,
            "timeoutSeconds": 2,
            "failureThreshold": failures,
        })
    };
    json!({
        "name": "webhook",
        "image": options.cluster.image,
        "args": arguments(&options.cluster),
        "ports": [
            {"name": "https", "containerPort": 8443, "protocol": "TCP"},
            {"name": "http", "containerPort": 8080, "protocol": "TCP"},
        ],
        "readinessProbe": probe("/readyz", 2, 1),
        "livenessProbe": probe("/livez", 10, 3),
        "resources": {
            "requests": {"cpu": "20m", "memory": "32Mi"},
            // Reviews that are read at once, and the largest of them as a tree.
            "limits": {"memory": "256Mi"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
        },
        "volumeMounts": [{"name": "tls", "mountPath": TLS_DIR, "readOnly": true}],
    })
}

/// The flags of `tidegate webhook` that make this cluster.
fn arguments(cluster: &Cluster) -> Vec<String> {
    let Cluster {
        image,
        native_sidecars,
        kubernetes_minor,
        mesh_excluded_inbound_ports,
        run_as,
        defaults,
    } = cluster;
    let native = match native_sidecars {
        NativeSidecars::Auto => "auto",
        NativeSidecars::True => "true",
        NativeSidecars::False => "false",
    };
    let mut arguments = vec![
        "webhook".to_owned(),
        format!("--cert={TLS_DIR}/tls.crt"),
        format!("--key={TLS_DIR}/tls.key"),
        format!("--image={image}"),
        format!("--native-sidecars={native}"),
    ];
    if let Some(minor) = kubernetes_minor {
        arguments.push(format!("--kubernetes-minor={minor}"));
    }
    if !mesh_excluded_inbound_ports.is_empty() {
        let ports: Vec<String> = mesh_excluded_inbound_ports
            .iter()
            .map(u16::to_string)
            .collect();
        arguments.push(format!("--mesh-excluded-ports={}", ports.join(",")));
    }
    arguments.push(match run_as {
        RunAs::Id(id) => format!("--run-as={id}"),
        RunAs::Platform => "--run-as=platform".to_owned(),
    });
    for (name, value) in defaults {
        arguments.push(format!("--default={name}={value}"));
    }
    arguments
}

// ===== the configuration =====

fn configuration(namespace: &str, certs: Certs, tls: Option<&SelfSigned>) -> Value {
    let mut metadata = json!({"name": CONFIGURATION, "labels": labels()});
    match certs {
        Certs::SelfSigned => {}
        Certs::CertManager => {
            let from = format!("{namespace}/{NAME}");
            metadata["annotations"] = json!({"cert-manager.io/inject-ca-from": from});
        }
        Certs::OpenShift => {
            metadata["annotations"] = json!({"service.beta.openshift.io/inject-cabundle": "true"});
        }
    }
    let is_revision = |operator: &str| json!({"key": REVISION_LABEL, "operator": operator});
    let not_refused = json!({"key": INJECT, "operator": "NotIn", "values": ["false"]});
    let revisions = json!([is_revision("Exists"), not_refused]);
    // Any word but "false" counts, so that a misspelt "true" is told so.
    let asked = json!([
        {"key": INJECT, "operator": "Exists"},
        not_refused,
        is_revision("DoesNotExist"),
    ]);
    let webhook = |name: &str, selector: Value| {
        let mut client = Map::new();
        if let Some(tls) = tls {
            client.insert("caBundle".to_owned(), json!(STANDARD.encode(&tls.ca)));
        }
        let service = json!({"namespace": namespace, "name": NAME, "path": PATH, "port": 443});
        client.insert("service".to_owned(), service);
        json!({
            "name": format!("{name}.{CONFIGURATION}"),
            "clientConfig": client,
            "admissionReviewVersions": ["v1"],
            "rules": [{
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "scope": "Namespaced",
            }],
            "objectSelector": {"matchExpressions": selector},
            "namespaceSelector": {"matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", namespace],
                },
                {"key": NAMESPACE_LABEL, "operator": "NotIn", "values": ["disabled"]},
            ]},
            "matchPolicy": "Equivalent",
            // After Istio's webhook has added its containers, ours is asked again.
            "reinvocationPolicy": "IfNeeded",
            // A webhook that is down must not stop pods.
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT,
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": metadata,
        "webhooks": [webhook("revisions", revisions), webhook("asked", asked)],
    })
}
