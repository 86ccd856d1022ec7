//! The transitions of the state machine, phase by phase.

use super::budget::{
    AGENT_MAX, DOOR_LEAD, DOOR_LOOKS, DOOR_MAX, KUBELET_MAX, POLL_PAUSE, PROXY_AFTER, SIGTERM_LOOK,
};
use super::event::{Action, Call, CallResult};
use super::ledger::Load;
use super::machine::{Drain, Machine, Now, Proxy, Zero};
use super::{Outcome, Phase};
use crate::config::Mode;
use crate::gate::engine::Stage;

impl Machine {
    pub(super) fn settled(&self) -> bool {
        self.zero.as_ref().is_some_and(Zero::settled)
    }

    pub(super) fn enter(&mut self, now: Now, phase: Phase, out: &mut Vec<Action>) {
        out.push(Action::Entered(phase));
        self.phase = phase;
        self.since = now;
        self.with_drain(|drain| drain.empty = None);
    }

    /// Tries one transition; `true`: it was taken, try again.
    pub(super) fn advance(&mut self, now: Now, out: &mut Vec<Action>) -> bool {
        self.resolve_mode(now);
        let Some(drain) = self.drain else {
            self.answer_restarts(now, out);
            self.restart_proxy(now, out);
            return false;
        };
        self.answer_queue_proxy(now, &drain, out);
        if self.phase < Phase::ReleasingWorkload {
            if now >= drain.deadline {
                self.release_workload(now, Outcome::Deadline, out);
                return true;
            }
            if self.phase < Phase::Flushing
                && self.ledger.workload_left()
                && matches!(self.load(), Load::Idle(_))
            {
                // Nobody is left to serve, so there is nothing to wait for.
                self.abandon_before(Phase::Flushing, out);
                self.enter(now, Phase::Flushing, out);
                return true;
            }
        }
        if self.sigterm_in_native(now, &drain, out) {
            return true;
        }
        match self.phase {
            Phase::Serving | Phase::Done => false,
            Phase::Announcing => self.announced(now, &drain, out),
            Phase::Draining => self.drained(now, &drain, out),
            Phase::ClosingDoor => self.door_closed(now, &drain, out),
            Phase::Flushing => self.flushed(now, &drain, out),
            Phase::ReleasingWorkload => self.workload_gone(now, &drain, out),
            Phase::ReleasingProxy => self.proxy_gone(now, &drain, out),
        }
    }

    /// Hooks without a trigger: the container restarts, not the pod.
    fn answer_restarts(&mut self, now: Now, out: &mut Vec<Action>) {
        let timing = self.settings.timing;
        let zero = self.zero;
        self.hooks.retain(|hook, held| {
            let confirmed = held.opened + timing.confirm;
            let idle = zero.is_some_and(|zero| zero.last >= confirmed);
            let answered = now >= confirmed && (idle || now >= held.opened + timing.restart_hold);
            if answered {
                out.push(Action::Answer(*hook));
            }
            !answered
        });
    }

    /// Polls without a trigger: istio-proxy restarts, alone, and is let go after `restart-hold`. A waiter
    /// that is gone has no more use for its release, and the next one is another.
    fn restart_proxy(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(polls) = &mut self.polls else {
            return;
        };
        let lives = now < polls.last + POLL_PAUSE;
        if !lives && polls.restart {
            self.polls = None;
            out.push(Action::HoldProxy);
        } else if lives && !polls.restart && now >= polls.first + self.settings.timing.restart_hold
        {
            polls.restart = true;
            out.push(Action::ReleaseProxy);
        }
    }

    fn resolve_mode(&mut self, now: Now) {
        let confirm = self.settings.timing.confirm;
        let Some(drain) = &mut self.drain else {
            return;
        };
        if drain.mode != Mode::Auto {
            return;
        }
        let until = drain.at + confirm;
        // A regular container is signalled as soon as its own preStop returns.
        let signalled = drain.sigterm.is_some_and(|at| at <= until);
        if signalled || self.polls.is_some() {
            drain.mode = Mode::Hold;
        } else if now >= until {
            drain.mode = Mode::Native;
        }
    }

