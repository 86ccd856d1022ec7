//! An exhaustive walk of a small pod: kubelet, workload, queue-proxy, Envoy and Tidegate, each able
//! to fail at any step. Breadth first, in half seconds, every combination of at most
//! [`FAULTS`] faults (one, where the request is a stream) with one request that may come and go at any time.
//!
//! What is checked in every state: phases only advance, nobody calls Envoy for a restart, a drain
//! ends `Drained` only with nothing in flight, the proxy outlives the workload unless the deadline
//! or the end of grace came first, hooks are answered by the deadline + 1 s, queue-proxy's among them,
//! queue-proxy cuts no stream that was seen at the deletion, and every run ends.

use std::collections::HashSet;

use super::*;

const TICK: Duration = Duration::from_millis(500);
/// The pod is deleted at this tick at the latest.
const DELETED_BY: u32 = 3;
const FAULTS: u8 = 2;
/// Ticks from the deletion to the kubelet's SIGKILL of what is left.
const GRACE: u32 = 16;

/// The world's part of a state. The request is at queue-proxy and seen by Envoy and queue-proxy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    tick: u32,
    mode: Mode,
    machine: Machine,
    tidegate: bool,
    /// The workload's hook, while it is held.
    hook: Option<HookId>,
    /// queue-proxy's.
    queue_hook: Option<HookId>,
    /// Whether the request is a stream that queue-proxy cuts at the end of its quiet period.
    stream: bool,
    /// Whether the request goes through a gate.
    gated: bool,
    closing: bool,
    /// A stream was open, and could be seen, when the pod was deleted: it is not to be cut.
    promised: bool,
    restarted: bool,
    deleted: Option<u32>,
    app: Container,
    queue_proxy: Container,
    envoy: Proxy,
    /// pilot-agent: it has got its SIGTERM (hold: after `/released`; native: after Tidegate).
    agent_told: bool,
    request: bool,
    arrived: u64,
    faults: u8,
    native_sigterm: bool,
    proxy_released: bool,
    calls: Vec<Call>,
    outcome: Option<Outcome>,
    /// The request that was in flight was cut by Tidegate's own doing.
    cut_by_release: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Container {
    Running,
    /// Has got SIGTERM at that tick.
    Stopping(u32),
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Proxy {
    Serving,
    /// The admin hangs; the data path works.
    Hanging,
    Gone,
}

/// What the world may do between two looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Move {
    Nothing,
    Restart,
    Delete,
    RequestComes,
    RequestEnds,
    AppDies,
    QueueProxyDies,
    EnvoyDies,
    EnvoyHangs,
    EnvoyRecovers,
    TidegateDies,
    HookHangsUp,
}

const MOVES: [Move; 12] = [
    Move::Nothing,
    Move::Restart,
    Move::Delete,
    Move::RequestComes,
    Move::RequestEnds,
    Move::AppDies,
    Move::QueueProxyDies,
    Move::EnvoyDies,
    Move::EnvoyHangs,
    Move::EnvoyRecovers,
    Move::TidegateDies,
    Move::HookHangsUp,
];

impl World {
    fn new(mode: Mode, stream: bool, gated: bool) -> World {
        let ms = Duration::from_millis;
        let settings = Settings {
            mode,
            hold_queue_proxy: HoldQueueProxy::Auto,
            workload_protocol: Protocol::Http1,
            gate: if gated { Gate::Http } else { Gate::Off },
            timing: Timing {
                grace: ms(8_000),
                margin: ms(2_000),
                max_drain: None,
                upgrade_grace: None,
                announce_delay: ms(500),
                min_drain: ms(1_500),
                quiet: ms(1_000),
                quiet_max: ms(3_000),
                flush_max: ms(1_000),
                confirm: ms(500),
                restart_hold: ms(1_500),
            },
        };
        World {
            tick: 0,
            mode,
            machine: Machine::new(settings),
            tidegate: true,
            hook: None,
            queue_hook: None,
            stream,
            gated,
            closing: false,
            promised: false,
            restarted: false,
            deleted: None,
            app: Container::Running,
            queue_proxy: Container::Running,
            envoy: if mode == Mode::NoMesh {
                Proxy::Gone
            } else {
                Proxy::Serving
            },
            agent_told: false,
            request: false,
            arrived: 0,
            faults: 0,
            native_sigterm: false,
            proxy_released: false,
            calls: Vec::new(),
            outcome: None,
            cut_by_release: false,
        }
    }

