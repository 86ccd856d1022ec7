//! When the state machine wants to be called again, and how often it wants each source looked at.

use std::time::Duration;

use super::Phase;
use super::budget::{
    AGENT_MAX, DOOR_LEAD, DOOR_MAX, POLL_PAUSE, PROXY_AFTER, PROXY_MAX, SIGTERM_LOOK,
};
use super::ledger::Load;
use super::machine::{Drain, Machine, Now, Proxy};
use crate::config::Mode;
use crate::inflight::Source;

/// How often each source is to be looked at; `None`: not at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polling {
    /// Envoy's clusters.
    pub envoy: Option<Duration>,
    /// queue-proxy's metrics.
    pub queue: Option<Duration>,
    /// The sockets.
    pub sockets: Option<Duration>,
}

impl Machine {
    /// How often to look at each source. Nothing is looked at while the pod simply serves.
    pub fn polling(&self, now: Now) -> Polling {
        const FAST: Duration = Duration::from_millis(50);
        const SLOW: Duration = Duration::from_millis(250);
        const QUEUE: Duration = Duration::from_millis(500);
        // For the looks that end a phase; they are few.
        const LAST: Duration = Duration::from_millis(20);
        const MANY: u64 = 8;
        let near_zero = match self.load() {
            Load::Busy(many) if many > MANY => SLOW,
            _ => FAST,
        };
        let last = match self.load() {
            Load::Idle(_) => LAST,
            Load::Busy(_) | Load::Unknown => near_zero,
        };
        let (envoy, queue, sockets) = match (self.phase, self.drain) {
            (Phase::Done, _) => return Polling::default(),
            (Phase::Serving, _) if self.hooks.is_empty() => return Polling::default(),
            (Phase::Draining, Some(drain)) if now + SLOW * 2 >= self.earliest_end(&drain) => {
                (near_zero, Some(QUEUE), SLOW)
            }
            (Phase::ClosingDoor, _) => (last, Some(QUEUE), SLOW),
            (Phase::Flushing, _) => (last, Some(QUEUE), LAST),
            (Phase::ReleasingWorkload, Some(Drain { gone: Some(_), .. })) => (FAST, None, LAST),
            (Phase::ReleasingWorkload | Phase::ReleasingProxy, _) => (SLOW, None, FAST),
            _ => (SLOW, Some(QUEUE), SLOW),
        };
        let sockets = match self.load() {
            // The sockets decide: look as often as the others would be looked at.
            Load::Unknown | Load::Idle(Source::Sockets) => sockets.min(envoy),
            _ => sockets,
        };
        Polling {
            envoy: self.has_mesh().then_some(envoy),
            queue,
            sockets: Some(sockets),
        }
    }

    /// When the machine wants an [`Event::Tick`](super::Event::Tick) at the latest.
    pub fn next_timer(&self, now: Now) -> Option<Now> {
        let timing = &self.settings.timing;
        let mut timers = Vec::new();
        let Some(drain) = self.drain else {
            timers.extend(self.hooks.values().map(|opened| *opened + timing.confirm));
            timers.extend(
                self.hooks
                    .values()
                    .map(|opened| *opened + timing.restart_hold),
            );
            let restart = self.polls.filter(|polls| polls.restart);
            timers.extend(restart.map(|polls| polls.last + POLL_PAUSE));
            return timers.into_iter().filter(|at| *at > now).min();
        };
        match self.phase {
            Phase::Serving | Phase::Done => return None,
            Phase::Announcing => timers.push(drain.at + timing.announce_delay),
            Phase::Draining => {
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
                Proxy::Released { at, .. } => timers.push(at + PROXY_MAX),
            },
        }
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
        let quiet = (drain.last_arrival + timing.quiet).min(drain.at + timing.quiet_max);
        quiet.max(drain.at + timing.min_drain)
    }

    /// When the wait for the send queues began: at the phase, or at the last zero within it.
    pub(super) fn flush_began(&self) -> Now {
        self.zero
            .map_or(self.since, |zero| zero.first.max(self.since))
    }
}
