//! The state machine: `step(now, event) -> actions`, no I/O, no clock of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use super::budget::{POLL_PAUSE, PROXY_AFTER, SETTLE, SETTLE_QUEUE};
use super::event::{Action, Call, CallResult, Event};
use super::holds::Held;
use super::ledger::{Ledger, Load};
use super::phases::proxy_told;
use super::{HookId, Outcome, Phase, Trigger};
use crate::config::{Gate, HoldQueueProxy, Mode, Protocol, Timing};
use crate::gate::engine::Stage;
use crate::inflight::Source;

/// Time since the machine was made.
pub type Now = Duration;

/// The part of the configuration that a drain depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// How istio-proxy is ended.
    pub mode: Mode,
    /// Delays and limits.
    pub timing: Timing,
    /// What becomes of a hold that queue-proxy asks for.
    pub hold_queue_proxy: HoldQueueProxy,
    /// What the revision speaks.
    pub workload_protocol: Protocol,
    /// Whether a gate counts.
    pub gate: Gate,
}

/// The state of one drain.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Machine {
    pub(super) settings: Settings,
    pub(super) phase: Phase,
    pub(super) since: Now,
    pub(super) hooks: BTreeMap<HookId, Held>,
    pub(super) drain: Option<Drain>,
    pub(super) ledger: Ledger,
    pub(super) zero: Option<Zero>,
    pub(super) mesh: Option<bool>,
    pub(super) looked_at_sockets: Option<Now>,
    pub(super) polls: Option<Polls>,
}

/// The polls of `/released` by istio-proxy's preStop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Polls {
    pub(super) first: Now,
    pub(super) last: Now,
    /// Released though the pod serves: the container restarts alone.
    pub(super) restart: bool,
}

/// What is known from the trigger on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Drain {
    pub(super) at: Now,
    pub(super) deadline: Now,
    pub(super) mode: Mode,
    pub(super) sigterm: Option<Now>,
    /// What was in flight when SIGTERM came.
    pub(super) busy_at_sigterm: u64,
    pub(super) last_arrival: Now,
    /// Envoy was asked to drain inbound.
    pub(super) envoy_asked: bool,
    /// Where the gate was brought to.
    pub(super) stage: Stage,
    /// It admits nothing any more, and nothing is in flight in it.
    pub(super) gate_closed: bool,
    /// The door is closed, or was found to need no closing; looks that found zero since then.
    pub(super) door: Option<u8>,
    /// When the send queues were first seen to be empty, and in how many looks in a row.
    pub(super) empty: Option<(Now, u8)>,
    /// When the workload, once released, was first seen to be gone, and in how many looks.
    pub(super) gone: Option<(Now, u8)>,
    pub(super) outcome: Option<Outcome>,
    /// When the proxy is released whatever else holds.
    pub(super) proxy_by: Now,
    pub(super) proxy: Proxy,
    pub(super) proxy_saw: bool,
}

/// How far the proxy's release is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Proxy {
    Held,
    /// The agent is being told, so that its SIGTERM ends it at once.
    Telling {
        at: Now,
    },
    /// Released; `quitting`: Envoy is still to be quit.
    Released {
        at: Now,
        quitting: bool,
    },
}

/// A run of looks that found nothing in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Zero {
    source: Source,
    pub(super) first: Now,
    pub(super) last: Now,
}

impl Zero {
    /// Whether zero has lasted long enough.
    pub(super) fn settled(&self) -> bool {
        let long_enough = match self.source {
            Source::QueueProxy => SETTLE_QUEUE,
            Source::Envoy | Source::Sockets => SETTLE,
            Source::Gate => Duration::ZERO,
        };
        self.last.saturating_sub(self.first) >= long_enough
    }
}

impl Machine {
    /// A machine that serves.
    pub fn new(settings: Settings) -> Machine {
        Machine {
            settings,
            phase: Phase::Serving,
            since: Now::ZERO,
            hooks: BTreeMap::new(),
            drain: None,
            ledger: Ledger::default(),
            zero: None,
            mesh: None,
            looked_at_sockets: None,
            polls: None,
        }
    }

