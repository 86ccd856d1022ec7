//! A whole pod in the test's namespace: the real Envoy and the real sidecar, with stand-ins for the app,
//! queue-proxy, the agent and the kubelet around them, on the ports they have in a cluster. The sidecar
//! and all hooks are as injection wrote them into a fixture.
//!
//! Time is scaled: where Knative and Istio take 30 s and 5 s, this pod takes 3 s and 2 s.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate::config::{Address, Mode};
use tidegate::drain::Phase;
use tidegate::envoy::admin::Admin;
use tidegate::inflight::Reading;
use tidegate::standin::agent::{self, Manners};
use tidegate::standin::app::{self, OnSigterm};
use tidegate::standin::front::{self, Fault};
use tidegate::standin::kubelet::{Container, Kubelet};
use tidegate::standin::{Process, Scale, queue_proxy};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bootstrap::{ADMIN, QUEUE_PROXY, TCP_APP};
use crate::end::End;
use crate::envoy::Envoy;
use crate::manifest::{Manifest, fixture};
use crate::netns;
use crate::sidecar::Sidecar;
use crate::tap::Tap;
use crate::wait::{until, within};

/// queue-proxy's quiet period.
pub(crate) const QUEUE_QUIET: Duration = Duration::from_secs(3);
/// The agent's terminationDrainDuration, as short as Istio's default is beside a slow request.
pub(crate) const AGENT_DRAIN: Duration = Duration::from_secs(2);
/// The same where nothing but it holds istio-proxy: longer than any drain here.
const AGENT_DRAIN_ANNOTATED: Duration = Duration::from_secs(15);
/// From the deletion to SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(20);

/// Where Envoy's admin and the agent really are, so that a tap and a front can have their ports.
const REAL_ADMIN: u16 = 15010;
const FAULTY_ADMIN: u16 = 15011;
const REAL_AGENT: u16 = 15025;
const AGENT: u16 = 15020;
const APP: u16 = 8080;

/// Time that the test's machine may need on top of what is awaited.
const SLACK: Duration = Duration::from_secs(10);

/// The sidecar's settings on this pod's time scale, by annotation.
const SCALED: [(&str, &str); 6] = [
    ("margin", "2s"),
    ("announce-delay", "300ms"),
    ("min-drain", "1s"),
    ("quiet", "500ms"),
    ("confirm", "500ms"),
    ("restart-hold", "1500ms"),
];

/// The pod's containers.
pub(crate) const USER: &str = "user-container";
pub(crate) const QUEUE: &str = "queue-proxy";
pub(crate) const PROXY: &str = "istio-proxy";
pub(crate) const TIDEGATE: &str = "tidegate";

/// What kind of pod it is.
#[derive(Clone, Debug)]
pub(crate) struct Spec {
    /// The fixture that is injected.
    pub(crate) fixture: &'static str,
    /// How istio-proxy is set up.
    pub(crate) mode: Mode,
    /// What the app does on SIGTERM.
    pub(crate) on_sigterm: OnSigterm,
    /// Which agent it is.
    pub(crate) manners: Manners,
    /// queue-proxy's quiet period.
    pub(crate) queue_quiet: Duration,
    /// How long after that it lets streams go on: not at all up to Knative 1.21.
    pub(crate) queue_hijacked: Duration,
    /// From the deletion to SIGKILL, in whole seconds, in the place of what the fixture says and its
    /// revision's timeout asks for.
    pub(crate) grace: Option<Duration>,
    /// Settings as the pod's annotations have them, over those of [`SCALED`].
    pub(crate) settings: Vec<(&'static str, &'static str)>,
    /// Variables of the sidecar, over what injection wrote.
    pub(crate) told: Vec<(&'static str, &'static str)>,
    /// A front stands before the agent, so that it can be given faults.
    pub(crate) agent_front: bool,
}

impl Spec {
    /// A pod with a current agent, an app that leaves at once on SIGTERM, and its raw TCP server's port
    /// among the workload's.
    pub(crate) fn new(mode: Mode) -> Spec {
        let fixture = match mode {
            Mode::Annotate => "annotate",
            Mode::Native => "native",
            Mode::NoMesh => "no-mesh",
            Mode::Hold | Mode::Auto => "classic-rewritten-hook",
        };
        let termination_drain = match mode {
            Mode::Annotate => AGENT_DRAIN_ANNOTATED,
            _ => AGENT_DRAIN,
        };
        Spec {
            fixture,
            mode,
            on_sigterm: OnSigterm::Exits,
            manners: Manners {
                termination_drain,
                ..Manners::default()
            },
            queue_quiet: QUEUE_QUIET,
            queue_hijacked: Duration::from_secs(60),
            grace: Some(GRACE),
            settings: vec![("workload-ports", "8012,8022,9090,8080,9000")],
            told: Vec::new(),
            agent_front: false,
        }
    }

