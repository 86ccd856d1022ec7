//! Injection: what a pod needs so that Tidegate drains it, as one pure function on JSON values.
//!
//! The webhook and `tidegate inject` share it. It is idempotent: injected again, also after Istio's
//! webhook has changed the pod in between, a pod comes out as if injected once, at the end. Fields
//! that it does not know stay as they are.

mod container;
pub mod files;
mod gate;
mod grace;
mod hooks;
mod knative;
mod mesh;
pub mod patch;
mod read;
mod settings;
mod status;
pub mod yaml;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::config::{ConfigError, Mode};
pub use knative::annotate_template;
use patch::Op;
use settings::Settings;

/// The sidecar's name in a pod.
pub const CONTAINER: &str = "tidegate";
/// A label that Knative puts on every pod of a revision, and nobody else on theirs:
/// pkg/reconciler/revision/resources/meta.go.
pub const REVISION_LABEL: &str = "serving.knative.dev/revisionUID";
/// The label or annotation that asks for the sidecar ("true") or forbids it ("false").
pub const INJECT: &str = "tidegate.dev/inject";
/// The annotation that says what injection made of the pod, as JSON.
pub const STATUS: &str = "tidegate.dev/status";
/// The image where nobody names one.
pub const DEFAULT_IMAGE: &str = concat!("tidegate:", env!("CARGO_PKG_VERSION"));

// ===== what goes in =====

/// What a pod does not say about its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Tidegate's image, for pods that do not name one.
    pub image: String,
    /// Whether sidecars are native, where the pod does not show it.
    pub native_sidecars: NativeSidecars,
    /// Kubernetes 1.N of the oldest node, where known.
    pub kubernetes_minor: Option<u32>,
    /// The mesh's own `values.global.proxy.excludeInboundPorts`: a pod's annotation replaces it, so
    /// that it must be said again there.
    pub mesh_excluded_inbound_ports: Vec<u16>,
    /// The user and group of the sidecar.
    pub run_as: RunAs,
    /// Settings of the cluster's own, by name without prefix (`min-drain`). A pod without the
    /// annotation gets it with this value.
    pub defaults: BTreeMap<String, String>,
}

/// Whether sidecars are native (init containers that restart) in a pod that does not show it: once
/// istio-proxy is there in full, its place decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeSidecars {
    /// The annotation `sidecar.istio.io/nativeSidecar` decides, else the version of Kubernetes.
    #[default]
    Auto,
    /// They are.
    True,
    /// They are not.
    False,
}

/// The user and group of the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// These, one number for both.
    Id(u32),
    /// What the platform gives the pod. OpenShift admits only ids of the namespace's range, and
    /// keeps istio-proxy's apart from the others'.
    Platform,
}

impl Default for Cluster {
    fn default() -> Self {
        Cluster {
            image: DEFAULT_IMAGE.to_owned(),
            native_sidecars: NativeSidecars::Auto,
            kubernetes_minor: None,
            mesh_excluded_inbound_ports: Vec::new(),
            run_as: RunAs::Id(65532),
            defaults: BTreeMap::new(),
        }
    }
}

impl Cluster {
    /// Reads the defaults, so that a bad one is known before the first pod comes.
    ///
    /// # Errors
    ///
    /// Where a default is not a setting, or its value will not do.
    pub fn check(&self) -> Result<(), Refusal> {
        settings::check_defaults(&self.defaults)
    }
}

// ===== what comes out =====

/// What injection made of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Injection {
    /// The pod afterwards.
    pub pod: Value,
    /// What leads from the pod before to the pod afterwards (RFC 6902); empty where nothing changed.
    pub patch: Vec<Op>,
    /// What the pod's owner should know, a line each.
    pub warnings: Vec<String>,
    /// Why the pod was left alone, where it was.
    pub skipped: Option<Skip>,
}

impl Injection {
    fn skipped(pod: &Value, skip: Skip) -> Self {
        Injection {
            pod: pod.clone(),
            patch: Vec::new(),
            warnings: Vec::new(),
            skipped: Some(skip),
        }
    }
}

/// Why a pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// Neither Knative's nor asked for.
    #[error(
        "not selected: no label serving.knative.dev/revisionUID, and no label or annotation \
         tidegate.dev/inject: \"true\""
    )]
    NotSelected,
    /// `tidegate.dev/inject: "false"`.
    #[error("tidegate.dev/inject is \"false\"")]
    OptedOut,
}

/// Why a pod cannot get the sidecar, with the cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is not what a pod looks like.
    #[error("{at}: {problem}")]
    Malformed {
        /// Where in the pod, as a JSON pointer.
        at: String,
        /// What is wrong there, with the cure.
        problem: &'static str,
    },
    /// A setting will not do.
    #[error("{0}")]
    Settings(#[from] ConfigError),
    /// A cluster's default is of no setting.
    #[error("{0:?} is not a setting, so it can have no default; take it out")]
    UnknownSetting(String),
    /// The sidecar is a Linux binary.
    #[error(
        "a Windows pod: tidegate runs on Linux only; set tidegate.dev/inject: \"false\" on this pod"
    )]
    Windows,
    /// The port would be the node's.
    #[error(
        "hostNetwork: the hooks' port would be the node's, open to all that reach it and taken by \
         the first pod; set hostNetwork: false, or tidegate.dev/inject: \"false\""
    )]
    HostNetwork,
    /// The sidecar would inherit istio-proxy's identity.
    #[error(
        "securityContext.{field} is 1337, istio-proxy's, and the sidecar would inherit it: what it \
         sends would be taken for Envoy's, what it gets redirected; use another id"
    )]
    ProxyIdentity {
        /// `runAsUser` or `runAsGroup`.
        field: &'static str,
    },
    /// Another container has the hooks' port.
    #[error(
        "port {port}, where the hooks listen, is declared by container {container:?}; set \
         tidegate.dev/hook-port to a free one"
    )]
    PortTaken {
        /// The port.
        port: u16,
        /// Who declares it.
        container: String,
    },
    /// Another container has one of the gate's ports, or one that queue-proxy is to move to.
    #[error(
        "port {port}, which the gate needs, is declared by container {container:?}; set \
         tidegate.dev/gate-ports to {listen}:PORT with a free one, or tidegate.dev/gate: off"
    )]
    GatePortTaken {
        /// The port.
        port: u16,
        /// Where the gate is to listen.
        listen: u16,
        /// Who declares it.
        container: String,
    },
}

