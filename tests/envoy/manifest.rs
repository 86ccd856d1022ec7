//! What a kubelet reads in an injected pod: the sidecar's process and environment, every container's
//! hook, who is stopped after whom, the grace period.
//!
//! Nothing that injection writes is said here again: a pod that lacks it does not start, or does not
//! drain.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::inject::{CONTAINER, Cluster, inject, yaml};
use tidegate::standin::agent;
use tidegate::standin::kubelet::PreStop;

use crate::netns::POD_IP;
use crate::sidecar::{HOOKS, run};

/// Where the binary is in the image; also the image's entry point.
pub(crate) const BINARY: &str = "/tidegate";

// ===== a pod =====

/// A fixture with these annotations on top.
pub(crate) fn fixture<'a>(
    name: &str,
    annotations: impl IntoIterator<Item = (String, &'a str)>,
) -> Value {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pods");
    let text = std::fs::read_to_string(fixtures.join(format!("{name}.yaml")));
    let mut pod = yaml::parse(&text.expect("there is such a fixture")).expect("a pod");
    for (annotation, text) in annotations {
        pod["metadata"]["annotations"][annotation] = json!(text);
    }
    pod
}

/// A container, as far as its end goes.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// An init container with restartPolicy Always.
    pub(crate) native: bool,
    pub(crate) pre_stop: PreStop,
}

/// What runs in a container.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    /// The binary and its arguments.
    pub(crate) words: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
}

/// An injected pod.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    /// terminationGracePeriodSeconds.
    pub(crate) grace: Duration,
    pub(crate) sidecar: Program,
    /// What istio-proxy is told to show of Envoy's stats besides its own.
    pub(crate) stats_regexps: String,
    /// All that are there when the pod is deleted; native sidecars first, in their order.
    pub(crate) containers: Vec<Container>,
}

impl Manifest {
    /// Injects a pod and reads what came out, with some of the sidecar's variables replaced.
    pub(crate) fn inject(pod: &Value, told: &[(&str, &str)]) -> Manifest {
        let injection = inject(pod, &Cluster::default()).expect("this pod can have the sidecar");
        for warning in &injection.warnings {
            println!("warning: {warning}");
        }
        assert_eq!(injection.skipped, None);
        let pod = injection.pod;
        let own = containers(&pod).find(|(_, it)| it["name"] == CONTAINER);
        let (_, own) = own.expect("the sidecar is in the pod");
        let mut sidecar = Program {
            words: command(own),
            env: environment(own, &pod),
        };
        for (variable, value) in told {
            let before = sidecar.env.insert((*variable).into(), (*value).into());
            assert!(before.is_some(), "injection writes no {variable}");
        }
        let containers = containers(&pod).map(|(native, container)| Container {
            name: text(&container["name"]),
            native,
            pre_stop: pre_stop(&container["lifecycle"]["preStop"], &sidecar.env),
        });
        let grace = pod["spec"]["terminationGracePeriodSeconds"].as_u64();
        Manifest {
            grace: Duration::from_secs(grace.expect("the fixtures say it")),
            stats_regexps: annotation(&pod, "sidecar.istio.io/statsInclusionRegexps"),
            containers: containers.collect(),
            sidecar,
        }
    }

    /// Where the sidecar writes its report.
    pub(crate) fn report_path(&self) -> PathBuf {
        PathBuf::from(&self.sidecar.env["TIDEGATE_REPORT_PATH"])
    }
}

impl Program {
    /// The binary with these arguments and settings, as if somebody ran it by hand.
    pub(crate) fn new(args: &[&str], env: &[(&str, &str)]) -> Program {
        let words = [BINARY].iter().chain(args);
        let env = env.iter();
        Program {
            words: words.map(|word| (*word).to_owned()).collect(),
            env: env
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        }
    }

    /// Where `tidegate run` serves its hooks: the default's place, unless its environment says
    /// another.
    pub(crate) fn hook_port(&self) -> u16 {
        match self.env.get("TIDEGATE_HOOK_PORT").map(String::as_str) {
            None | Some("") => HOOKS,
            Some(port) => port.parse().expect("a port"),
        }
    }
}

