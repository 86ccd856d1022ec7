//! Random orders of events: what must hold in every one of them.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Wait(u16),
    Hook {
        queue_proxy: bool,
    },
    HangUp(u8),
    Trigger(Trigger),
    Envoy(Reading<EnvoyRequests>),
    Upgrades(Reading<EnvoyUpgrades>),
    Queue(Reading<QueueRequests>),
    Sockets(Reading<Sockets>),
    Gate(GateRequests),
    /// Something comes in at the moment of so many closings.
    Surprise(u8),
    Mesh(bool),
    Called(Call, CallResult),
    Polled(bool),
}

fn reading<T: std::fmt::Debug + Clone + 'static>(
    known: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Reading<T>> {
    prop_oneof![
        3 => known.prop_map(Reading::Known),
        1 => prop_oneof![
            Just(Cause::Refused),
            Just(Cause::Timeout),
            Just(Cause::Broken),
            Just(Cause::Malformed),
            Just(Cause::Hidden),
        ]
        .prop_map(Reading::Unknown),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        Just(Call::DrainInbound),
        Just(Call::CloseDoor),
        Just(Call::DrainAgent),
        Just(Call::QuitEnvoy),
        Just(Call::QuitEnvoyAfterAgent),
    ]
}

fn result() -> impl Strategy<Value = CallResult> {
    prop_oneof![
        3 => Just(CallResult::Done),
        1 => Just(CallResult::Unsupported),
        1 => Just(CallResult::Gone),
        1 => Just(CallResult::Failed),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let requests = (0..3_u64, 0..50_u64);
    prop_oneof![
        8 => (0..2_000_u16).prop_map(Step::Wait),
        2 => any::<bool>().prop_map(|queue_proxy| Step::Hook { queue_proxy }),
        1 => any::<u8>().prop_map(Step::HangUp),
        1 => prop_oneof![Just(Trigger::PreStop), Just(Trigger::Sigterm)].prop_map(Step::Trigger),
        6 => reading(requests.clone().prop_map(|(active, total)| EnvoyRequests { active, total }))
            .prop_map(Step::Envoy),
        2 => reading((0..2_u64).prop_map(|active| EnvoyUpgrades { active })).prop_map(Step::Upgrades),
        3 => reading((requests, 0..9_u64).prop_map(|((active, arrived), report)| QueueRequests {
            active, arrived, report,
        }))
        .prop_map(Step::Queue),
        4 => reading((0..2_u32, 0..2_u32, 0..2_u64).prop_map(
            |(listening, established, unsent)| Sockets { listening, established, unsent },
        ))
        .prop_map(Step::Sockets),
        4 => (0..2_u64, 0..50_u64).prop_map(|(active, total)| Step::Gate(GateRequests {
            active, streams: active, total,
        })),
        1 => (0..3_u8).prop_map(Step::Surprise),
        1 => any::<bool>().prop_map(Step::Mesh),
        2 => (call(), result()).prop_map(|(call, result)| Step::Called(call, result)),
        1 => any::<bool>().prop_map(Step::Polled),
    ]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::Auto),
        Just(Mode::Hold),
        Just(Mode::Annotate),
        Just(Mode::Native),
        Just(Mode::NoMesh),
    ]
}

fn random_settings() -> impl Strategy<Value = Settings> {
    (
        mode(),
        proptest::collection::vec(0..12_u64, 10),
        proptest::option::of(0..40_u64),
        prop::sample::select(&HoldQueueProxy::ALL[..]),
        prop::sample::select(&Protocol::ALL[..]),
        prop::sample::select(&Gate::ALL[..]),
    )
        .prop_map(
            |(mode, n, cap, hold_queue_proxy, workload_protocol, gate)| Settings {
                mode,
                hold_queue_proxy,
                workload_protocol,
                gate,
                timing: Timing {
                    grace: Duration::from_secs(n[0] * 5),
                    margin: Duration::from_secs(n[1]),
                    max_drain: cap.map(Duration::from_secs),
                    upgrade_grace: None,
                    announce_delay: Duration::from_secs(n[2] / 3),
                    min_drain: Duration::from_secs(n[3]),
                    quiet: Duration::from_secs(n[4] / 2),
                    quiet_max: Duration::from_secs(n[5] * 3),
                    flush_max: Duration::from_secs(n[6] / 2),
                    confirm: Duration::from_secs(n[7] / 4),
                    restart_hold: Duration::from_secs(n[8] / 2),
                },
            },
        )
}

