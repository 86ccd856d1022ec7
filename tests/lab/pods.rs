//! The shapes of the lab's pods: a Knative Service's pod in all its variants, a client.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate::inject::yaml;

use crate::config::render;
use crate::images::{APP, QUEUE};

/// Which sidecar Istio gives a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sidecar {
    /// A regular container.
    Classic,
    /// An init container that is restarted.
    Native,
    /// None.
    None,
}

/// A pod of a Knative Service. Everything beside these is as Knative makes it; what Istio and Tidegate
/// add, their webhooks do.
#[derive(Clone, Debug)]
pub(crate) struct Pod {
    name: String,
    service: String,
    sidecar: Sidecar,
    tidegate: bool,
    protocol: Protocol,
    args: Vec<String>,
    annotations: Vec<(String, String)>,
    labels: Vec<(String, String)>,
    timeout_seconds: u64,
    liveness: Option<Value>,
}

/// What a revision speaks: the name of its port says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1, on queue-proxy's port 8012.
    Http1,
    /// HTTP/2 without TLS, on queue-proxy's port 8013.
    H2c,
}

impl Protocol {
    fn queue_port(self) -> u16 {
        match self {
            Protocol::Http1 => 8012,
            Protocol::H2c => 8013,
        }
    }

    /// Of the Service's port: Istio goes by it.
    fn port_name(self) -> &'static str {
        match self {
            Protocol::Http1 => "http",
            Protocol::H2c => "http2",
        }
    }
}

impl Pod {
    /// With a native sidecar and Tidegate, an app that ends with its last request, and 300 s.
    pub(crate) fn new(name: &str) -> Pod {
        Pod {
            name: name.to_owned(),
            service: name.to_owned(),
            sidecar: Sidecar::Native,
            tidegate: true,
            protocol: Protocol::Http1,
            args: vec!["serve".to_owned()],
            annotations: Vec::new(),
            labels: Vec::new(),
            timeout_seconds: 300,
            liveness: None,
        }
    }

    /// Which sidecar it gets.
    pub(crate) fn sidecar(mut self, sidecar: Sidecar) -> Pod {
        self.sidecar = sidecar;
        self
    }

    /// As if Tidegate were not there.
    pub(crate) fn without_tidegate(mut self) -> Pod {
        self.tidegate = false;
        self
    }

    /// The arguments of the app after `serve`, as `--on-sigterm exit`.
    pub(crate) fn app(mut self, args: &[&str]) -> Pod {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// An annotation of the revision's template.
    pub(crate) fn annotation(mut self, name: &str, value: &str) -> Pod {
        self.annotations.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A label of the revision's template.
    pub(crate) fn label(mut self, name: &str, value: &str) -> Pod {
        self.labels.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Behind the Service of this name, beside others; its own otherwise.
    pub(crate) fn behind(mut self, service: &str) -> Pod {
        service.clone_into(&mut self.service);
        self
    }

    /// What the revision speaks.
    pub(crate) fn protocol(mut self, protocol: Protocol) -> Pod {
        self.protocol = protocol;
        self
    }

    /// A livenessProbe of the user container, as Knative passes it on.
    pub(crate) fn liveness(mut self, probe: Value) -> Pod {
        self.liveness = Some(probe);
        self
    }

    /// The revision's `timeoutSeconds`, which Knative makes the grace period.
    pub(crate) fn timeout_seconds(mut self, seconds: u64) -> Pod {
        self.timeout_seconds = seconds;
        self
    }

    /// The object to create.
    pub(crate) fn object(&self) -> Result<Value> {
        let mut pod = template(include_str!("pods/knative.yaml"), &self.name)?;
        let metadata = &mut pod["metadata"];
        metadata["labels"]["app"] = json!(self.service);
        match self.sidecar {
            Sidecar::Classic => metadata["annotations"][NATIVE] = json!("false"),
            Sidecar::Native => metadata["annotations"][NATIVE] = json!("true"),
            Sidecar::None => metadata["labels"]["sidecar.istio.io/inject"] = json!("false"),
        }
        if !self.tidegate {
            metadata["labels"]["tidegate.dev/inject"] = json!("false");
        }
        for (name, value) in &self.annotations {
            metadata["annotations"][name] = json!(value);
        }
        for (name, value) in &self.labels {
            metadata["labels"][name] = json!(value);
        }
        let spec = &mut pod["spec"];
        spec["terminationGracePeriodSeconds"] = json!(self.timeout_seconds);
        spec["containers"][0]["args"] = json!(self.args);
        if let Some(probe) = &self.liveness {
            spec["containers"][0]["livenessProbe"] = probe.clone();
        }
        let queue = &mut spec["containers"][1];
        set_env(queue, TIMEOUT, &self.timeout_seconds.to_string());
        if self.protocol == Protocol::H2c {
            let port = self.protocol.queue_port();
            set_env(queue, SERVING_PORT, &port.to_string());
            queue["readinessProbe"]["httpGet"]["port"] = json!(port);
            for declared in queue["ports"].as_array_mut().into_iter().flatten() {
                if declared["name"] == "queue-port" {
                    declared["containerPort"] = json!(port);
                }
            }
            spec["containers"][0]["ports"][0]["name"] = json!("h2c");
        }
        Ok(pod)
    }

    /// The Service in front of it: `http://NAME.lab`.
    pub(crate) fn service(&self) -> Result<Value> {
        let mut service = template(include_str!("pods/service.yaml"), &self.service)?;
        let port = &mut service["spec"]["ports"][0];
        port["name"] = json!(self.protocol.port_name());
        port["targetPort"] = json!(self.protocol.queue_port());
        Ok(service)
    }
}

fn set_env(container: &mut Value, name: &str, value: &str) {
    let entries = container["env"].as_array_mut().into_iter().flatten();
    for entry in entries.filter(|entry| entry["name"] == name) {
        entry["value"] = json!(value);
    }
}

const NATIVE: &str = "sidecar.istio.io/nativeSidecar";
const TIMEOUT: &str = "REVISION_TIMEOUT_SECONDS";
const SERVING_PORT: &str = "QUEUE_SERVING_PORT";

/// A pod in the mesh that sends what it is told to.
pub(crate) fn client(name: &str) -> Result<Value> {
    template(include_str!("pods/client.yaml"), name)
}

/// The same outside the mesh.
pub(crate) fn client_outside(name: &str) -> Result<Value> {
    let mut client = client(name)?;
    client["metadata"]["labels"]["sidecar.istio.io/inject"] = json!("false");
    Ok(client)
}

fn template(text: &str, name: &str) -> Result<Value> {
    let filled = render(text, &[("name", name), ("app", APP), ("queue", QUEUE)])?;
    Ok(yaml::parse(&filled)?)
}
