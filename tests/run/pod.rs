//! A pod on loopback: a sidecar, and in place of Envoy, pilot-agent, queue-proxy and the user's
//! container each a listener that answers as the test says and writes down what it was asked.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate::config::{
    Address, Config, Gate, GatePort, HoldQueueProxy, LogFormat, Mode, Protocol, Timing,
};
use tidegate::drain::Phase;
use tidegate::gate::engine::Stage;
use tidegate::inflight::GateRequests;
use tidegate::run::{Ending, RunError, Sidecar};
use tidegate::signals::{Signal, Signals};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Far more than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// What the pod's other parties hold and how they answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct World {
    /// Envoy's `rq_active` and `rq_total`.
    pub(crate) active: u64,
    pub(crate) total: u64,
    /// Envoy's gauge of upgraded connections; hidden where absent, as it is by default.
    pub(crate) upgrades: Option<u64>,
    /// What queue-proxy's report says is in flight.
    pub(crate) queued: f64,
    /// Envoy's admin takes connections and never answers.
    pub(crate) envoy_hangs: bool,
    /// pilot-agent has `POST /drain`.
    pub(crate) agent_drains: bool,
}

/// The parties of a pod, and what they were asked, in order.
pub(crate) struct Pod {
    pub(crate) hooks: SocketAddr,
    pub(crate) report: PathBuf,
    pub(crate) phases: watch::Receiver<Phase>,
    pub(crate) world: watch::Sender<World>,
    pub(crate) signals: mpsc::Sender<Signal>,
    asked: watch::Receiver<Vec<String>>,
    running: JoinHandle<Result<Ending, RunError>>,
    /// Where the sidecar's own gate listens, if it is in the path.
    gate: Option<SocketAddr>,
    /// Ends with the value: the port of the user's container.
    workload: Option<TcpListener>,
    agent: Option<JoinSet<()>>,
    _parties: JoinSet<()>,
    _dir: tempfile::TempDir,
}

/// What stands between Envoy and the workload.
pub(crate) enum InPath {
    Nothing,
    /// A gate that counts what the test says.
    Counted(Arc<Counted>),
    /// The sidecar's own, in front of the workload's port.
    Own,
}

pub(crate) fn timing() -> Timing {
    let ms = Duration::from_millis;
    Timing {
        grace: ms(60_000),
        margin: ms(3_000),
        max_drain: None,
        upgrade_grace: None,
        announce_delay: ms(50),
        min_drain: ms(300),
        quiet: ms(200),
        quiet_max: ms(2_000),
        flush_max: ms(1_000),
        confirm: ms(1_000),
        restart_hold: ms(4_000),
    }
}

impl Pod {
    /// A pod whose parties all answer and hold nothing.
    pub(crate) async fn start(mode: Mode, timing: Timing) -> Pod {
        Pod::start_with(mode, timing, InPath::Nothing).await
    }

    /// The same with a gate.
    pub(crate) async fn start_with(mode: Mode, timing: Timing, in_path: InPath) -> Pod {
        let (asked_in, asked) = watch::channel(Vec::new());
        let (world, seen) = watch::channel(World {
            active: 0,
            total: 0,
            upgrades: None,
            queued: 0.0,
            envoy_hangs: false,
            agent_drains: true,
        });
        let asked_in = Arc::new(Mutex::new(asked_in));
        let mut parties = JoinSet::new();
        let mut agent = JoinSet::new();
        let party = |name, set: &mut JoinSet<()>| {
            let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.set_nonblocking(true).unwrap();
            let address = listener.local_addr().unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            if mode != Mode::NoMesh || name == "queue" {
                set.spawn(serve(name, listener, seen.clone(), asked_in.clone()));
            }
            address
        };
        let envoy_admin = Address::Tcp(party("envoy", &mut parties));
        let queue_metrics = Address::Tcp(party("queue", &mut parties));
        let agent_port = Address::Tcp(party("agent", &mut agent));
        let workload = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let workload_port = workload.local_addr().unwrap().port();
        let gate_port = GatePort {
            listen: 0,
            upstream: workload_port,
        };
        let dir = tempfile::tempdir().unwrap();
        let report = dir.path().join("report");
        let sidecar = Sidecar::bind(Config {
            mode: if mode == Mode::NoMesh {
                Mode::Auto
            } else {
                mode
            },
            timing,
            hook_port: 0,
            workload_ports: vec![workload_port],
            envoy_admin,
            agent: agent_port,
            queue_metrics,
            hold_queue_proxy: HoldQueueProxy::Auto,
            workload_protocol: Protocol::Http1,
            gate: match in_path {
                InPath::Nothing => Gate::Off,
                InPath::Counted(_) | InPath::Own => Gate::Http,
            },
            gate_ports: match in_path {
                InPath::Own => vec![gate_port],
                InPath::Nothing | InPath::Counted(_) => Vec::new(),
            },
            gate_tls: None,
            report_path: report.clone(),
            log_format: LogFormat::Json,
            log_level: "info".to_owned(),
        })
        .unwrap();
        let sidecar = match in_path {
            InPath::Counted(gate) => sidecar.with_gate(gate),
            InPath::Nothing | InPath::Own => sidecar,
        };
        let gate = sidecar.gate_addrs().first();
        let gate = gate.map(|addr| (Ipv4Addr::LOCALHOST, addr.port()).into());
        let hooks = (Ipv4Addr::LOCALHOST, sidecar.hook_addr().port()).into();
        let phases = sidecar.phases();
        let (signals, signals_out) = mpsc::channel(4);
        let running = tokio::spawn(sidecar.run(Signals::from_channel(signals_out)));
        Pod {
            hooks,
            report,
            phases,
            world,
            signals,
            asked,
            running,
            gate,
            workload: Some(workload),
            agent: Some(agent),
            _parties: parties,
            _dir: dir,
        }
    }