    fn now(&self) -> Now {
        TICK * self.tick
    }

    fn ended(&self) -> bool {
        self.app == Container::Gone
            && self.queue_proxy == Container::Gone
            && self.envoy == Proxy::Gone
            && !self.tidegate
    }

    fn may(&self, step: Move) -> bool {
        if self.deleted.is_none() && self.tick >= DELETED_BY {
            return step == Move::Delete;
        }
        let fault = self.faults < if self.stream { 1 } else { FAULTS };
        let path = self.app == Container::Running
            && self.queue_proxy != Container::Gone
            && (self.mode == Mode::NoMesh || self.envoy != Proxy::Gone)
            && (!self.gated || self.tidegate);
        match step {
            Move::Nothing => true,
            Move::Restart => {
                self.deleted.is_none() && !self.restarted && self.app == Container::Running
            }
            Move::Delete => self.deleted.is_none(),
            Move::RequestComes => {
                path && !self.request
                    && self.arrived < 3
                    && self.queue_proxy == Container::Running
                    && self.machine.phase() < Phase::ReleasingWorkload
            }
            Move::RequestEnds => self.request,
            Move::AppDies => fault && self.app != Container::Gone && self.deleted.is_some(),
            Move::QueueProxyDies => fault && self.queue_proxy != Container::Gone,
            Move::EnvoyDies => fault && self.envoy != Proxy::Gone,
            Move::EnvoyHangs => fault && self.envoy == Proxy::Serving,
            Move::EnvoyRecovers => self.envoy == Proxy::Hanging,
            Move::TidegateDies => fault && self.tidegate,
            Move::HookHangsUp => fault && self.hook.is_some() && self.tidegate,
        }
    }

    fn make(&mut self, step: Move) {
        match step {
            Move::Nothing => {}
            Move::Restart => {
                self.restarted = true;
                self.open_hook(HookId(1));
            }
            Move::Delete => self.delete(),
            Move::RequestComes => {
                self.request = true;
                self.arrived += 1;
            }
            Move::RequestEnds => self.request = false,
            Move::AppDies => self.fault(|world| world.app = Container::Gone),
            Move::QueueProxyDies => self.fault(|world| world.queue_proxy = Container::Gone),
            Move::EnvoyDies => self.fault(|world| world.envoy = Proxy::Gone),
            Move::EnvoyHangs => self.fault(|world| world.envoy = Proxy::Hanging),
            Move::EnvoyRecovers => self.envoy = Proxy::Serving,
            Move::TidegateDies => self.fault(|world| {
                world.tidegate = false;
                world.hook = None;
                world.queue_hook = None;
            }),
            Move::HookHangsUp => self.fault(|world| {
                if let Some(hook) = world.hook.take() {
                    world.tell(Event::HookClosed { hook });
                }
            }),
        }
    }

    fn fault(&mut self, what: impl FnOnce(&mut World)) {
        self.faults += 1;
        what(self);
    }

    fn open_hook(&mut self, hook: HookId) {
        if self.tidegate {
            self.hook = Some(hook);
            self.tell(Event::HookOpened {
                hook,
                queue_proxy: false,
            });
        }
    }

    fn delete(&mut self) {
        self.deleted = Some(self.tick);
        if self.queue_proxy == Container::Running && self.tidegate {
            let hook = HookId(3);
            self.queue_hook = Some(hook);
            self.tell(Event::HookOpened {
                hook,
                queue_proxy: true,
            });
        }
        if self.hook.is_none() {
            self.open_hook(HookId(2));
        }
        self.tell(Event::Trigger(Trigger::PreStop));
        self.look_at_streams();
        let seen = self.gated || self.envoy == Proxy::Serving;
        self.promised = self.stream && self.request && self.tidegate && seen;
        self.signal_queue_proxy();
        if self.mode == Mode::Hold {
            self.tell(Event::ReleasedPolled { released: false });
        }
        if self.mode != Mode::Native {
            self.tell(Event::Trigger(Trigger::Sigterm));
        }
    }