    /// Takes one event; says what is to be done. `now` never goes back.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.absorb(now, event, &mut out);
        while self.advance(now, &mut out) {}
        self.follow_with_gate(now, &mut out);
        out
    }

    /// Where the drain stands.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The mode, as far as it is known.
    pub fn mode(&self) -> Mode {
        self.drain.map_or(self.settings.mode, |drain| drain.mode)
    }

    /// What ended the drain, once the workload is released.
    pub fn outcome(&self) -> Option<Outcome> {
        self.drain.and_then(|drain| drain.outcome)
    }

    /// What is in flight, by all sources together.
    pub fn load(&self) -> Load {
        self.ledger.load(self.has_mesh())
    }

    pub(super) fn busy(&self) -> u64 {
        match self.load() {
            Load::Busy(many) => many,
            Load::Idle(_) | Load::Unknown => 0,
        }
    }

    /// Requests that arrived after the trigger, as far as they were seen.
    pub fn late(&self) -> u64 {
        self.drain.map_or(0, |_| self.ledger.late())
    }

    /// When the workload is released at the latest.
    pub fn deadline(&self) -> Option<Now> {
        self.drain.map(|drain| drain.deadline)
    }

    /// Hooks that are held.
    pub fn hooks_held(&self) -> usize {
        self.hooks.len()
    }

    pub(super) fn has_mesh(&self) -> bool {
        self.mode() != Mode::NoMesh
    }

    // ===== events =====

    fn absorb(&mut self, now: Now, event: Event, out: &mut Vec<Action>) {
        match event {
            Event::HookOpened { hook, queue_proxy } => {
                self.hook_opened(now, hook, queue_proxy, out);
            }
            Event::HookClosed { hook } => {
                self.hooks.remove(&hook);
            }
            Event::Trigger(trigger) => self.triggered(now, trigger, out),
            Event::Envoy(reading) => {
                let arrived = self.ledger.envoy(now, reading);
                self.looked(now, Source::Envoy, arrived);
            }
            Event::Upgrades(reading) => self.ledger.take_upgrades(reading),
            Event::Queue(reading) => {
                let arrived = self.ledger.queue(now, reading, self.has_mesh());
                self.looked(now, Source::QueueProxy, arrived);
            }
            Event::Sockets(reading) => {
                self.ledger.sockets(reading);
                self.looked(now, Source::Sockets, 0);
                self.looked_at_sockets(now);
            }
            Event::Gate(requests) => {
                let strict = !self.past_quiet_max(now);
                let arrived = self.ledger.gate(now, requests, self.has_mesh(), strict);
                self.looked(now, Source::Gate, arrived);
            }
            Event::GateClosed { closed } => self.gate_closed(closed),
            // Once seen, a mesh does not vanish: a dead Envoy is an Envoy all the same.
            Event::Mesh { present } => self.mesh = Some(present || self.mesh == Some(true)),
            Event::Called { call, result } => self.called(now, call, result, out),
            Event::ReleasedPolled { released } => {
                self.polled(now, released, out);
            }
            Event::Tick => {}
        }
    }

    fn polled(&mut self, now: Now, released: bool, out: &mut Vec<Action>) {
        let run = self.polls.filter(|polls| now < polls.last + POLL_PAUSE);
        let polls = Polls {
            last: now,
            ..run.unwrap_or(Polls {
                first: now,
                last: now,
                restart: false,
            })
        };
        if let Some(drain) = &mut self.drain {
            drain.proxy_saw |= released;
        } else if released {
            out.push(Action::HoldProxy);
            self.polls = None;
            return;
        }
        self.polls = Some(polls);
    }

    fn triggered(&mut self, now: Now, trigger: Trigger, out: &mut Vec<Action>) {
        let sigterm = (trigger == Trigger::Sigterm).then_some(now);
        let busy = self.busy();
        if let Some(drain) = &mut self.drain {
            if drain.sigterm.is_none() && sigterm.is_some() {
                drain.sigterm = sigterm;
                drain.busy_at_sigterm = busy;
            }
            return;
        }
        self.forget_looks();
        if self.polls.is_some_and(|polls| polls.restart) {
            out.push(Action::HoldProxy);
        }
        // What polled long before has had another reason.
        self.polls = self.polls.filter(|polls| now < polls.last + POLL_PAUSE);
        let deadline = now + self.settings.timing.longest_drain();
        self.drain = Some(Drain {
            at: now,
            deadline,
            mode: self.settings.mode,
            sigterm,
            busy_at_sigterm: 0,
            last_arrival: now,
            envoy_asked: false,
            stage: Stage::Serving,
            gate_closed: false,
            door: None,
            empty: None,
            gone: None,
            outcome: None,
            proxy_by: deadline + PROXY_AFTER,
            proxy: Proxy::Held,
            proxy_saw: false,
        });
        self.enter(now, Phase::Announcing, out);
    }

    pub(super) fn forget_looks(&mut self) {
        self.ledger = Ledger::default();
        self.zero = None;
    }

    /// Follows zero over the looks. Only the source that zero rests on prolongs it: an old word of
    /// Envoy's is not made new by a look at queue-proxy. A request that came and went between two
    /// looks breaks it until `quiet-max` is past: a prober that never stops would break it for ever.
    /// The gate tells of itself when its zero ends, so that any look prolongs that.
    fn looked(&mut self, now: Now, source: Source, arrived: u64) {
        if arrived > 0 {
            if !self.past_quiet_max(now) {
                self.zero = None;
            }
            self.with_drain(|drain| drain.last_arrival = now);
        }
        self.zero = match (self.load(), self.zero) {
            // Another source may take over: nothing was in flight by the word of either.
            (Load::Idle(by), Some(zero)) => Some(Zero {
                source: by,
                last: if seen_by(by, source) { now } else { zero.last },
                ..zero
            }),
            (Load::Idle(by), _) if seen_by(by, source) => Some(Zero {
                source: by,
                first: now,
                last: now,
            }),
            _ => None,
        };
        if let Some(Drain {
            door: Some(looks), ..
        }) = &mut self.drain
        {
            *looks = match self.zero {
                None => 0,
                Some(zero) if zero.source == source => looks.saturating_add(1),
                // It is Envoy's door.
                Some(zero) if zero.source == Source::Gate && source == Source::Envoy => {
                    looks.saturating_add(1)
                }
                Some(_) => *looks,
            };
        }
    }

    /// Whether new requests have ceased to prolong the drain.
    fn past_quiet_max(&self, now: Now) -> bool {
        self.drain
            .and_then(|drain| self.quiet_max(&drain))
            .is_some_and(|at| now >= at)
    }

    /// When new requests cease to prolong the drain. Never where nobody can refuse them: without a mesh
    /// and a gate they would meet a workload that has gone, and queue-proxy, which tells of them, leaves
    /// probes out.
    pub(super) fn quiet_max(&self, drain: &Drain) -> Option<Now> {
        let door = self.has_mesh() || self.gated();
        door.then(|| drain.at + self.settings.timing.quiet_max)
    }

    fn looked_at_sockets(&mut self, now: Now) {
        let sockets = self.ledger.last_sockets();
        if sockets.is_some() {
            self.looked_at_sockets = Some(now);
        }
        let Some(drain) = &mut self.drain else {
            return;
        };
        let empty = sockets.is_some_and(|sockets| sockets.unsent == 0);
        drain.empty = empty.then(|| seen_again(drain.empty, now));
        let gone = sockets.is_some_and(|sockets| sockets.workload_gone());
        if self.phase == Phase::ReleasingWorkload {
            drain.gone = gone.then(|| seen_again(drain.gone, now));
        }
    }

    fn called(&mut self, now: Now, call: Call, result: CallResult, out: &mut Vec<Action>) {
        let phase = self.phase;
        let Some(drain) = &mut self.drain else {
            return;
        };
        match call {
            Call::DrainInbound => {}
            Call::CloseDoor if phase == Phase::ClosingDoor => drain.door = Some(0),
            Call::CloseDoor => {}
            Call::DrainAgent if matches!(drain.proxy, Proxy::Telling { .. }) => {
                proxy_told(now, drain, result, out);
            }
            Call::DrainAgent => {}
            Call::QuitEnvoy | Call::QuitEnvoyAfterAgent => {
                if let Proxy::Released { quitting, .. } = &mut drain.proxy {
                    *quitting = false;
                }
            }
        }
    }
}

/// Whether a look at `source` shows again a zero that rests on `by`.
fn seen_by(by: Source, source: Source) -> bool {
    by == source || by == Source::Gate
}

/// One more look that found the same: since when, and in how many.
fn seen_again(before: Option<(Now, u8)>, now: Now) -> (Now, u8) {
    before.map_or((now, 1), |(since, looks)| (since, looks.saturating_add(1)))
}

#[cfg(test)]
pub(crate) mod tests;