    /// A connection to the sidecar's own gate; refused once it is closed.
    pub(crate) async fn connect(&self) -> std::io::Result<TcpStream> {
        TcpStream::connect(self.gate.expect("there is one")).await
    }

    /// The workload's next connection.
    pub(crate) async fn accept(&self) -> TcpStream {
        let workload = self.workload.as_ref().expect("it is there");
        let accepted = timeout(LONG, workload.accept()).await;
        accepted.expect("somebody connects").unwrap().0
    }

    /// The pod's own preStop: what `tidegate drain` sends.
    pub(crate) async fn pre_stop(&self) {
        assert_eq!(self.ask("POST /drain").await.0, 200);
    }

    /// One request to the hook port: status and body.
    pub(crate) async fn ask(&self, line: &str) -> (u16, String) {
        ask(self.hooks, line).await
    }

    /// Opens `count` holds; each ends with the status of its answer.
    pub(crate) async fn hold(&self, count: u64) -> JoinSet<u16> {
        let already = self.held().await;
        let holds = self.hooks_of("user", count);
        until(async || self.held().await == already + count).await;
        holds
    }

    /// Calls the hook of a container so many times.
    pub(crate) fn hooks_of(&self, container: &'static str, count: u64) -> JoinSet<u16> {
        let mut holds = JoinSet::new();
        let hooks = self.hooks;
        for _ in 0..count {
            let line = format!("GET /wait-for-drain?container={container}");
            holds.spawn(async move { ask(hooks, &line).await.0 });
        }
        holds
    }

    /// How many holds the driver knows of.
    pub(crate) async fn held(&self) -> u64 {
        self.status().await["hooks_held"].as_u64().unwrap()
    }

    pub(crate) async fn status(&self) -> serde_json::Value {
        let (status, body) = self.ask("GET /status").await;
        assert_eq!(status, 200);
        serde_json::from_str(&body).unwrap()
    }

    pub(crate) async fn reach(&mut self, phase: Phase) {
        let reached = self.phases.wait_for(|now| *now >= phase);
        let reached = timeout(LONG, reached).await;
        assert!(reached.is_ok_and(|it| it.is_ok()), "{phase:?} never came");
    }

