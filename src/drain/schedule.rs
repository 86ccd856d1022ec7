//! When the state machine wants to be called again, and how often it wants each source looked at.

use std::time::Duration;

use super::Phase;
use super::budget::{
    AGENT_MAX, DOOR_LEAD, DOOR_MAX, EXACT_LOOK, KUBELET_MAX, LAST_WORD, POLL_PAUSE, PROXY_AFTER,
    PROXY_MAX, SIGTERM_LOOK,
};
use super::holds::Until;
use super::ledger::Load;
use super::machine::{Drain, Machine, Now, Proxy};
use crate::config::Mode;
use crate::inflight::Source;

/// How often each source is to be looked at; `None`: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// Envoy's clusters.
    pub envoy: Option<Duration>,
    /// Envoy's upgraded connections.
    pub upgrades: Option<Duration>,
    /// queue-proxy's metrics.
    pub queue: Option<Duration>,
    /// The sockets.
    pub sockets: Option<Duration>,
    /// All that matters of the sockets is that the workload has gone: none needs to be looked at while it
    /// is known to listen.
    pub until_gone: bool,
    /// The gate, besides every moment at which it holds nothing any more.
    pub gate: Option<Duration>,
}

impl Machine {
    /// How often to look at each source. Nothing is looked at while the pod simply serves.
    pub fn polling(&self, now: Now) -> Polling {
        const FAST: Duration = Duration::from_millis(50);
        const SLOW: Duration = Duration::from_millis(250);
        const QUEUE: Duration = Duration::from_millis(500);
        // A look at the sockets costs milliseconds of CPU; mostly others know better. And what Envoy holds
        // does not matter while the workload is there.
        const SPARE: Duration = Duration::from_secs(1);
        // While zero settles.
        const ZERO: Duration = Duration::from_millis(20);
        // For the looks that end a phase; they are few.
        const LAST: Duration = Duration::from_millis(10);
        // Whether somebody listens still costs next to nothing to see.
        const LISTENING: Duration = Duration::from_millis(20);
        const MANY: u64 = 8;
        // All that is left is to ask the others.
        let confirm = self.ledger.gate_unconfirmed();
        let near_zero = match self.load() {
            _ if confirm => EXACT_LOOK,
            Load::Busy(many) if many > MANY => SLOW,
            Load::Idle(_) => ZERO,
            Load::Busy(_) | Load::Unknown => FAST,
        };
        let last = match self.load() {
            Load::Idle(Source::Gate) => EXACT_LOOK,
            Load::Idle(_) => LAST,
            Load::Busy(_) | Load::Unknown => near_zero,
        };
        let (envoy, queue, sockets) = match (self.phase, self.drain) {
            (Phase::Done, _) => return Polling::default(),
            (Phase::Serving, _) if self.hooks.is_empty() => return Polling::default(),
            (Phase::Draining, Some(drain)) if now + SLOW * 2 >= self.earliest_end(&drain) => {
                (near_zero, Some(QUEUE), SPARE)
            }
            (Phase::ClosingDoor, _) => (last, Some(QUEUE), SLOW),
            (Phase::Flushing, _) => (last, Some(QUEUE), last.min(LAST)),
            (Phase::ReleasingWorkload, Some(Drain { gone: Some(_), .. })) => (FAST, None, LAST),
            (Phase::ReleasingWorkload, _) if self.listens() => (SPARE, None, LISTENING),
            (Phase::ReleasingWorkload | Phase::ReleasingProxy, _) => (SLOW, None, FAST),
            _ => (SLOW, Some(QUEUE), SPARE),
        };
        let stopped = self.drain.and_then(|drain| drain.sigterm);
        let sockets = match stopped {
            // Of a native sidecar: whether the workload lives is the question now.
            Some(at) if now < at + PROXY_AFTER => sockets.min(FAST),
            _ => sockets,
        };
        // queue-proxy's hook waits for the first look, and with it the kubelet.
        let envoy = if self.drain.is_some() && self.holds(Until::FirstLook) {
            envoy.min(LAST)
        } else {
            envoy
        };
        let upgrades = self.drain.is_some() && self.waits_for_upgrades();
        let sockets = match self.load() {
            // The sockets decide: look as often as the others would be looked at.
            Load::Unknown | Load::Idle(Source::Sockets) => sockets.min(envoy),
            _ => sockets,
        };
        Polling {
            envoy: self.has_mesh().then_some(envoy),
            // Envoy walks all its statistics for these, and nobody waits for the end of one but queue-proxy.
            upgrades: upgrades.then_some(if self.queue_proxy_held() { SLOW } else { envoy }),
            queue,
            sockets: Some(sockets),
            until_gone: self.phase == Phase::ReleasingWorkload,
            gate: self.gated().then_some(envoy),
        }
    }

