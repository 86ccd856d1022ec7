//! The two runs: a pod under load, a slow request in flight, the deletion, the counting.
//!
//! Classic istio-proxy with its default 5 s drain, STRICT mTLS: the kubelet's plaintext hook on 8022
//! is reset, so the app gets SIGTERM at once.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::scene::{Kind, Row, Scene, Span};
use super::sidecar;
use crate::config::{Address, Config, ConfigError, Mode, Timing};
use crate::drain::Phase;
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
/// Longest part of a loss's reason that fits beside a bar.
const REASON_MAX: usize = 16;

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

impl Stage {
    pub(super) fn new(scale: Scale, envoy: Option<PathBuf>) -> Result<Stage, Error> {
        let directory = std::env::temp_dir().join(format!("tidegate-demo-{}", std::process::id()));
        if envoy.is_some() {
            std::fs::create_dir_all(&directory)?;
        }
        Ok(Stage {
            scale,
            envoy,
            directory: Directory(directory),
        })
    }

    /// The pod as Knative and Istio make it.
    pub(super) async fn without(&self) -> Result<Scene, Error> {
        let pod = self.pod().await?;
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
        let pod = self.pod().await?;
        let sidecar = sidecar::start(self.config(&pod)?).await?;
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
            "with Tidegate",
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

    async fn pod(&self) -> Result<Pod, Error> {
        let scale = self.scale;
        let app = app::start(app::Config::default()).await?;
        let config = queue_proxy::Config {
            scale,
            ..queue_proxy::Config::new(app.addr)
        };
        let queue_proxy = queue_proxy::start(config).await?;
        let (envoy, inbound, admin) = self.proxy(queue_proxy.serving).await?;
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
    fn config(&self, pod: &Pod) -> Result<Config, Error> {
        let defaults = Config::resolve(|_| None, |_| None)?;
        let Timing {
            grace: _,
            margin,
            max_drain,
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
        Ok(Config {
            mode: Mode::Hold,
            timing: Timing {
                grace: real(GRACE),
                margin: real(margin),
                max_drain: max_drain.map(real),
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
            Container::regular("user-container", self.app.process.clone(), app_hook),
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

/// Turns instants into modelled seconds after the deletion.
struct Sight {
    scale: Scale,
    deleted: Instant,
}

impl Sight {
    fn at(&self, instant: Instant) -> f64 {
        match instant.checked_duration_since(self.deleted) {
            Some(after) => self.scale.modelled(after).as_secs_f64(),
            None => -self.scale.modelled(self.deleted - instant).as_secs_f64(),
        }
    }

    fn scene(
        &self,
        title: &'static str,
        seen: Seen,
        events: &[Event],
        gone: Instant,
        phases: Vec<(Phase, Instant)>,
    ) -> Scene {
        let begins = -LEAD.as_secs_f64();
        let Seen {
            tally,
            mut others,
            slow_began,
        } = seen;
        others.sort_by_key(|ended| match ended.what {
            What::Slow(length) => (0, length),
            What::Idle => (1, Duration::ZERO),
        });
        let (mut sent, mut lost) = (tally.sent, tally.lost);
        let mut why = tally
            .losses
            .first()
            .map(|loss| loss.reason.clone())
            .unwrap_or_default();
        let mut rows = vec![self.load_row(begins, &tally)];
        for ended in &others {
            match &ended.outcome {
                Outcome::Ok => sent += 1,
                Outcome::Elsewhere => {}
                Outcome::Lost(reason) => {
                    (sent, lost) = (sent + 1, lost + 1);
                    why.clone_from(reason);
                }
            }
            rows.push(self.row(ended, begins, self.at(slow_began)));
        }
        let mut names: Vec<&str> = Vec::new();
        for event in events {
            if !names.contains(&event.container.as_str()) {
                names.push(&event.container);
            }
        }
        names.sort_by_key(|name| ORDER.iter().position(|known| known == name));
        for name in names {
            let own = events.iter().filter(|event| event.container == name);
            let own: Vec<_> = own
                .map(|event| (self.at(event.at), event.what.clone()))
                .collect();
            rows.push(Row::container(name, begins, &own));
        }
        let phases = phases
            .into_iter()
            .map(|(phase, at)| (phase, self.at(at)))
            .collect();
        Scene {
            title,
            sent,
            lost,
            gone: self.at(gone),
            rows,
            phases,
            why,
        }
    }

    fn load_row(&self, begins: f64, tally: &load::Tally) -> Row {
        let ends = ENDPOINT_LAG.as_secs_f64();
        Row {
            label: "steady load".to_owned(),
            spans: vec![Span {
                from: begins,
                to: ends,
                kind: Kind::Request,
            }],
            cuts: tally
                .losses
                .iter()
                .map(|loss| self.at(loss.at).min(ends))
                .collect(),
            note: format!("{} of {} lost", tally.lost, tally.sent),
        }
    }

    fn row(&self, ended: &Ended, begins: f64, slow_began: f64) -> Row {
        let at = self.at(ended.at);
        let (label, from, kind) = match ended.what {
            What::Idle => ("idle keep-alive".to_owned(), begins, Kind::Idle),
            What::Slow(length) => (
                format!("{} s request", length.as_secs()),
                slow_began,
                Kind::Request,
            ),
        };
        let (cuts, note) = match (&ended.outcome, kind) {
            (Outcome::Ok, Kind::Idle) => (vec![], format!("closed at {at:.1}")),
            (Outcome::Ok, _) => (vec![], format!("whole at {at:.1}")),
            (Outcome::Elsewhere, _) => (vec![], "refused".to_owned()),
            (Outcome::Lost(reason), _) if reason.len() <= REASON_MAX => {
                (vec![at], format!("cut at {at:.1}: {reason}"))
            }
            (Outcome::Lost(_), _) => (vec![at], format!("cut at {at:.1}")),
        };
        Row {
            label,
            spans: vec![Span { from, to: at, kind }],
            cuts,
            note,
        }
    }
}

/// Containers from top to bottom.
const ORDER: [&str; 4] = ["user-container", "queue-proxy", "istio-proxy", "tidegate"];
