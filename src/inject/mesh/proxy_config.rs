//! What the mesh's proxy configuration says about the end of istio-proxy, and where that contradicts
//! itself or the pod's grace period.

use std::time::Duration;

use serde_json::Value;

use super::super::{read, yaml};
use super::ISTIO_PROXY;
use crate::config::{Mode, duration};

/// A pod's own proxy configuration, YAML or JSON.
pub(super) const ANNOTATION: &str = "proxy.istio.io/config";
/// The mesh's, JSON, as Istio's injector writes it into istio-proxy's environment. The annotation is
/// merged over it.
pub(super) const RENDERED: &str = "PROXY_CONFIG";
const DRAIN: &str = "terminationDrainDuration";
/// Makes the agent wait for connections to end, and ignore terminationDrainDuration.
const EXIT_ON_ZERO: &str = "EXIT_ON_ZERO_ACTIVE_CONNECTIONS";
/// Istio read it until 1.9; people still set it.
const LONG_DEAD: &str = "TERMINATION_DRAIN_DURATION_SECONDS";
/// Istio's own: pkg/config/mesh/mesh.go.
const DRAIN_DEFAULT: Duration = Duration::from_secs(5);

/// Says what will not work.
pub(super) fn warn(pod: &Value, mode: Mode, grace: u64, warnings: &mut Vec<String>) {
    let own = match read::annotation(pod, ANNOTATION).map(yaml::parse) {
        None => Value::Null,
        Some(Ok(config)) => config,
        Some(Err(error)) => {
            warnings.push(format!("{ANNOTATION} cannot be read: {error}"));
            Value::Null
        }
    };
    let proxy = read::all_containers(pod).find(|c| read::name(c) == ISTIO_PROXY);
    let mesh: Value = proxy
        .and_then(|proxy| read::env(proxy, RENDERED))
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default();

    let variable = |name: &str| -> Option<String> {
        let metadata = |config: &Value| match &config["proxyMetadata"][name] {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            // Istio takes strings only; what somebody wrote without quotes still shows what is meant.
            other => Some(other.to_string()),
        };
        let literal = || read::env(proxy?, name).map(str::to_owned);
        metadata(&own).or_else(|| metadata(&mesh)).or_else(literal)
    };
    let drain = [&own, &mesh]
        .into_iter()
        .map(|config| &config[DRAIN])
        .find(|value| !value.is_null());

    if variable(EXIT_ON_ZERO).as_deref() == Some("true") && drain.is_some() {
        warnings.push(format!(
            "{EXIT_ON_ZERO} makes istio-proxy ignore {DRAIN}: take one of the two out"
        ));
    }
    if variable(LONG_DEAD).is_some() {
        warnings.push(format!(
            "{LONG_DEAD} has no effect since Istio 1.10; Tidegate needs neither it nor {DRAIN}"
        ));
    }
    if mode == Mode::Annotate {
        short(drain, grace, warnings);
    }
}

/// In `annotate` mode Envoy lives no longer than this after its SIGTERM, so that it has to last for the
/// whole grace period.
fn short(drain: Option<&Value>, grace: u64, warnings: &mut Vec<String>) {
    let lasts = match drain {
        None => Some(DRAIN_DEFAULT),
        Some(value) => value.as_str().and_then(|text| duration::parse(text).ok()),
    };
    if lasts.is_none_or(|lasts| lasts < Duration::from_secs(grace)) {
        let says = match (drain, lasts) {
            (None, _) => format!("Istio's default of {}", duration::format(DRAIN_DEFAULT)),
            (Some(value), _) => value.to_string(),
        };
        warnings.push(format!(
            "in annotate mode Envoy has to last for the grace period of {grace} s, and {DRAIN} is {says}: \
             set {ANNOTATION}: '{{\"{DRAIN}\": \"{grace}s\"}}'"
        ));
    }
}