    /// A fixture with its own grace period and ports, as a cluster would run it.
    pub(crate) fn of(fixture: &'static str, mode: Mode) -> Spec {
        Spec {
            fixture,
            grace: None,
            settings: Vec::new(),
            ..Spec::new(mode)
        }
    }

    /// With one more setting as an annotation.
    pub(crate) fn set(mut self, name: &'static str, value: &'static str) -> Spec {
        self.settings.push((name, value));
        self
    }

    /// With another value of one of the sidecar's variables than injection gives it.
    pub(crate) fn tell(mut self, variable: &'static str, value: &'static str) -> Spec {
        self.told.push((variable, value));
        self
    }

    /// The pod, injected. The report goes to a directory of the test's.
    fn manifest(&self, dir: &TempDir) -> Manifest {
        let report = dir.path().join("termination-log");
        let report = ("report-path", report.to_str().expect("a plain path"));
        let settings = SCALED.iter().chain(&self.settings).chain([&report]);
        let annotations = settings.map(|(name, text)| (format!("tidegate.dev/{name}"), *text));
        let mut pod = fixture(self.fixture, annotations);
        if let Some(grace) = self.grace {
            pod["spec"]["terminationGracePeriodSeconds"] = json!(grace.as_secs());
            forget_timeout(&mut pod);
        }
        Manifest::inject(&pod, &self.told)
    }
}

/// A running pod.
#[derive(Debug)]
pub(crate) struct Pod {
    pub(crate) spec: Spec,
    pub(crate) manifest: Manifest,
    pub(crate) sidecar: Sidecar,
    pub(crate) app: app::Handle,
    pub(crate) queue_proxy: queue_proxy::Handle,
    /// Absent without a mesh, as is all that follows.
    pub(crate) mesh: Option<Mesh>,
    kubelet: Arc<Kubelet>,
    deletion: Option<(Instant, JoinHandle<()>)>,
    /// The report's; goes with the pod.
    _dir: TempDir,
}

/// What Istio adds.
#[derive(Debug)]
pub(crate) struct Mesh {
    pub(crate) envoy: Process,
    pub(crate) agent: agent::Handle,
    /// At Envoy's admin port, for the sidecar alone.
    pub(crate) tap: Tap,
    /// Behind the tap.
    pub(crate) admin: front::Handle,
    /// Before the agent, where the spec wants it.
    pub(crate) agent_front: Option<front::Handle>,
}

impl Pod {
    /// Starts one; all of it serves when this returns.
    pub(crate) async fn start(spec: Spec) -> Pod {
        netns::add_pod_ip().await;
        let app = start_app(spec.on_sigterm).await;
        let queue_proxy = queue_proxy::start(queue_proxy::Config {
            serving: local(QUEUE_PROXY),
            admin: local(8022),
            metrics: local(9090),
            quiet: spec.queue_quiet,
            hijacked: spec.queue_hijacked,
            ..queue_proxy::Config::new(app.addr)
        });
        let queue_proxy = queue_proxy.await.expect("queue-proxy's ports are free");
        let dir = TempDir::new().expect("a temporary directory");
        let manifest = spec.manifest(&dir);
        let mesh = match spec.mode {
            Mode::NoMesh => None,
            _ => Some(Mesh::start(&spec, &manifest.stats_regexps).await),
        };
        let sidecar = Sidecar::start(&manifest.sidecar).await;
        let kubelet = kubelet(&manifest, &app, &queue_proxy, mesh.as_ref(), &sidecar);
        Pod {
            spec,
            manifest,
            sidecar,
            app,
            queue_proxy,
            mesh,
            kubelet: Arc::new(kubelet),
            deletion: None,
            _dir: dir,
        }
    }

    /// The mesh; panics without one.
    pub(crate) fn mesh(&self) -> &Mesh {
        self.mesh.as_ref().expect("this pod has a mesh")
    }

    /// Waits until the app has so many requests.
    pub(crate) async fn busy(&self, requests: u64) {
        let what = format!("{requests} requests in the app");
        until(SLACK, &what, || self.app.in_flight() == requests).await;
    }

    /// Deletes the pod.
    pub(crate) fn delete(&mut self) {
        let (kubelet, grace) = (Arc::clone(&self.kubelet), self.manifest.grace);
        let deletion = tokio::spawn(async move { kubelet.delete(grace).await });
        self.deletion = Some((Instant::now(), deletion));
    }

    /// Waits until the sidecar logs that a phase has begun; says when.
    pub(crate) async fn phase(&self, phase: Phase) -> Instant {
        self.sidecar.phase(phase).await
    }