/// What is there when a pod is deleted, and whether it is a native sidecar. Other init containers have
/// ended long before.
fn containers(pod: &Value) -> impl Iterator<Item = (bool, &Value)> {
    let list = |name: &str| pod["spec"][name].as_array().into_iter().flatten();
    let native = list("initContainers").filter(|it| it["restartPolicy"] == "Always");
    let regular = list("containers").map(|it| (false, it));
    native.map(|it| (true, it)).chain(regular)
}

fn text(value: &Value) -> String {
    let text = value.as_str();
    text.unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(text).collect()
}

// ===== what runs =====

/// The command, or in its absence the image's entry point, and the arguments.
fn command(container: &Value) -> Vec<String> {
    let mut command = match container.get("command") {
        Some(command) => words(command),
        None => vec![BINARY.to_owned()],
    };
    command.extend(words(&container["args"]));
    command
}

fn environment(container: &Value, pod: &Value) -> BTreeMap<String, String> {
    let list = container["env"].as_array().into_iter().flatten();
    list.map(|entry| (text(&entry["name"]), variable(entry, pod)))
        .collect()
}

/// A literal, or what the downward API says: an annotation that is not there is an empty text.
fn variable(entry: &Value, pod: &Value) -> String {
    if let Some(literal) = entry["value"].as_str() {
        return literal.to_owned();
    }
    let path = text(&entry["valueFrom"]["fieldRef"]["fieldPath"]);
    let annotation = path
        .strip_prefix("metadata.annotations['")
        .and_then(|rest| rest.strip_suffix("']"))
        .unwrap_or_else(|| panic!("the kubelet's other fields are not modelled: {path}"));
    self::annotation(pod, annotation)
}

fn annotation(pod: &Value, name: &str) -> String {
    let text = pod["metadata"]["annotations"][name].as_str();
    text.unwrap_or_default().to_owned()
}

// ===== hooks =====

/// A preStop. The kubelet is no process of the pod: its GET comes by the pod's address. What it
/// executes runs in the container, with its environment.
fn pre_stop(hook: &Value, env: &BTreeMap<String, String>) -> PreStop {
    if hook.is_null() {
        return PreStop::None;
    }
    let get = &hook["httpGet"];
    if get.is_object() {
        assert!(get.get("host").is_none(), "{get}");
        assert_eq!(get["scheme"], "HTTP", "{get}");
        let port = get["port"].as_u64().and_then(|it| u16::try_from(it).ok());
        let addr = SocketAddr::from((POD_IP, port.expect("a port")));
        return PreStop::http(addr, &text(&get["path"]));
    }
    let words = words(&hook["exec"]["command"]);
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [BINARY, ..] => {
            let env = env.clone();
            execute(Program { words, env })
        }
        ["pilot-agent", "wait", ref flags @ ..] => pilot_agent_wait(flags),
        _ => panic!("nothing here can do {hook}"),
    }
}

fn execute(program: Program) -> PreStop {
    PreStop::exec(move || {
        let program = program.clone();
        async move {
            let output = run(&program).await;
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            output.status.success().then_some(()).ok_or(said)
        }
    })
}

/// `pilot-agent wait`, by its flags; the defaults are Istio's (pilot/cmd/pilot-agent/app/wait.go).
fn pilot_agent_wait(flags: &[&str]) -> PreStop {
    let mut url = "http://localhost:15021/healthz/ready";
    let (mut limit, mut period, mut request) = (60_000, 500, 500);
    for flag in flags {
        let (name, value) = flag.split_once('=').expect("--name=value");
        let number = || value.parse::<u64>().expect("a number");
        match name {
            "--url" => url = value,
            "--timeoutSeconds" => limit = 1_000 * number(),
            "--periodMillis" => period = number(),
            "--requestTimeoutMillis" => request = number(),
            _ => panic!("pilot-agent wait has no {name}"),
        }
    }
    let rest = url.strip_prefix("http://").expect("plain HTTP");
    let (authority, path) = rest.split_once('/').expect("a path");
    let addr: SocketAddr = authority.parse().expect("an address and a port");
    let path = format!("/{path}");
    let [limit, period, request] = [limit, period, request].map(Duration::from_millis);
    PreStop::exec(move || {
        let path = path.clone();
        async move { agent::wait(addr, &path, limit, period, request).await }
    })
}
