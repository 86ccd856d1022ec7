//! A Knative Service's template, which takes no sidecar: only its annotations can be prepared.

use serde_json::{Value, json};

use super::settings::{Computed, Settings};
use super::{Cluster, Injection, Refusal, Skip, grace, mesh, patch, read, selected};
use crate::config::Mode;

/// Prepares the template of a ksvc, a Configuration or a Revision. Knative takes no lifecycle, no grace
/// period and no native sidecar there (pkg/apis/serving/fieldmask.go), so that the pod itself is left to
/// the webhook: the hooks' port is excluded and the cluster's defaults are said, nothing else.
///
/// # Errors
///
/// Where the template is malformed or one of its settings is bad.
pub fn annotate_template(template: &Value, cluster: &Cluster) -> Result<Injection, Refusal> {
    // Its pods will have the label that selects them, so that all but an "off" is a yes.
    if selected(template) == Err(Skip::OptedOut) {
        return Ok(Injection::skipped(template, Skip::OptedOut));
    }
    // Its containers are Knative's to judge, and need no names.
    read::check_metadata(template)?;
    let settings = Settings::new(template, cluster);
    // queue-proxy is not there yet, nor its grace period: what is said of them is not for here.
    let mut unused = Vec::new();
    let computed = Computed {
        mode: Mode::Auto,
        grace: grace::of(&json!({"spec": {}}), &settings, &mut unused),
        workload_ports: settings.asked_ports(),
        gate_ports: None,
        workload_protocol: settings.workload_protocol(),
    };
    let config = settings.resolve(&computed)?;
    let mut warnings = vec![
        "a Knative template takes no sidecar: only its annotations were prepared; the webhook injects its \
         pods"
            .to_owned(),
    ];
    let mut after = template.clone();
    settings.write_defaults(&mut after);
    mesh::exclude(&mut after, config.hook_port, cluster, &mut warnings);
    Ok(Injection {
        patch: patch::diff(template, &after),
        pod: after,
        warnings,
        skipped: None,
    })
}