    /// A native sidecar gets SIGTERM when all regular containers have exited, or when the grace
    /// period is over.
    fn sigterm_in_native(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        let Some(at) = drain.sigterm.filter(|_| drain.mode == Mode::Native) else {
            return false;
        };
        let fresh = self.looked_at_sockets.is_some_and(|looked| looked > at);
        let lives = match self.ledger.last_sockets() {
            Some(sockets) if fresh => !sockets.workload_gone(),
            _ if now >= at + SIGTERM_LOOK => true,
            _ => return false,
        };
        if self.settings.mode == Mode::Auto && fresh && lives && now < drain.deadline {
            // Grace cannot be over yet, so this was no native sidecar: its SIGTERM was late.
            self.with_drain(|drain| drain.mode = Mode::Hold);
            return true;
        }
        let by = at + PROXY_AFTER;
        let busy = self.busy() > 0;
        match self.phase {
            Phase::Serving | Phase::ReleasingProxy | Phase::Done => false,
            Phase::ReleasingWorkload if lives && by < drain.proxy_by => {
                self.with_drain(|drain| drain.proxy_by = by);
                true
            }
            Phase::ReleasingWorkload => false,
            _ if lives || (busy && now >= by) => {
                self.release_workload(now, Outcome::GraceOver, out);
                true
            }
            _ if busy => false,
            // The workload died of its own SIGTERM before it could be seen to live.
            _ if drain.busy_at_sigterm > 0 => {
                self.release_workload(now, Outcome::GraceOver, out);
                true
            }
            _ => {
                self.release_workload(now, Outcome::Drained, out);
                true
            }
        }
    }

    fn announced(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        if now < drain.at + self.settings.timing.announce_delay {
            return false;
        }
        self.enter(now, Phase::Draining, out);
        let alone = self.mesh == Some(false) && self.polls.is_none();
        if self.settings.mode == Mode::Auto && alone {
            self.with_drain(|drain| drain.mode = Mode::NoMesh);
        }
        true
    }

    fn drained(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        self.drain_inbound(drain, out);
        // Whether Envoy agrees with the gate shows once the door is closed, which costs nothing then.
        let zero = self.settled() || self.ledger.gate_idle();
        let ended = zero && now >= self.earliest_end(drain);
        let last_call = self.has_mesh() && now + DOOR_LEAD >= drain.deadline;
        if !ended && !last_call {
            return false;
        }
        if self.has_mesh() {
            self.enter(now, Phase::ClosingDoor, out);
            out.push(Action::Begin(Call::CloseDoor));
        } else {
            self.enter(now, Phase::Flushing, out);
        }
        true
    }

    /// Asks Envoy to drain, once. From 1.40 on Envoy ends upgraded connections by itself in the last third
    /// of its drainDuration of 45 s, so that it is not asked while some are known to be open.
    fn drain_inbound(&mut self, drain: &Drain, out: &mut Vec<Action>) {
        if self.has_mesh() && !drain.envoy_asked && !self.upgrades_open() {
            self.with_drain(|drain| drain.envoy_asked = true);
            out.push(Action::Begin(Call::DrainInbound));
        }
    }

    fn door_closed(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        let seen = match drain.door {
            Some(looks) => looks >= DOOR_LOOKS,
            None => now >= self.since + DOOR_MAX,
        };
        if !seen || !self.settled() {
            return false;
        }
        self.abandon_before(Phase::Flushing, out);
        self.enter(now, Phase::Flushing, out);
        true
    }

    fn flushed(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        let Some(zero) = self.zero.filter(Zero::settled) else {
            return false;
        };
        // Zero is to have been seen again beside the empty queues.
        let empty = drain
            .empty
            .is_some_and(|(since, looks)| looks >= 2 && zero.last >= since);
        if !empty && now < self.flush_began() + self.settings.timing.flush_max {
            return false;
        }
        if self.gated() && !drain.gate_closed {
            out.push(Action::CloseGate);
            return false;
        }
        self.release_workload(now, Outcome::Drained, out);
        true
    }

