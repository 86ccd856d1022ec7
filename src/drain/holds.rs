//! The hooks that are held, and for how long: a user container's until the release, queue-proxy's as
//! long as it would cut something.

use super::budget::STREAMS_LOOK;
use super::event::Action;
use super::ledger::Load;
use super::machine::{Drain, Machine, Now};
use super::{HookId, Phase};
use crate::config::{Gate, HoldQueueProxy, Protocol};
use crate::inflight::{Cause, Reading, Source};

/// A hook that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) opened: Now,
    pub(super) until: Until,
}

/// What ends the hold, besides the release of the workload and the rules of a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Until {
    /// Nothing else.
    Release,
    /// queue-proxy's: the first look at what it would cut, if that finds nothing.
    FirstLook,
    /// queue-proxy's: the end of the streams that the first look found.
    StreamsEnd,
}

/// What is open that queue-proxy would cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Streams {
    Open,
    Ended,
    /// Nobody can tell, and nobody will.
    Hidden,
    /// Nobody has told yet.
    Unknown,
}

impl Machine {
    pub(super) fn hook_opened(
        &mut self,
        now: Now,
        hook: HookId,
        queue_proxy: bool,
        out: &mut Vec<Action>,
    ) {
        let until = match (queue_proxy, self.settings.hold_queue_proxy) {
            (true, HoldQueueProxy::Auto) => Some(Until::FirstLook),
            (true, HoldQueueProxy::Never) => None,
            (true, HoldQueueProxy::Always) | (false, _) => Some(Until::Release),
        };
        let Some(until) = until.filter(|_| self.phase < Phase::ReleasingWorkload) else {
            out.push(Action::Answer(hook));
            return;
        };
        if self.drain.is_none() && self.hooks.is_empty() {
            // Nothing was looked at meanwhile; what is known is old.
            self.forget_looks();
        }
        if !self.waits_for_streams() {
            self.ledger.forget_upgrades();
        }
        self.hooks.insert(hook, Held { opened: now, until });
    }

    /// Whether queue-proxy is held, since streams are open that it would cut.
    pub fn queue_proxy_held(&self) -> bool {
        self.holds(Until::StreamsEnd)
    }

    pub(super) fn holds(&self, until: Until) -> bool {
        self.hooks.values().any(|held| held.until == until)
    }

    /// Whether it matters which streams are open.
    pub(super) fn waits_for_streams(&self) -> bool {
        self.holds(Until::FirstLook) || self.holds(Until::StreamsEnd)
    }

    /// Whether Envoy is to be asked for them.
    pub(super) fn waits_for_upgrades(&self) -> bool {
        self.waits_for_streams()
            && self.has_mesh()
            && self.settings.workload_protocol == Protocol::Http1
            && self.settings.gate != Gate::Http
    }

    /// Whether upgraded connections are known to be open, or were and are not known to have ended.
    pub(super) fn upgrades_open(&self) -> bool {
        let open = || self.holds(Until::StreamsEnd) || self.streams() == Streams::Open;
        self.settings.workload_protocol == Protocol::Http1 && open()
    }

    /// Answers queue-proxy where there is nothing that it would cut: its own quiet period runs from
    /// its SIGTERM, so that every second of a hold is one of the pod's.
    pub(super) fn answer_queue_proxy(&mut self, now: Now, drain: &Drain, out: &mut Vec<Action>) {
        if !self.waits_for_streams() {
            return;
        }
        let streams = self.streams();
        self.hooks.retain(|hook, held| {
            let keep = match (held.until, streams) {
                (Until::Release, _) => true,
                (_, Streams::Open) => {
                    held.until = Until::StreamsEnd;
                    true
                }
                (_, Streams::Ended) => false,
                (Until::FirstLook, Streams::Hidden) => false,
                (Until::FirstLook, Streams::Unknown) => now < first_look_by(held, drain),
                // What was open is not known to have ended.
                (Until::StreamsEnd, Streams::Hidden | Streams::Unknown) => true,
            };
            if !keep {
                out.push(Action::Answer(*hook));
            }
            keep
        });
    }

    /// When the first looks are over whatever they found.
    pub(super) fn first_looks_by(&self, drain: &Drain) -> impl Iterator<Item = Now> {
        let first = |held: &&Held| held.until == Until::FirstLook;
        let by = |held: &Held| first_look_by(held, drain);
        self.hooks.values().filter(first).map(by)
    }

    /// The gate knows. An h2c connection is a hijacked one to queue-proxy, whatever is on it; of HTTP/1, only upgraded
    /// ones are, and only Envoy tells them from requests.
    fn streams(&self) -> Streams {
        if self.settings.gate == Gate::Http {
            match (self.ledger.gate_streams(), self.settings.workload_protocol) {
                (Some(1..), _) => return Streams::Open,
                (Some(0), Protocol::Http1) => return Streams::Ended,
                // There may be others past the gate.
                (Some(0), Protocol::H2c) => {}
                (None, _) => return Streams::Unknown,
            }
        }
        if self.settings.workload_protocol == Protocol::H2c {
            return match self.load() {
                Load::Busy(_) => Streams::Open,
                // queue-proxy's report lags; it is taken where Envoy has nothing to say.
                Load::Idle(Source::QueueProxy) if self.has_mesh() && !self.ledger.envoy_gone() => {
                    Streams::Unknown
                }
                Load::Idle(_) => Streams::Ended,
                Load::Unknown => Streams::Unknown,
            };
        }
        if !self.has_mesh() {
            return Streams::Hidden;
        }
        match self.ledger.upgrades() {
            Some(Reading::Known(upgrades)) if upgrades.active > 0 => Streams::Open,
            // What went through an Envoy that has gone has gone with it.
            Some(Reading::Known(_) | Reading::Unknown(Cause::Refused)) => Streams::Ended,
            Some(Reading::Unknown(Cause::Hidden)) => Streams::Hidden,
            Some(Reading::Unknown(_)) | None => Streams::Unknown,
        }
    }
}

fn first_look_by(held: &Held, drain: &Drain) -> Now {
    held.opened.max(drain.at) + STREAMS_LOOK
}
