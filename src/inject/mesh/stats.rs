//! Makes istio-proxy show how many upgraded connections are open, which it hides by default.

use serde_json::Value;

use super::super::{read, yaml};
use super::ISTIO_PROXY;
use super::proxy_config::{ANNOTATION as CONFIG, RENDERED};
use crate::inflight::upgrades::STAT_REGEXP;

/// Regular expressions of stats to be kept, with commas between. Istio's agent reads it when it writes
/// Envoy's bootstrap, and adds its own: `getStatsOptions`, pkg/bootstrap/config.go. The alternative, a
/// suffix, would also match every outbound listener.
const ANNOTATION: &str = "sidecar.istio.io/statsInclusionRegexps";

/// Asks for the gauge. The annotation takes the place of the proxy configuration's list, which is said
/// again therefore where nobody but Tidegate has written the annotation.
pub(super) fn include(after: &mut Value) {
    let said = read::annotation(after, ANNOTATION).unwrap_or_default();
    let others = |text: &&str| !text.is_empty() && *text != STAT_REGEXP;
    let said: Vec<String> = said
        .split(',')
        .map(str::trim)
        .filter(others)
        .map(str::to_owned)
        .collect();
    let mut list = if said.is_empty() {
        configured(after)
    } else {
        said
    };
    list.retain(|text| others(&text.as_str()));
    list.push(STAT_REGEXP.to_owned());
    read::set_annotation(after, ANNOTATION, list.join(","));
}

/// The list of the proxy configuration: the mesh's and the pod's together once Istio has rendered it,
/// before that the pod's alone.
fn configured(pod: &Value) -> Vec<String> {
    let proxy = read::all_containers(pod).find(|c| read::name(c) == ISTIO_PROXY);
    let rendered = proxy
        .and_then(|proxy| read::env(proxy, RENDERED))
        .and_then(|text| serde_json::from_str::<Value>(text).ok());
    // What cannot be read is warned of elsewhere.
    let own = || yaml::parse(read::annotation(pod, CONFIG)?).ok();
    let config = rendered.or_else(own).unwrap_or_default();
    let list = read::items(&config["proxyStatsMatcher"]["inclusionRegexps"]);
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}