    /// Time passes: containers follow their signals, the kubelet its order, calls their fate.
    fn pass(&mut self) {
        self.tick += 1;
        let overdue = self.deleted.is_some_and(|at| self.tick >= at + GRACE);
        if self.deleted.is_some() && self.hook.is_none() && self.app == Container::Running {
            self.app = Container::Stopping(self.tick);
        }
        if matches!(self.app, Container::Stopping(at) if self.tick > at) || overdue {
            self.app = Container::Gone;
        }
        self.signal_queue_proxy();
        let quiet = matches!(self.queue_proxy, Container::Stopping(at) if self.tick > at + 3);
        self.promised &= self.request && self.tidegate && self.outcome.is_none() && !overdue;
        if (quiet && (self.stream || !self.request)) || overdue {
            assert!(!self.promised, "queue-proxy cuts a stream that was seen");
            self.queue_proxy = Container::Gone;
        }
        let regular_gone = self.app == Container::Gone && self.queue_proxy == Container::Gone;
        let sigterm = self.mode == Mode::Native && (regular_gone || overdue);
        if sigterm && self.tidegate && self.deleted.is_some() && !self.native_sigterm {
            self.native_sigterm = true;
            self.tell(Event::Trigger(Trigger::Sigterm));
        }
        let proxy_signalled = match self.mode {
            // The waiter in istio-proxy's preStop outlives Tidegate, up to its own timeout.
            Mode::Hold => self.proxy_released || overdue,
            Mode::Native => (regular_gone && !self.tidegate) || overdue,
            _ => overdue,
        };
        if proxy_signalled && self.deleted.is_some() {
            self.envoy = Proxy::Gone;
        }
        if self.deleted.is_some_and(|at| self.tick > at + GRACE + 4) {
            self.tidegate = false;
        }
        if self.app == Container::Gone
            || self.queue_proxy == Container::Gone
            || (self.mode != Mode::NoMesh && self.envoy == Proxy::Gone)
            || (self.gated && !self.tidegate)
        {
            self.request = false;
        }
        self.answer_calls();
        self.look();
        self.tell(Event::Tick);
    }

    fn answer_calls(&mut self) {
        if self.envoy == Proxy::Hanging {
            return;
        }
        let result = match self.envoy {
            Proxy::Gone => CallResult::Gone,
            _ => CallResult::Done,
        };
        for call in std::mem::take(&mut self.calls) {
            match (call, result) {
                (Call::DrainInbound, CallResult::Gone) => {}
                (Call::QuitEnvoy | Call::QuitEnvoyAfterAgent, _) => self.envoy = Proxy::Gone,
                (Call::DrainAgent, CallResult::Done) => self.agent_told = true,
                _ => {}
            }
            self.tell(Event::Called { call, result });
        }
        if self.proxy_released && self.mode == Mode::Hold {
            self.tell(Event::ReleasedPolled { released: true });
        }
    }

    /// The kubelet sends queue-proxy's SIGTERM once its hook has been answered.
    fn signal_queue_proxy(&mut self) {
        let free = self.deleted.is_some() && self.queue_hook.is_none();
        if free && self.queue_proxy == Container::Running {
            self.queue_proxy = Container::Stopping(self.tick);
        }
    }

    fn look_at_streams(&mut self) {
        let active = u64::from(self.request);
        if self.machine.polling(self.now()).gate.is_some() {
            self.tell(Event::Gate(GateRequests {
                active,
                streams: if self.stream { active } else { 0 },
                total: self.arrived,
            }));
        }
        if self.machine.polling(self.now()).upgrades.is_none() {
            return;
        }
        self.tell(Event::Upgrades(match self.envoy {
            Proxy::Serving => Reading::Known(EnvoyUpgrades {
                active: if self.stream { active } else { 0 },
            }),
            Proxy::Hanging => Reading::Unknown(Cause::Timeout),
            Proxy::Gone => Reading::Unknown(Cause::Refused),
        }));
    }

    fn look(&mut self) {
        self.look_at_streams();
        let polling = self.machine.polling(self.now());
        let active = u64::from(self.request);
        if polling.envoy.is_some() {
            self.tell(Event::Envoy(match self.envoy {
                Proxy::Serving => Reading::Known(EnvoyRequests {
                    active,
                    total: self.arrived,
                }),
                Proxy::Hanging => Reading::Unknown(Cause::Timeout),
                Proxy::Gone => Reading::Unknown(Cause::Refused),
            }));
        }
        if polling.queue.is_some() {
            self.tell(Event::Queue(match self.queue_proxy {
                Container::Gone => Reading::Unknown(Cause::Refused),
                _ => Reading::Known(QueueRequests {
                    active,
                    ..QueueRequests::default()
                }),
            }));
        }
        if polling.sockets.is_some() {
            let alive = |container| u32::from(container != Container::Gone);
            self.tell(Event::Sockets(Reading::Known(Sockets {
                listening: alive(self.app) + alive(self.queue_proxy),
                established: u32::from(self.request),
                unsent: 0,
            })));
        }
    }

