//! What Istio's sidecar injector does to a pod, as far as it touches what Tidegate touches.

use serde_json::{Map, Value, json};

/// A version and set-up of Istio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Istio {
    /// Whether istio-proxy is a native sidecar (1.27 and newer by default).
    pub(crate) native: bool,
    /// Whether it rewrites httpGet hooks (1.25 and newer).
    pub(crate) rewrites: bool,
    /// Whether rules are written by the CNI plugin, so that there is no istio-init.
    pub(crate) cni: bool,
    /// Whether istio-proxy comes first among the containers (holdApplicationUntilProxyStarts).
    pub(crate) first: bool,
    /// The mesh's own excluded inbound ports.
    pub(crate) excluded: &'static str,
}

impl Istio {
    /// All that there are.
    pub(crate) fn all() -> impl Iterator<Item = Istio> {
        (0..16).map(|bits: u8| Istio {
            native: bits & 1 != 0,
            rewrites: bits & 2 != 0,
            cni: bits & 4 != 0,
            first: bits & 8 != 0,
            excluded: "9443",
        })
    }

    /// What the injector makes of a pod.
    pub(crate) fn inject(self, pod: &Value) -> Value {
        let mut pod = pod.clone();
        let mut probers = Map::new();
        if self.rewrites {
            for list in ["initContainers", "containers"] {
                for container in list_of(&mut pod, list) {
                    rewrite(container, &mut probers);
                }
            }
        }
        let mut proxy = json!({
            "name": "istio-proxy",
            "image": "docker.io/istio/proxyv2:1.27.0",
            "env": [
                {"name": "PROXY_CONFIG", "value": proxy_config(&pod).to_string()},
                {"name": "ISTIO_KUBE_APP_PROBERS", "value": Value::Object(probers).to_string()},
            ],
            "securityContext": {"runAsUser": 1337, "runAsGroup": 1337},
        });
        // It merges its own into a part that is there, and moves it where it belongs.
        let containers = list_of(&mut pod, "containers");
        let part = containers.iter().position(|c| c["name"] == "istio-proxy");
        let lifecycle = part.map(|index| containers.remove(index)["lifecycle"].take());
        if self.native {
            proxy["restartPolicy"] = json!("Always");
            proxy["lifecycle"] = json!({"preStop": {"exec": {"command":
                ["pilot-agent", "request", "--debug-port=15020", "POST", "drain"]}}});
        }
        if let Some(lifecycle) = lifecycle.filter(Value::is_object) {
            proxy["lifecycle"] = lifecycle;
        }
        if !self.native {
            let at = if self.first { 0 } else { containers.len() };
            containers.insert(at, proxy.clone());
        }
        let mut inits = Vec::new();
        if !self.cni {
            let exclude = "traffic.sidecar.istio.io/excludeInboundPorts";
            let excluded = pod["metadata"]["annotations"][exclude].as_str();
            let excluded = format!("15090,15021,{},15020", excluded.unwrap_or(self.excluded));
            inits.push(json!({
                "name": "istio-init",
                "image": "docker.io/istio/proxyv2:1.27.0",
                "args": ["istio-iptables", "-p", "15001", "-b", "*", "-d", excluded],
            }));
        }
        if self.native {
            inits.push(proxy);
        }
        if !inits.is_empty() {
            inits.append(list_of(&mut pod, "initContainers"));
            pod["spec"]["initContainers"] = Value::Array(inits);
        }
        pod["metadata"]["annotations"]["sidecar.istio.io/status"] = json!("{}");
        pod
    }
}

/// The mesh's proxy configuration with the pod's own over it, as far as it is about stats.
fn proxy_config(pod: &Value) -> Value {
    let own = pod["metadata"]["annotations"]["proxy.istio.io/config"].as_str();
    let own = own.and_then(|text| tidegate::inject::yaml::parse(text).ok());
    match own.unwrap_or_default().get("proxyStatsMatcher") {
        Some(matcher) => json!({"proxyStatsMatcher": matcher}),
        None => json!({"proxyStatsMatcher": {"inclusionRegexps": ["of_the_mesh.*"]}}),
    }
}

fn list_of<'a>(pod: &'a mut Value, list: &str) -> &'a mut Vec<Value> {
    let spec = pod["spec"].as_object_mut().unwrap();
    let list = spec.entry(list).or_insert_with(|| json!([]));
    list.as_array_mut().unwrap()
}

fn rewrite(container: &mut Value, probers: &mut Map<String, Value>) {
    if container["lifecycle"]["preStop"]["httpGet"].is_object() {
        let name = container["name"].as_str().unwrap();
        let path = format!("/app-lifecycle/{name}/prestopz");
        let hook = &mut container["lifecycle"]["preStop"];
        probers.insert(path.clone(), hook.take());
        *hook = json!({"httpGet": {"path": path, "port": 15020, "scheme": "HTTP"}});
    }
}

/// A pod without what may differ by the order of the two webhooks without meaning anything: Istio's
/// record of the hooks it found, the order of a port list, empty lists.
pub(crate) fn without_traces(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["initContainers", "containers"] {
        for container in list_of(&mut pod, list) {
            if container["name"] == "istio-proxy" {
                container["env"] = Value::Null;
            }
            if container["name"] == "istio-init" {
                let ports = container["args"]
                    .as_array_mut()
                    .unwrap()
                    .last_mut()
                    .unwrap();
                let items = ports.as_str().unwrap().split(',').map(str::trim);
                let mut sorted: Vec<_> = items.filter(|item| !item.is_empty()).collect();
                sorted.sort_unstable();
                *ports = json!(sorted.join(","));
            }
        }
    }
    pod
}
