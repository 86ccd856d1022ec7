//! The two runs: a pod under load, a slow request in flight, the deletion, the counting.
//!
//! Classic istio-proxy with its default 5 s drain, STRICT mTLS: the kubelet's plaintext hook on 8022
//! is reset, so the app gets SIGTERM at once.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use self::sight::Sight;
use super::scene::Scene;
use super::sidecar;
use crate::config::{self, Address, Config, ConfigError, GatePort, Mode, Timing};
use crate::exit;
use crate::run::RunError;
use crate::standin::front::Fault;
use crate::standin::kubelet::{Container, Event, Kubelet, PreStop};
use crate::standin::load::{self, Outcome};
use crate::standin::{ANY_PORT, Process, Scale, agent, app, envoy, front, queue_proxy, real_envoy};

/// The pod's terminationGracePeriodSeconds.
const GRACE: Duration = Duration::from_secs(300);
/// From the first request to the deletion.
const LEAD: Duration = Duration::from_secs(4);
/// From the first slow request to the deletion.
const SLOW_LEAD: Duration = Duration::from_secs(2);
/// How long the slow requests take.
const SLOW: [Duration; 2] = [Duration::from_secs(20), Duration::from_secs(40)];
/// From the deletion until clients send to other pods.
const ENDPOINT_LAG: Duration = Duration::from_secs(2);
/// Bytes of a short and of a slow reply.
const SHORT_BYTES: u64 = 1_000;
const SLOW_BYTES: u64 = 100_000;
/// `pilot-agent wait --periodMillis`.
const WAIT_PERIOD: Duration = Duration::from_millis(100);

mod sight;

/// Why there was no demo.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot start a stand-in: {0}; free some ports or open files")]
    Io(#[from] std::io::Error),
    #[error(transparent)]
    Envoy(#[from] real_envoy::Error),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("tidegate ended before it listened; run `tidegate run` alone to see why")]
    Sidecar,
}

impl Error {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Error::Envoy(real_envoy::Error::Run { .. }) => exit::NO_INPUT,
            Error::Envoy(real_envoy::Error::Write { .. }) => exit::IO,
            Error::Config(_) | Error::Sidecar => exit::SOFTWARE,
            Error::Envoy(real_envoy::Error::Start { .. }) | Error::Io(_) | Error::Run(_) => {
                exit::UNAVAILABLE
            }
        }
    }
}

/// What both runs share.
pub(super) struct Stage {
    scale: Scale,
    envoy: Option<PathBuf>,
    gate: bool,
    directory: Directory,
}

/// A directory that goes with the demo.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        // What is left of it in the temporary directory harms nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A pod that serves, before anybody ends it.
struct Pod {
    app: app::Handle,
    queue_proxy: queue_proxy::Handle,
    inbound: SocketAddr,
    admin: SocketAddr,
    agent: agent::Handle,
}

/// The user container's name.
const APP: &str = "user-container";

/// A port of the gate's that Envoy can be told before the gate is there, which knows Envoy's own:
/// taken until then.
struct Reserved(TcpListener);

impl Reserved {
    fn new() -> std::io::Result<Reserved> {
        TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map(Reserved)
    }

    fn port(&self) -> std::io::Result<u16> {
        Ok(self.0.local_addr()?.port())
    }
}

impl Stage {
    /// `gate`: whether Tidegate's gate is in the path.
    pub(super) fn new(scale: Scale, envoy: Option<PathBuf>, gate: bool) -> Result<Stage, Error> {
        let directory = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        if envoy.is_some() {
            std::fs::create_dir_all(&directory)?;
        }
        Ok(Stage {
            scale,
            envoy,
            gate,
            directory: Directory(directory),
        })
    }

    /// The pod as Knative and Istio make it.
    pub(super) async fn without(&self) -> Result<Scene, Error> {
        let pod = self.pod(None).await?;
        let strict = front::start(ANY_PORT, pod.queue_proxy.admin, Fault::Reset).await?;
        let hook = PreStop::http(strict.addr, "/wait-for-drain");
        let containers = pod.containers(hook, PreStop::None);
        let clients = self.clients(pod.inbound).await;
        let (kubelet, deleted, gone) = self.delete(containers, &clients).await;
        let sight = Sight {
            scale: self.scale,
            deleted,
        };
        Ok(sight.scene(
            "without Tidegate",
            clients.finish().await,
            &kubelet,
            gone,
            Vec::new(),
        ))
    }