    fn release_workload(&mut self, now: Now, outcome: Outcome, out: &mut Vec<Action>) {
        let in_flight = match (outcome, self.drain) {
            (Outcome::GraceOver, Some(drain)) => self.busy().max(drain.busy_at_sigterm),
            _ => self.busy(),
        };
        self.abandon_before(Phase::ReleasingWorkload, out);
        self.with_drain(|drain| {
            drain.outcome = Some(outcome);
            if outcome != Outcome::Drained {
                drain.proxy_by = now + PROXY_AFTER;
            }
        });
        self.gate_to(Stage::Closed, out);
        out.push(Action::WorkloadReleased { outcome, in_flight });
        out.extend(self.hooks.keys().map(|hook| Action::Answer(*hook)));
        self.hooks.clear();
        self.enter(now, Phase::ReleasingWorkload, out);
    }

    fn workload_gone(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        let unsent = self
            .ledger
            .last_sockets()
            .is_none_or(|sockets| sockets.unsent > 0);
        // The kernel hands its tables out in pages, so one look may be torn.
        let gone = drain.gone.is_some_and(|(since, looks)| {
            let flushed = !unsent || now >= since + self.settings.timing.flush_max;
            looks >= 2 && flushed && !self.ledger.envoy_busy()
        });
        if !gone && now < drain.proxy_by {
            return false;
        }
        if !gone && drain.outcome == Some(Outcome::Drained) {
            self.with_drain(|drain| drain.outcome = Some(Outcome::Deadline));
        }
        self.enter(now, Phase::ReleasingProxy, out);
        true
    }

    fn proxy_gone(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) -> bool {
        match (drain.proxy, drain.mode) {
            (Proxy::Held, Mode::Auto) => return false,
            (Proxy::Held, Mode::NoMesh | Mode::Annotate) => {
                let quitting = drain.mode == Mode::Annotate;
                out.push(Action::ReleaseProxy);
                if quitting {
                    out.push(Action::Begin(Call::QuitEnvoy));
                }
                self.set_proxy(Proxy::Released { at: now, quitting });
                return true;
            }
            (Proxy::Held, Mode::Hold | Mode::Native) => {
                out.push(Action::Begin(Call::DrainAgent));
                self.set_proxy(Proxy::Telling { at: now });
                return true;
            }
            (Proxy::Telling { at }, _) => {
                if now < at + AGENT_MAX {
                    return false;
                }
                out.push(Action::Abandon(Call::DrainAgent));
                self.with_drain(|drain| proxy_told(now, drain, CallResult::Failed, out));
                return true;
            }
            (Proxy::Released { at, quitting }, _) => {
                let unseen = self.polls.is_some() && !drain.proxy_saw;
                if (unseen || quitting) && now < self.proxy_by(drain, at) {
                    return false;
                }
                // A native sidecar is stopped now, and is not to go before: a stop that meets it on its
                // way out can fail, and the kubelet then leaves istio-proxy alone until the grace period
                // is over.
                let native = matches!(drain.mode, Mode::Native | Mode::NoMesh);
                if native && drain.sigterm.is_none() && now < at + KUBELET_MAX {
                    return false;
                }
                if quitting {
                    out.push(Action::Abandon(Call::QuitEnvoy));
                    out.push(Action::Abandon(Call::QuitEnvoyAfterAgent));
                }
            }
        }
        self.enter(now, Phase::Done, out);
        out.push(Action::Exit);
        true
    }

    fn set_proxy(&mut self, proxy: Proxy) {
        self.with_drain(|drain| drain.proxy = proxy);
    }

    pub(super) fn with_drain(&mut self, change: impl FnOnce(&mut Drain)) {
        if let Some(drain) = &mut self.drain {
            change(drain);
        }
    }

    /// Gives up the calls that no longer matter once `phase` begins.
    fn abandon_before(&self, phase: Phase, out: &mut Vec<Action>) {
        if self.phase < phase && self.phase >= Phase::Draining && self.has_mesh() {
            out.push(Action::Abandon(Call::DrainInbound));
            out.push(Action::Abandon(Call::CloseDoor));
        }
    }
}

/// The agent has been told, or cannot be.
pub(super) fn proxy_told(now: Now, drain: &mut Drain, result: CallResult, out: &mut Vec<Action>) {
    let quitting = drain.mode == Mode::Hold && result != CallResult::Done;
    drain.proxy = Proxy::Released { at: now, quitting };
    out.push(Action::ReleaseProxy);
    if quitting {
        // This agent would sleep out its terminationDrainDuration; it leaves with Envoy.
        out.push(Action::Begin(Call::QuitEnvoyAfterAgent));
    }
}