// ===== the function =====

/// Whether the pod (or `{metadata, spec}` of a pod template) is to have the sidecar. "false" wins over
/// "true", on a label as on an annotation. Any other text counts as wished for, so that [`inject`] can
/// say what is wrong with it.
///
/// # Errors
///
/// Why it is left alone.
pub fn selected(pod: &Value) -> Result<(), Skip> {
    let metadata = &pod["metadata"];
    let mut asked = metadata["labels"][REVISION_LABEL].is_string();
    for wish in [
        &metadata["labels"][INJECT],
        &metadata["annotations"][INJECT],
    ] {
        match wish.as_str().map(str::trim) {
            Some("false") => return Err(Skip::OptedOut),
            Some(text) => asked |= !text.is_empty(),
            // Without quotes it is no string, and is refused later.
            None => asked |= !wish.is_null(),
        }
    }
    if asked {
        Ok(())
    } else {
        Err(Skip::NotSelected)
    }
}

/// Injects the sidecar into a pod, or into the `{metadata, spec}` of a pod template. Pure: the answer
/// depends on nothing else.
///
/// # Errors
///
/// Where the pod is selected and cannot have it.
pub fn inject(pod: &Value, cluster: &Cluster) -> Result<Injection, Refusal> {
    if let Err(skip) = selected(pod) {
        return Ok(Injection::skipped(pod, skip));
    }
    read::check(pod)?;
    refuse_platform(pod, cluster)?;
    let settings = Settings::new(pod, cluster);
    let hook_port = settings.hook_port();
    refuse_taken(pod, hook_port)?;

    let mut warnings = Vec::new();
    let grace = grace::of(pod, &settings, &mut warnings);
    let plan = mesh::plan(pod, cluster, &settings, &mut warnings);
    let gate_ports = gate::ports(pod, &settings);
    let computed = settings::Computed {
        mode: plan.mode,
        grace,
        workload_ports: settings.workload_ports(gate_ports.as_deref(), &mut warnings),
        gate_ports,
        workload_protocol: settings.workload_protocol(),
    };
    let config = settings.resolve(&computed)?;
    gate::check(pod, &config)?;

    let mut after = pod.clone();
    grace::write(&mut after, grace);
    settings.write_defaults(&mut after);
    let held = hooks::write(&mut after, &config, &mut warnings);
    mesh::write(
        &mut after,
        &plan,
        &config,
        cluster,
        grace.seconds,
        &mut warnings,
    );
    let own = container::Own {
        plan: &plan,
        computed: &computed,
        config: &config,
        cluster,
    };
    container::write(&mut after, &own, &mut warnings);
    gate::write(&mut after, &config, &mut warnings);
    status::write(&mut after, &plan, &config, &held, grace.seconds);
    warnings.extend(crate::config::warnings(&config));
    Ok(Injection {
        patch: patch::diff(pod, &after),
        pod: after,
        warnings,
        skipped: None,
    })
}

/// The mode that the sidecar of an injected pod was given.
fn shown_mode(pod: &Value) -> Option<&str> {
    let own = read::all_containers(pod).find(|c| read::name(c) == CONTAINER)?;
    read::env(own, &crate::config::settings::MODE.environment())
}

/// What of the mesh's and the sidecar's shape was decided.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// What there is of istio-proxy.
    proxy: mesh::Proxy,
    /// Whether the sidecar is a native one.
    native: bool,
    /// How istio-proxy will be ended.
    mode: Mode,
}

fn refuse_platform(pod: &Value, cluster: &Cluster) -> Result<(), Refusal> {
    let spec = &pod["spec"];
    if spec["os"]["name"] == "windows" || spec["nodeSelector"]["kubernetes.io/os"] == "windows" {
        return Err(Refusal::Windows);
    }
    if spec["hostNetwork"] == true {
        return Err(Refusal::HostNetwork);
    }
    if cluster.run_as == RunAs::Platform {
        let own = read::all_containers(pod).find(|c| read::name(c) == CONTAINER);
        for field in ["runAsUser", "runAsGroup"] {
            let inherited = &spec["securityContext"][field];
            let effective = own
                .map(|container| &container["securityContext"][field])
                .filter(|value| !value.is_null())
                .unwrap_or(inherited);
            if *effective == mesh::PROXY_ID {
                return Err(Refusal::ProxyIdentity { field });
            }
        }
    }
    Ok(())
}

fn refuse_taken(pod: &Value, port: u16) -> Result<(), Refusal> {
    let taken = read::all_containers(pod)
        .filter(|container| read::name(container) != CONTAINER)
        .find(|container| read::tcp_ports(container).any(|declared| declared == port));
    match taken {
        Some(container) => Err(Refusal::PortTaken {
            port,
            container: read::name(container).to_owned(),
        }),
        None => Ok(()),
    }
}