    /// The same pod with Tidegate injected.
    pub(super) async fn with(&self) -> Result<Scene, Error> {
        let reserved = self.gate.then(Reserved::new).transpose()?;
        let gate = reserved.as_ref().map(Reserved::port).transpose()?;
        let pod = self.pod(gate).await?;
        let config = self.config(&pod, gate)?;
        drop(reserved);
        let sidecar = sidecar::start(config).await?;
        let (hooks, scale) = (sidecar.hooks, self.scale);
        let hook = PreStop::http(hooks, "/wait-for-drain?container=user-container");
        let hold = PreStop::exec(move || async move {
            let (limit, period) = (scale.real(GRACE), scale.real(WAIT_PERIOD));
            agent::wait(hooks, "/released", limit, period, Duration::from_secs(1)).await
        });
        let mut containers = pod.containers(hook, hold);
        let own = PreStop::exec(move || sidecar::drain(hooks));
        containers.insert(
            2,
            Container::regular("tidegate", sidecar.process.clone(), own),
        );
        let clients = self.clients(pod.inbound).await;
        let (kubelet, deleted, gone) = self.delete(containers, &clients).await;
        let phases = sidecar.phases();
        let sight = Sight {
            scale: self.scale,
            deleted,
        };
        let mut scene = sight.scene(
            if self.gate {
                "with the gate"
            } else {
                "with Tidegate"
            },
            clients.finish().await,
            &kubelet,
            gone,
            phases,
        );
        if let (Some(report), false) = (sidecar.report(), scene.why.is_empty()) {
            scene.why = format!("{}; the drain ended as {}", scene.why, report.outcome);
        }
        Ok(scene)
    }

    /// `gate`: the port of the gate that is to stand in front of queue-proxy.
    async fn pod(&self, gate: Option<u16>) -> Result<Pod, Error> {
        let scale = self.scale;
        let app = app::start(app::Config::default()).await?;
        let config = queue_proxy::Config {
            scale,
            ..queue_proxy::Config::new(app.addr)
        };
        let queue_proxy = queue_proxy::start(config).await?;
        let upstream = gate.map_or(queue_proxy.serving, |port| {
            SocketAddr::from((Ipv4Addr::LOCALHOST, port))
        });
        let (envoy, inbound, admin) = self.proxy(upstream).await?;
        let agent = agent::start(agent::Config {
            scale,
            ..agent::Config::new(envoy, admin)
        })
        .await?;
        Ok(Pod {
            app,
            queue_proxy,
            inbound,
            admin,
            agent,
        })
    }

    async fn proxy(
        &self,
        upstream: SocketAddr,
    ) -> Result<(Process, SocketAddr, SocketAddr), Error> {
        let scale = self.scale;
        if let Some(program) = &self.envoy {
            let config = real_envoy::Config::new(program, &self.directory.0, upstream);
            let envoy = real_envoy::start(real_envoy::Config { scale, ..config }).await?;
            return Ok((envoy.process, envoy.inbound, envoy.admin));
        }
        let envoy = envoy::start(envoy::Config {
            scale,
            ..envoy::Config::new(upstream)
        })
        .await?;
        Ok((envoy.process, envoy.inbound, envoy.admin))
    }