/// One run, with every rule checked after every step.
struct Checked {
    machine: Machine,
    settings: Settings,
    now: Now,
    next_hook: u64,
    opened: BTreeMap<HookId, Now>,
    trigger: Option<Now>,
    phase: Phase,
    released: Option<(Now, Outcome)>,
    proxy_released: Option<Now>,
    envoy: Option<Reading<EnvoyRequests>>,
    upgrades: Option<Reading<EnvoyUpgrades>>,
    gate: GateRequests,
    surprises: u8,
    stage: Stage,
    /// The machine has asked for the gate to be closed; it was.
    closing: bool,
    closed: bool,
    /// queue-proxy's hooks among the opened.
    queue: Vec<HookId>,
    known_once: bool,
    exits: u32,
}

impl Checked {
    fn new(settings: Settings) -> Checked {
        Checked {
            machine: Machine::new(settings),
            settings,
            now: Now::ZERO,
            next_hook: 0,
            opened: BTreeMap::new(),
            trigger: None,
            phase: Phase::Serving,
            released: None,
            proxy_released: None,
            envoy: None,
            upgrades: None,
            gate: GateRequests::default(),
            surprises: 0,
            stage: Stage::Serving,
            closing: false,
            closed: false,
            queue: Vec::new(),
            known_once: false,
            exits: 0,
        }
    }

    /// Lets time pass in the steps that the machine asks for.
    fn wait(&mut self, long: Duration) {
        let until = self.now + long;
        while let Some(at) = self.machine.next_timer(self.now).filter(|at| *at <= until) {
            self.now = at;
            self.tell(Event::Tick);
        }
        self.now = until;
        self.tell(Event::Tick);
    }

    fn tell(&mut self, event: Event) {
        if let Event::Envoy(reading) = event {
            self.envoy = Some(reading);
        }
        if let Event::Gate(requests) = event {
            self.gate = requests;
            self.known_once = true;
        }
        if let Event::Upgrades(reading) = event {
            self.upgrades = Some(reading);
        }
        if matches!(
            event,
            Event::Envoy(Reading::Known(_))
                | Event::Queue(Reading::Known(_))
                | Event::Sockets(Reading::Known(_))
        ) {
            self.known_once = true;
        }
        if let Event::Trigger(_) = event
            && self.trigger.is_none()
        {
            self.trigger = Some(self.now);
            self.known_once = false;
            self.envoy = None;
            self.upgrades = None;
        }
        for action in self.machine.step(self.now, event) {
            self.check(action);
        }
        if std::mem::take(&mut self.closing) {
            let busy = self.gate.active > 0 || self.surprises > 0;
            self.surprises = self.surprises.saturating_sub(1);
            self.closed |= !busy;
            self.tell(Event::GateClosed { closed: !busy });
        }
        assert!(self.machine.phase() >= self.phase, "phases only advance");
        self.phase = self.machine.phase();
        if self.trigger.is_none() {
            assert_eq!(self.phase, Phase::Serving, "no drain without a trigger");
        }
        self.check_hooks();
    }

    fn check(&mut self, action: Action) {
        match action {
            Action::Answer(hook) => {
                assert!(
                    self.opened.remove(&hook).is_some(),
                    "answered once, while open"
                );
                self.check_queue_proxy(hook);
            }
            Action::Begin(_) => assert!(self.trigger.is_some(), "a restart never calls Envoy"),
            Action::WorkloadReleased { outcome, .. } => {
                assert!(self.released.is_none(), "released once");
                self.released = Some((self.now, outcome));
                if outcome == Outcome::Drained {
                    self.check_drained();
                }
                if self.settings.gate != Gate::Off {
                    assert_eq!(self.stage, Stage::Closed, "nothing is let in to nobody");
                    // The other way to be drained is that all regular containers have gone.
                    let orderly = outcome == Outcome::Drained && self.phase == Phase::Flushing;
                    assert!(
                        !orderly || self.closed || self.machine.mode() == Mode::Native,
                        "drained without the gate's word"
                    );
                }
            }
            Action::ReleaseProxy => {
                let restart = self.trigger.is_none();
                assert!(
                    restart || self.released.is_some(),
                    "the workload goes first"
                );
                self.proxy_released = Some(self.now);
            }
            Action::HoldProxy => self.proxy_released = None,
            Action::Exit => self.exits += 1,
            Action::Gate(stage) => {
                assert!(stage > self.stage, "stages only advance");
                self.stage = stage;
            }
            Action::CloseGate => {
                assert!(self.trigger.is_some(), "a restart closes nothing");
                self.closing = true;
            }
            Action::Entered(_) | Action::Abandon(_) => {}
        }
    }