    /// Changes the world once `change` has been seen: the polls that follow see it.
    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        self.world.send_modify(change);
    }

    /// The user's container and queue-proxy end.
    pub(crate) fn workload_leaves(&mut self) {
        self.workload = None;
    }

    /// The kubelet stops a native sidecar once the workload has gone, and it does not go before.
    pub(crate) async fn stop_native(&mut self) {
        self.reach(Phase::ReleasingProxy).await;
        self.signals.send(Signal::Terminate).await.unwrap();
        self.reach(Phase::Done).await;
    }

    /// pilot-agent gets its SIGTERM: it closes its port first of all.
    pub(crate) fn agent_leaves(&mut self) {
        self.agent = None;
    }

    /// What Envoy and its agent were told to do, in order: looks are left out.
    pub(crate) fn told(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let told = asked.iter().filter(|line| line.contains(" POST "));
        told.cloned().collect()
    }

    /// Everything that anybody was asked, looks among it.
    pub(crate) fn asked(&self) -> watch::Receiver<Vec<String>> {
        self.asked.clone()
    }

    /// As istio-proxy's preStop: polls `/released` until it is 200.
    pub(crate) fn wait_in_proxy(&self) -> JoinHandle<()> {
        let hooks = self.hooks;
        tokio::spawn(async move {
            while ask(hooks, "GET /released").await.0 != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    }

    /// Waits for the end.
    pub(crate) async fn end(self) -> (Ending, Option<serde_json::Value>) {
        let ending = timeout(LONG, self.running).await.expect("it ends");
        let report = std::fs::read(&self.report).ok();
        let report = report.map(|bytes| serde_json::from_slice(&bytes).unwrap());
        (ending.unwrap().unwrap(), report)
    }
}

/// Asks again, a few milliseconds apart, until the answer is yes.
pub(crate) async fn until(mut yes: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !yes().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(LONG, asked).await.expect("it becomes true");
}

pub(crate) async fn ask(to: SocketAddr, line: &str) -> (u16, String) {
    let request = format!("{line} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    let mut answer = String::new();
    let exchange = async {
        let mut stream = TcpStream::connect(to).await?;
        stream.write_all(request.as_bytes()).await?;
        stream.read_to_string(&mut answer).await
    };
    timeout(LONG, exchange)
        .await
        .unwrap_or_else(|_| panic!("{line}: no answer"))
        .unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    (status, body.to_owned())
}

// ===== the gate =====

/// A gate that counts what the test says.
pub(crate) struct Counted {
    pub(crate) count: watch::Sender<GateRequests>,
    /// Its stages, and the closings that were asked for.
    pub(crate) told: watch::Sender<Vec<String>>,
}

impl Counted {
    pub(crate) fn new() -> Arc<Counted> {
        Arc::new(Counted {
            count: watch::channel(GateRequests::default()).0,
            told: watch::channel(Vec::new()).0,
        })
    }

    /// So many are in flight from now on, so many of them streams.
    pub(crate) fn set(&self, active: u64, streams: u64) {
        self.count.send_modify(|count| {
            count.total += active.saturating_sub(count.active);
            (count.active, count.streams) = (active, streams);
        });
    }
}

impl tidegate::run::Gate for Counted {
    fn look(&self) -> GateRequests {
        *self.count.borrow()
    }

    fn idle(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let mut count = self.count.subscribe();
        Box::pin(async move {
            let _ = count.wait_for(|count| count.active == 0).await;
        })
    }

    fn close_if_idle(&self) -> bool {
        let closed = self.look().active == 0;
        self.told
            .send_modify(|told| told.push(format!("close: {closed}")));
        closed
    }

    fn stage(&self, stage: Stage) {
        self.told
            .send_modify(|told| told.push(format!("{stage:?}")));
    }
}

// ===== the other parties =====

type Asked = Arc<Mutex<watch::Sender<Vec<String>>>>;

async fn serve(
    name: &'static str,
    listener: TcpListener,
    world: watch::Receiver<World>,
    asked: Asked,
) {
    // Connections end with the party.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(answer(name, stream, world.clone(), asked.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(
    name: &'static str,
    mut stream: TcpStream,
    world: watch::Receiver<World>,
    asked: Asked,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        // A caller that only looks whether anybody listens sends nothing.
        if !matches!(stream.read_buf(&mut head).await, Ok(1..)) {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let line = head.split(" HTTP/1.1").next().unwrap();
    let note = format!("{name} {line}");
    asked.lock().unwrap().send_modify(|asked| asked.push(note));
    let world = *world.borrow();
    if name == "envoy" && world.envoy_hangs {
        return std::future::pending().await;
    }
    let (status, body) = reply(name, line, &world);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
}

fn reply(name: &str, line: &str, world: &World) -> (&'static str, Vec<u8>) {
    let ok = "200 OK";
    match (name, line.split('?').next().unwrap()) {
        ("envoy", "GET /server_info") => (
            ok,
            br#"{"version":"sha/1.40.0/Clean/RELEASE/BoringSSL","state":"LIVE"}"#.to_vec(),
        ),
        ("envoy", "GET /clusters") => {
            let host = "inbound|8012||::10.0.0.1:8012";
            let World { active, total, .. } = world;
            let text = format!(
                "xds-grpc::added_via_api::false\n{host}::rq_active::{active}\n{host}::rq_total::{total}\n"
            );
            (ok, text.into_bytes())
        }
        ("envoy", "GET /stats") => {
            let line = |many| {
                format!("http.inbound_0.0.0.0_8012;.downstream_cx_upgrades_active: {many}\n")
            };
            (
                ok,
                world.upgrades.map(line).unwrap_or_default().into_bytes(),
            )
        }
        ("envoy", "POST /drain_listeners" | "POST /quitquitquit") => (ok, b"OK\n".to_vec()),
        ("queue", "GET /metrics") => (ok, queue_report(world.queued)),
        ("agent", "POST /drain") if world.agent_drains => (ok, b"OK".to_vec()),
        _ => ("404 Not Found", Vec::new()),
    }
}

/// Knative's `Stat`: the average of requests in flight, and an uptime.
fn queue_report(in_flight: f64) -> Vec<u8> {
    let mut report = vec![(2 << 3) | 1];
    report.extend(in_flight.to_le_bytes());
    report.push((6 << 3) | 1);
    report.extend(100.0_f64.to_le_bytes());
    report
}