    /// Tidegate's defaults, scaled, with the pod's addresses.
    fn config(&self, pod: &Pod, gate: Option<u16>) -> Result<Config, Error> {
        let defaults = Config::resolve(|_| None, |_| None)?;
        let Timing {
            grace: _,
            margin,
            max_drain,
            upgrade_grace,
            announce_delay,
            min_drain,
            quiet,
            quiet_max,
            flush_max,
            confirm,
            restart_hold,
        } = defaults.timing;
        let real = |duration| self.scale.real(duration);
        let queue_proxy = &pod.queue_proxy;
        let workload = [
            queue_proxy.serving,
            queue_proxy.admin,
            queue_proxy.metrics,
            pod.app.addr,
        ];
        let gate_port = |listen| GatePort {
            listen,
            upstream: queue_proxy.serving.port(),
        };
        Ok(Config {
            mode: Mode::Hold,
            timing: Timing {
                grace: real(GRACE),
                margin: real(margin),
                max_drain: max_drain.map(real),
                upgrade_grace: upgrade_grace.map(real),
                announce_delay: real(announce_delay),
                min_drain: real(min_drain),
                quiet: real(quiet),
                quiet_max: real(quiet_max),
                flush_max: real(flush_max),
                confirm: real(confirm),
                restart_hold: real(restart_hold),
            },
            hook_port: 0,
            workload_ports: workload.iter().map(SocketAddr::port).collect(),
            envoy_admin: Address::Tcp(pod.admin),
            agent: Address::Tcp(pod.agent.addr),
            queue_metrics: Address::Tcp(queue_proxy.metrics),
            gate: gate.map_or(config::Gate::Off, |_| config::Gate::Http),
            gate_ports: gate.map(gate_port).into_iter().collect(),
            report_path: PathBuf::from("/dev/null"),
            ..defaults
        })
    }

    /// Starts all clients and returns when it is time for the deletion.
    async fn clients(&self, target: SocketAddr) -> Clients {
        let load = load::start(load::Config {
            target,
            path: format!("/?bytes={SHORT_BYTES}"),
            bytes: SHORT_BYTES,
            fresh_rate: 100.0,
            kept: 4,
            kept_rate: 25.0,
            endpoint_lag: ENDPOINT_LAG,
            scale: self.scale,
        });
        let mut clients = Clients {
            load,
            others: JoinSet::new(),
            slow_began: Instant::now(),
        };
        clients.others.spawn(async move {
            let outcome = load::idle(target).await;
            Ended {
                what: What::Idle,
                outcome,
                at: Instant::now(),
            }
        });
        tokio::time::sleep(self.scale.real(LEAD - SLOW_LEAD)).await;
        clients.slow_began = Instant::now();
        for length in SLOW {
            let sleep = self.scale.real(length).as_millis();
            clients.others.spawn(async move {
                let path = format!("/?sleep={sleep}&bytes={SLOW_BYTES}");
                let outcome = load::get(target, &path, SLOW_BYTES).await;
                Ended {
                    what: What::Slow(length),
                    outcome,
                    at: Instant::now(),
                }
            });
        }
        tokio::time::sleep(self.scale.real(SLOW_LEAD)).await;
        clients
    }

    async fn delete(
        &self,
        containers: Vec<Container>,
        clients: &Clients,
    ) -> (Vec<Event>, Instant, Instant) {
        let kubelet = Kubelet::new(self.scale, containers);
        let deleted = Instant::now();
        clients.load.deleted();
        kubelet.delete(GRACE).await;
        let gone = Instant::now();
        let events = kubelet.timeline().borrow().clone();
        (events, deleted, gone)
    }
}

impl Pod {
    fn containers(&self, app_hook: PreStop, proxy_hook: PreStop) -> Vec<Container> {
        vec![
            Container::regular(APP, self.app.process.clone(), app_hook),
            Container::regular(
                "queue-proxy",
                self.queue_proxy.process.clone(),
                PreStop::None,
            ),
            Container::regular("istio-proxy", self.agent.process.clone(), proxy_hook),
        ]
    }
}

struct Clients {
    load: load::Handle,
    others: JoinSet<Ended>,
    slow_began: Instant,
}

enum What {
    Idle,
    Slow(Duration),
}

struct Ended {
    what: What,
    outcome: Outcome,
    at: Instant,
}

/// What the clients saw.
struct Seen {
    tally: load::Tally,
    others: Vec<Ended>,
    slow_began: Instant,
}

impl Clients {
    /// Everything ends with the pod, so this does not wait long.
    async fn finish(self) -> Seen {
        let Clients {
            load,
            others,
            slow_began,
        } = self;
        let tally = load.stop().await;
        Seen {
            tally,
            others: others.join_all().await,
            slow_began,
        }
    }
}
