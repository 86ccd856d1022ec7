//! Keeps the hooks' port out of the mesh's interception: in the pod's annotation, and in istio-init's
//! arguments where those are rendered already.

use serde_json::Value;

use super::super::{Cluster, read};

/// The pod's ports that are not intercepted. It replaces the mesh's own list.
pub(super) const EXCLUDE: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
const INCLUDE: &str = "traffic.sidecar.istio.io/includeInboundPorts";
/// The container that writes the redirection rules, where no CNI plugin does.
const ISTIO_INIT: &str = "istio-init";
/// Its flag for the excluded ports, short and long: tools/istio-iptables/pkg/cmd/root.go.
const FLAGS: [&str; 2] = ["-d", "--istio-local-exclude-ports"];

/// Excludes a port. What the annotation says already stays; where there is none, the mesh's own list is
/// said again, since the annotation takes its place.
pub(in crate::inject) fn exclude(
    after: &mut Value,
    port: u16,
    cluster: &Cluster,
    warnings: &mut Vec<String>,
) {
    let before = match read::annotation(after, EXCLUDE) {
        Some(text) => text.to_owned(),
        None => {
            let mesh = cluster.mesh_excluded_inbound_ports.iter();
            mesh.map(u16::to_string).collect::<Vec<_>>().join(",")
        }
    };
    read::set_annotation(after, EXCLUDE, union(&before, port));
    if read::annotation(after, INCLUDE).is_some_and(|list| lists(list, port)) {
        warnings.push(format!(
            "{INCLUDE} lists {port}, the hooks' port, so that Envoy takes the kubelet's calls; take it out"
        ));
    }
    let inits = read::list_mut(after, "initContainers");
    for init in inits.into_iter().flatten() {
        if read::name(init) == ISTIO_INIT
            && let Some(args) = init.get_mut("args").and_then(Value::as_array_mut)
        {
            rendered(args, port);
        }
    }
}

fn lists(list: &str, port: u16) -> bool {
    let port = port.to_string();
    list.split(',').any(|item| item.trim() == port)
}

fn union(list: &str, port: u16) -> String {
    let list = list.trim();
    if lists(list, port) {
        list.to_owned()
    } else if list.is_empty() {
        port.to_string()
    } else {
        format!("{},{port}", list.trim_end_matches(','))
    }
}

/// Adds the port to the list that istio-init's arguments hold: `-d LIST`, or `-d=LIST`.
fn rendered(args: &mut [Value], port: u16) {
    for index in 0..args.len() {
        let Some(word) = args[index].as_str() else {
            continue;
        };
        if FLAGS.contains(&word) {
            if let Some(list) = args.get(index + 1).and_then(Value::as_str) {
                args[index + 1] = union(list, port).into();
            }
            return;
        }
        if let Some((flag, list)) = word.split_once('=')
            && FLAGS.contains(&flag)
        {
            args[index] = format!("{flag}={}", union(list, port)).into();
            return;
        }
    }
}
