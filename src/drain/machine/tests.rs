//! Tests of the state machine: a world to drive it in, shared by the files below.

mod endings;
mod gated;
mod holds;
mod limits;
mod properties;
mod transitions;
mod walk;

use super::*;
use crate::drain::Polling;
use crate::inflight::{
    Cause, EnvoyRequests, EnvoyUpgrades, GateRequests, QueueRequests, Reading, Sockets,
};

pub(crate) fn timing() -> Timing {
    let seconds = Duration::from_secs;
    Timing {
        grace: seconds(300),
        margin: seconds(3),
        max_drain: None,
        upgrade_grace: None,
        announce_delay: seconds(3),
        min_drain: seconds(10),
        quiet: seconds(5),
        quiet_max: seconds(30),
        flush_max: seconds(5),
        confirm: seconds(2),
        restart_hold: seconds(5),
    }
}

pub(crate) fn settings(mode: Mode) -> Settings {
    Settings {
        mode,
        timing: timing(),
        hold_queue_proxy: HoldQueueProxy::Auto,
        workload_protocol: Protocol::Http1,
        gate: Gate::Off,
    }
}

/// A pod whose sources can be set, looked at every 10 ms at most; calls are answered as `calls` says.
struct Pod {
    machine: Machine,
    now: Now,
    log: Vec<(Now, Action)>,
    envoy: Reading<EnvoyRequests>,
    upgrades: Reading<EnvoyUpgrades>,
    queue: Reading<QueueRequests>,
    sockets: Reading<Sockets>,
    calls: fn(Call) -> Option<CallResult>,
    gate: GateRequests,
    /// So many attempts to close the gate find something in flight.
    surprises: u8,
    looked: [Option<Now>; 5],
}

const LOOK: Duration = Duration::from_millis(10);

impl Pod {
    fn new(settings: Settings) -> Pod {
        Pod {
            machine: Machine::new(settings),
            now: Now::ZERO,
            log: Vec::new(),
            envoy: Reading::Known(EnvoyRequests::default()),
            upgrades: Reading::Known(EnvoyUpgrades::default()),
            queue: Reading::Known(QueueRequests::default()),
            sockets: Reading::Known(Sockets {
                listening: 3,
                established: 2,
                unsent: 0,
            }),
            calls: |_| Some(CallResult::Done),
            gate: GateRequests::default(),
            surprises: 0,
            looked: [None; 5],
        }
    }

    fn tell(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.machine.step(self.now, event) {
                self.log.push((self.now, action));
                if let Action::Begin(call) = action
                    && let Some(result) = (self.calls)(call)
                {
                    events.push(Event::Called { call, result });
                }
                if action == Action::CloseGate {
                    let closed = self.gate.active == 0 && self.surprises == 0;
                    self.surprises = self.surprises.saturating_sub(1);
                    events.push(Event::GateClosed { closed });
                }
            }
        }
    }

    /// Lets time pass, looking at every source as often as the machine wants it looked at.
    fn run(&mut self, seconds: f64) {
        let until = self.now + Duration::from_secs_f64(seconds);
        while self.now < until {
            self.now += LOOK;
            let polling = self.machine.polling(self.now);
            if let Reading::Known(queue) = &mut self.queue {
                queue.report = self.now.as_secs();
            }
            let looks = [
                (polling.envoy, Event::Envoy(self.envoy)),
                (polling.gate, Event::Gate(self.gate)),
                (polling.upgrades, Event::Upgrades(self.upgrades)),
                (polling.queue, Event::Queue(self.queue)),
                (polling.sockets, Event::Sockets(self.sockets)),
            ];
            for ((every, look), looked) in looks.into_iter().zip(0..) {
                let due = every.is_some_and(|every| {
                    self.looked[looked].is_none_or(|at| self.now >= at + every)
                });
                if due {
                    self.looked[looked] = Some(self.now);
                    self.tell(look);
                }
            }
            self.tell(Event::Tick);
        }
    }

    /// What `/released` says now.
    fn proxy_released(&self) -> bool {
        let last = self.log.iter().rev().find_map(|(_, action)| match action {
            Action::ReleaseProxy => Some(true),
            Action::HoldProxy => Some(false),
            _ => None,
        });
        last.unwrap_or(false)
    }

    fn in_flight(&mut self, active: u64, total: u64) {
        self.envoy = Reading::Known(EnvoyRequests { active, total });
    }

    fn workload_leaves(&mut self) {
        self.sockets = Reading::Known(Sockets::default());
        self.queue = Reading::Unknown(Cause::Refused);
    }

    fn unsent(&mut self, unsent: u64) {
        if let Reading::Known(sockets) = &mut self.sockets {
            sockets.unsent = unsent;
        }
    }

    /// When the action was asked for first.
    fn when(&self, wanted: Action) -> Option<f64> {
        let at = self.log.iter().find(|(_, action)| *action == wanted)?.0;
        Some(at.as_secs_f64())
    }

    fn entered(&self, phase: Phase) -> Option<f64> {
        self.when(Action::Entered(phase))
    }

    fn released(&self) -> Option<(f64, Outcome, u64)> {
        self.log.iter().find_map(|(at, action)| match action {
            Action::WorkloadReleased { outcome, in_flight } => {
                Some((at.as_secs_f64(), *outcome, *in_flight))
            }
            _ => None,
        })
    }

    fn begun(&self) -> Vec<Call> {
        self.log
            .iter()
            .filter_map(|(_, action)| match action {
                Action::Begin(call) => Some(*call),
                _ => None,
            })
            .collect()
    }

    fn upgraded(&mut self, active: u64) {
        self.upgrades = Reading::Known(EnvoyUpgrades { active });
    }

    fn hook(&mut self, number: u64) -> HookId {
        self.open(HookId(number), false)
    }

    fn queue_hook(&mut self, number: u64) -> HookId {
        self.open(HookId(number), true)
    }

    fn open(&mut self, hook: HookId, queue_proxy: bool) -> HookId {
        self.tell(Event::HookOpened { hook, queue_proxy });
        hook
    }
}

fn triggered(mode: Mode) -> Pod {
    let mut pod = Pod::new(settings(mode));
    pod.tell(Event::Trigger(Trigger::PreStop));
    pod
}

fn near(at: Option<f64>, wanted: f64) {
    let at = at.expect("it never happened");
    assert!((at - wanted).abs() < 0.025, "at {at} s, wanted {wanted} s");
}