    fn tell(&mut self, event: Event) {
        if !self.tidegate {
            return;
        }
        let before = self.machine.phase();
        for action in self.machine.step(self.now(), event) {
            self.act(action);
        }
        if std::mem::take(&mut self.closing) {
            let closed = !self.request;
            self.tell(Event::GateClosed { closed });
        }
        assert!(self.machine.phase() >= before, "phases only advance");
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Answer(hook) => {
                if self.hook == Some(hook) {
                    self.hook = None;
                }
                if self.queue_hook == Some(hook) {
                    self.queue_hook = None;
                }
                if self.deleted.is_none() {
                    assert_eq!(
                        hook,
                        HookId(1),
                        "only a restart is answered before a deletion"
                    );
                }
            }
            Action::Begin(call) => {
                assert!(self.deleted.is_some(), "a restart never calls Envoy");
                assert!(
                    !(self.mode == Mode::Native
                        && matches!(call, Call::QuitEnvoy | Call::QuitEnvoyAfterAgent)),
                    "a native istio-proxy is never told to quit"
                );
                self.calls.push(call);
            }
            Action::Abandon(call) => self.calls.retain(|running| *running != call),
            Action::WorkloadReleased { outcome, .. } => {
                self.outcome = Some(outcome);
                self.cut_by_release = self.request && outcome == Outcome::Drained;
            }
            Action::ReleaseProxy => {
                self.proxy_released = true;
                self.check_proxy_last();
            }
            Action::Exit => {
                assert!(self.hook.is_none(), "no hook is left open");
                assert!(self.queue_hook.is_none(), "no hook is left open");
                self.tidegate = false;
            }
            Action::HoldProxy => panic!("only a restart of istio-proxy is held again"),
            Action::CloseGate => self.closing = true,
            Action::Entered(_) | Action::Gate(_) => {}
        }
    }

    fn check_proxy_last(&self) {
        let workload = self.app != Container::Gone || self.queue_proxy != Container::Gone;
        let forced = self.machine.outcome() != Some(Outcome::Drained);
        assert!(!workload || forced, "the proxy goes after the workload");
    }

    fn check(&self) {
        assert!(!self.cut_by_release, "drained with a request in flight");
        let hook = self.hook.or(self.queue_hook);
        if let (Some(_), Some(deadline), true) = (hook, self.machine.deadline(), self.tidegate) {
            let limit = deadline + Duration::from_secs(1);
            assert!(self.now() <= limit, "a hook outlived the deadline");
        }
    }
}

fn walk(mode: Mode, stream: bool, gated: bool) -> usize {
    let mut layer = vec![World::new(mode, stream, gated)];
    let mut states = 0;
    while !layer.is_empty() {
        let mut next = HashSet::new();
        for world in &layer {
            let mut moved = false;
            for step in MOVES.into_iter().filter(|step| world.may(*step)) {
                let mut after = world.clone();
                after.make(step);
                after.pass();
                after.check();
                moved = true;
                if !after.ended() {
                    next.insert(after);
                }
            }
            assert!(moved, "a state without a way on: {world:?}");
        }
        states += next.len();
        layer = next.into_iter().collect();
        assert!(
            layer
                .first()
                .is_none_or(|world| world.tick <= DELETED_BY + GRACE + 6),
            "a run that does not end: {:?}",
            layer.first()
        );
    }
    states
}

#[test]
fn every_run_of_a_small_pod_keeps_the_rules_and_ends() {
    for mode in [Mode::Hold, Mode::Annotate, Mode::Native, Mode::NoMesh] {
        for (stream, gated) in [(false, false), (true, false), (true, true)] {
            let states = walk(mode, stream, gated);
            println!("{mode:?}, streams {stream}, gate {gated}: {states} states");
            assert!(
                states > 1_000,
                "the walk of {mode:?} saw only {states} states"
            );
        }
    }
}