    /// In a drain, queue-proxy is not let go while Envoy says that it would cut something.
    fn check_queue_proxy(&self, hook: HookId) {
        let watched = self.settings.hold_queue_proxy == HoldQueueProxy::Auto
            && self.settings.workload_protocol == Protocol::Http1
            && self.settings.gate != Gate::Http
            && self.machine.mode() != Mode::NoMesh;
        if watched
            && self.trigger.is_some()
            && self.released.is_none()
            && self.queue.contains(&hook)
        {
            let open = self.upgrades.and_then(|reading| reading.known());
            assert!(
                open.is_none_or(|upgrades| upgrades.active == 0),
                "queue-proxy was let go with streams open"
            );
        }
    }

    fn check_drained(&self) {
        assert!(
            self.known_once,
            "never drained while all sources are unknown"
        );
        if self.machine.mode() != Mode::NoMesh
            && let Some(Reading::Known(envoy)) = self.envoy
        {
            assert_eq!(envoy.active, 0, "never drained while Envoy holds a request");
        }
        assert!(
            !matches!(self.machine.load(), Load::Busy(_)),
            "never drained while busy"
        );
    }

    /// Every hook has its answer by its own limit.
    fn check_hooks(&self) {
        let timing = &self.settings.timing;
        let second = Duration::from_secs(1);
        for opened in self.opened.values() {
            let limit = match self.trigger {
                None => *opened + timing.restart_hold.max(timing.confirm),
                Some(trigger) => trigger + timing.longest_drain() + second,
            };
            assert!(self.now <= limit, "a hook was held beyond its limit");
        }
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Wait(ms) => self.wait(Duration::from_millis(ms.into())),
            Step::Hook { queue_proxy } => {
                let hook = HookId(self.next_hook);
                self.next_hook += 1;
                if queue_proxy {
                    if !self.queue.iter().any(|hook| self.opened.contains_key(hook)) {
                        // Nobody has looked for a while.
                        self.upgrades = None;
                    }
                    self.queue.push(hook);
                }
                self.opened.insert(hook, self.now);
                self.tell(Event::HookOpened { hook, queue_proxy });
            }
            Step::HangUp(index) => {
                let Some(hook) = self.opened.keys().nth(index.into()).copied() else {
                    return;
                };
                self.opened.remove(&hook);
                self.tell(Event::HookClosed { hook });
            }
            Step::Trigger(trigger) => self.tell(Event::Trigger(trigger)),
            Step::Envoy(reading) => self.tell(Event::Envoy(reading)),
            Step::Upgrades(reading) => self.tell(Event::Upgrades(reading)),
            Step::Queue(reading) => self.tell(Event::Queue(reading)),
            Step::Sockets(reading) => self.tell(Event::Sockets(reading)),
            Step::Gate(requests) => {
                if self.settings.gate != Gate::Off {
                    self.tell(Event::Gate(requests));
                }
            }
            Step::Surprise(many) => self.surprises = many,
            Step::Mesh(present) => self.tell(Event::Mesh { present }),
            Step::Called(call, result) => self.tell(Event::Called { call, result }),
            Step::Polled(released) => self.tell(Event::ReleasedPolled {
                released: released && self.proxy_released.is_some(),
            }),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_order_of_events_keeps_the_rules(
        settings in random_settings(),
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut run = Checked::new(settings);
        for step in steps {
            run.apply(step);
        }
        // From here on nobody says anything any more: a drain must still end, and every hook with it.
        run.tell(Event::Trigger(Trigger::Sigterm));
        let limit = settings.timing.longest_drain() + Duration::from_secs(10);
        run.wait(limit);
        prop_assert_eq!(run.machine.phase(), Phase::Done);
        prop_assert_eq!(run.exits, 1);
        prop_assert!(run.opened.is_empty());
        prop_assert!(run.proxy_released.is_some());
    }
}