    /// Whether a port of the workload was seen to listen when the sockets were last read.
    fn listens(&self) -> bool {
        let sockets = self.ledger.last_sockets();
        sockets.is_some_and(|sockets| sockets.listening > 0)
    }

    /// When the machine wants an [`Event::Tick`](super::Event::Tick) at the latest.
    pub fn next_timer(&self, now: Now) -> Option<Now> {
        let timing = &self.settings.timing;
        let mut timers = Vec::new();
        let Some(drain) = self.drain else {
            for held in self.hooks.values() {
                timers.push(held.opened + timing.confirm);
                timers.push(held.opened + timing.restart_hold);
            }
            timers.extend(self.polls.map(|polls| match polls.restart {
                true => polls.last + POLL_PAUSE,
                false => polls.first + timing.restart_hold,
            }));
            return timers.into_iter().filter(|at| *at > now).min();
        };
        match self.phase {
            Phase::Serving | Phase::Done => return None,
            Phase::Announcing => timers.push(drain.at + timing.announce_delay),
            Phase::Draining => {
                timers.extend(self.gated().then(|| self.upgrades_end(&drain)));
                timers.push(self.earliest_end(&drain));
                timers.push(drain.deadline.saturating_sub(DOOR_LEAD));
            }
            Phase::ClosingDoor => timers.push(self.since + DOOR_MAX),
            Phase::Flushing => timers.push(self.flush_began() + timing.flush_max),
            Phase::ReleasingWorkload => {
                timers.push(drain.proxy_by);
                timers.extend(drain.gone.map(|(since, _)| since + timing.flush_max));
            }
            Phase::ReleasingProxy => match drain.proxy {
                Proxy::Held => timers.push(drain.at + timing.confirm),
                Proxy::Telling { at } => timers.push(at + AGENT_MAX),
                Proxy::Released { at, .. } => {
                    timers.extend([self.proxy_by(&drain, at), at + KUBELET_MAX])
                }
            },
        }
        timers.extend(self.first_looks_by(&drain));
        if self.phase < Phase::ReleasingWorkload {
            timers.push(drain.deadline);
        }
        if self.phase < Phase::ReleasingProxy && drain.mode == Mode::Auto {
            timers.push(drain.at + timing.confirm);
        }
        timers.extend(drain.sigterm.map(|at| at + SIGTERM_LOOK));
        timers.extend(drain.sigterm.map(|at| at + PROXY_AFTER));
        timers.into_iter().filter(|at| *at > now).min()
    }

    /// When a drain may end at the earliest: `min-drain` and `quiet` past.
    pub(super) fn earliest_end(&self, drain: &Drain) -> Now {
        let timing = &self.settings.timing;
        let quiet = drain.last_arrival + timing.quiet;
        let quiet = self.quiet_max(drain).map_or(quiet, |max| quiet.min(max));
        quiet.max(drain.at + timing.min_drain)
    }

    /// Until when istio-proxy, released `at` this time, is waited for: not to the end of the grace period,
    /// so that the report is written.
    pub(super) fn proxy_by(&self, drain: &Drain, at: Now) -> Now {
        let killed = drain.at + self.settings.timing.grace;
        (at + PROXY_MAX).min(killed.saturating_sub(LAST_WORD))
    }

    /// When the wait for the send queues began: at the phase, or at the last zero within it.
    pub(super) fn flush_began(&self) -> Now {
        self.zero
            .map_or(self.since, |zero| zero.first.max(self.since))
    }
}