    /// Restarts the user container, as the kubelet does where its liveness probe fails; says how long
    /// its hook took.
    pub(crate) async fn restart_user_container(&mut self) -> Duration {
        let began = Instant::now();
        let stopped = self.kubelet.restart(USER, self.manifest.grace);
        within(self.manifest.grace + SLACK, "the restart", stopped).await;
        let timeline = self.kubelet.timeline().borrow().clone();
        let events = timeline.iter().filter(|event| event.container == USER);
        let hook_ended = events
            .map(|event| (event.at, &event.what))
            .find_map(|(at, what)| {
                matches!(what, tidegate::standin::kubelet::What::HookEnded).then_some(at)
            });
        let took = hook_ended.expect("the hook succeeded") - began;
        self.app = start_app(self.spec.on_sigterm).await;
        let Pod {
            manifest,
            app,
            queue_proxy,
            mesh,
            sidecar,
            ..
        } = self;
        self.kubelet = Arc::new(kubelet(manifest, app, queue_proxy, mesh.as_ref(), sidecar));
        took
    }

    /// Waits until the last container has ended, at most the grace period and what SIGKILL takes.
    pub(crate) async fn gone(mut self) -> End {
        let (deleted, deletion) = self.deletion.take().expect("the pod was deleted");
        let limit = self.manifest.grace + SLACK;
        within(limit, "the pod is gone", deletion)
            .await
            .expect("the kubelet does not panic");
        let log = self.sidecar.whole_log().await;
        let calls = self.mesh.as_ref().map(|mesh| mesh.tap.calls());
        End::new(
            deleted,
            self.kubelet.timeline().borrow().clone(),
            log,
            &self.manifest.report_path(),
            calls.unwrap_or_default(),
        )
    }
}

impl Mesh {
    async fn start(spec: &Spec, stats_regexps: &str) -> Mesh {
        let envoy = Envoy::start_showing(REAL_ADMIN, stats_regexps).await;
        let envoy = envoy.into_process();
        let admin = front::start(local(FAULTY_ADMIN), local(REAL_ADMIN), Fault::None).await;
        let admin = admin.expect("the port is free");
        let tap = Tap::start(local(ADMIN), admin.addr).await;
        // A dead Envoy's port refuses.
        let (died, port) = (envoy.clone(), tap.process.clone());
        tokio::spawn(async move {
            died.exited().await;
            port.kill();
        });
        let (listen, agent_front) = if spec.agent_front {
            let front = front::start(local(AGENT), local(REAL_AGENT), Fault::None).await;
            (REAL_AGENT, Some(front.expect("the port is free")))
        } else {
            (AGENT, None)
        };
        let agent = agent::start(agent::Config {
            listen: local(listen),
            manners: spec.manners.clone(),
            ..agent::Config::new(envoy.clone(), local(REAL_ADMIN))
        });
        let agent = agent.await.expect("the agent's port is free");
        if let Some(front) = agent_front.clone() {
            // A signalled agent's port refuses.
            let signalled = agent.process.clone();
            tokio::spawn(async move {
                let limit = Duration::from_secs(3600);
                until(limit, "the agent's SIGTERM", || signalled.sigterms() > 0).await;
                front.process.kill();
            });
        }
        Mesh {
            envoy,
            agent,
            tap,
            admin,
            agent_front,
        }
    }

    /// What Envoy has in flight, by its own word, asked past the tap.
    pub(crate) async fn in_flight(&self) -> u64 {
        match Admin::new(Address::Tcp(local(REAL_ADMIN))).clusters().await {
            Reading::Known(requests) => requests.active,
            Reading::Unknown(cause) => panic!("Envoy does not say what is in flight: {cause:?}"),
        }
    }
}

/// Takes the revision's timeout away, which would ask for a longer grace period.
fn forget_timeout(pod: &mut Value) {
    let containers = pod["spec"]["containers"].as_array_mut();
    for container in containers.into_iter().flatten() {
        if let Some(env) = container["env"].as_array_mut() {
            env.retain(|entry| entry["name"] != "REVISION_TIMEOUT_SECONDS");
        }
    }
}

async fn start_app(on_sigterm: OnSigterm) -> app::Handle {
    let config = app::Config {
        listen: local(APP),
        tcp: local(TCP_APP),
        on_sigterm,
    };
    app::start(config).await.expect("the app's ports are free")
}

/// Every container of the manifest, with what stands for it. Without a mesh nothing stands for
/// istio-proxy.
fn kubelet(
    manifest: &Manifest,
    app: &app::Handle,
    queue_proxy: &queue_proxy::Handle,
    mesh: Option<&Mesh>,
    sidecar: &Sidecar,
) -> Kubelet {
    let containers = manifest.containers.iter().filter_map(|container| {
        let process = match container.name.as_str() {
            TIDEGATE => &sidecar.process,
            PROXY => &mesh?.agent.process,
            QUEUE => &queue_proxy.process,
            USER => &app.process,
            other => panic!("nothing stands for {other}"),
        };
        let made = Container::regular(&container.name, process.clone(), container.pre_stop.clone());
        Some(Container {
            native_sidecar: container.native,
            ..made
        })
    });
    Kubelet::new(Scale::REAL, containers.collect())
}

pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
