//! The in-flight ledger: what each source said last, and what they say together.

use std::time::Duration;

use super::budget::{GATE_LOOKS, QUEUE_LAG};
use crate::inflight::{
    Cause, EnvoyRequests, EnvoyUpgrades, GateRequests, QueueRequests, Reading, Sockets, Source,
};

/// What all sources together say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// At least this many requests are in flight.
    Busy(u64),
    /// Nothing is in flight; the source is the one whose word it rests on.
    Idle(Source),
    /// No source can tell.
    Unknown,
}

/// The last word of each source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    envoy: Option<Reading<EnvoyRequests>>,
    /// What Envoy held when it was last read, while it is unreadable but not known to be gone: an
    /// error never makes requests disappear.
    envoy_held: u64,
    envoy_total: Option<u64>,
    envoy_recent: RecentMax,
    upgrades: Option<Reading<EnvoyUpgrades>>,
    queue: Option<Reading<QueueRequests>>,
    queue_held: u64,
    /// There is traffic to queue-proxy that does not come through Envoy.
    past_envoy: bool,
    queue_report: Option<u64>,
    gate: Option<GateRequests>,
    gate_recent: RecentMax,
    /// The most that was in it since Envoy was last read.
    gate_since_look: u64,
    /// What Envoy held, when it was last read, beyond that.
    past_gate: u64,
    /// Looks at Envoy since the gate last held anything.
    envoy_looks: u8,
    sockets: Option<Reading<Sockets>>,
    seen_listening: bool,
    gone_in_a_row: u8,
    late: u64,
}

impl Ledger {
    /// Takes a look at Envoy; returns how many requests have arrived since the one before.
    pub fn envoy(&mut self, now: Duration, reading: Reading<EnvoyRequests>) -> u64 {
        self.envoy = Some(reading);
        self.envoy_looks = self.envoy_looks.saturating_add(1).min(GATE_LOOKS);
        match reading {
            Reading::Known(EnvoyRequests { active, total }) => {
                self.past_gate = active.saturating_sub(self.gate_since_look);
                self.gate_since_look = self.gate.map_or(0, |gate| gate.active);
                let arrived = match self.envoy_total {
                    None => 0,
                    Some(before) if total >= before => total - before,
                    // Envoy, or the host that counted, was replaced: what is active now is new.
                    Some(_) => active,
                };
                // Those that came and went between two looks were in flight together at most.
                let between = self.envoy_held + arrived;
                self.envoy_total = Some(total);
                self.envoy_held = active;
                self.envoy_recent.push(now, active.max(between));
                self.late += arrived;
                arrived
            }
            Reading::Unknown(Cause::Refused) => {
                self.envoy_held = 0;
                self.past_gate = 0;
                0
            }
            Reading::Unknown(_) => 0,
        }
    }

    /// Takes a look at the gate; returns how many requests it saw arrive, where Envoy, which takes no
    /// probe of the kubelet for one, cannot tell. `strict`: what came and went between two looks is
    /// to be followed by a look at Envoy.
    pub fn gate(&mut self, now: Duration, requests: GateRequests, mesh: bool, strict: bool) -> u64 {
        let before = self.gate.replace(requests);
        let arrived = before.map_or(0, |before| requests.total.saturating_sub(before.total));
        let between = before.map_or(0, |before| before.active) + arrived;
        let most = requests.active.max(between);
        self.gate_recent.push(now, most);
        self.gate_since_look = self.gate_since_look.max(most);
        if requests.active > 0 || before.is_none() || (strict && arrived > 0) {
            self.envoy_looks = 0;
        }
        if mesh && matches!(self.envoy, Some(Reading::Known(_))) {
            return 0;
        }
        self.late += arrived;
        arrived
    }

    /// Something was in flight in it at a moment when none was thought to be.
    pub fn gate_was_busy(&mut self) {
        self.envoy_looks = 0;
    }

    /// What was in the gate at the last look that queue-proxy would cut.
    pub fn gate_streams(&self) -> Option<u64> {
        self.gate.map(|gate| gate.streams)
    }

    /// Whether the gate holds nothing, and nobody has shown more than what came through it. Envoy may
    /// not have been asked since.
    pub fn gate_idle(&self) -> bool {
        let idle = self.gate.is_some_and(|gate| gate.active == 0);
        let others = if self.envoy_looks == 0 {
            self.past_gate > 0
        } else {
            self.envoy_busy()
        };
        idle && !others && self.queue_held == 0
    }

    /// Whether the gate holds nothing, and a look at Envoy that began after that is still to come.
    pub fn gate_unconfirmed(&self) -> bool {
        let idle = self.gate.is_some_and(|gate| gate.active == 0);
        idle && self.envoy_looks < GATE_LOOKS
    }

    /// Takes a look at Envoy's upgraded connections.
    pub fn take_upgrades(&mut self, reading: Reading<EnvoyUpgrades>) {
        self.upgrades = Some(reading);
    }

    /// Nobody has looked at them for a while.
    pub fn forget_upgrades(&mut self) {
        self.upgrades = None;
    }

    /// The last word on Envoy's upgraded connections.
    pub fn upgrades(&self) -> Option<Reading<EnvoyUpgrades>> {
        self.upgrades
    }

    /// Takes a look at queue-proxy; returns how many requests it saw arrive, where Envoy, which
    /// sees the same ones at once, cannot tell.
    pub fn queue(&mut self, now: Duration, reading: Reading<QueueRequests>, mesh: bool) -> u64 {
        self.queue = Some(reading);
        match reading {
            Reading::Known(QueueRequests {
                active,
                arrived,
                report,
            }) => {
                let envoy_tells = mesh && matches!(self.envoy, Some(Reading::Known(_)));
                let (held, recent) = if let Some(gate) = self.gate {
                    (gate.active, self.gate_recent.get(now))
                } else if envoy_tells {
                    (self.envoy_held, self.envoy_recent.get(now))
                } else {
                    (0, 0)
                };
                // An average over a window cannot exceed what Envoy held within it, so what does
                // exceed it is traffic that Envoy does not see, until a report shows it gone; the
                // rest is lag. A report with arrivals says at least one, so it shows nothing of
                // the kind. Where Envoy tells nothing any more, all may be such traffic.
                let stays = self.past_envoy && arrived == 0 && active > held;
                self.past_envoy = active > recent || stays;
                self.queue_held = match active.saturating_sub(recent) {
                    0 if self.past_envoy => active - held,
                    beyond => beyond,
                };
                let fresh = self.queue_report.replace(report) != Some(report);
                if !fresh || envoy_tells || self.gate.is_some() {
                    return 0;
                }
                self.late += arrived;
                arrived
            }
            Reading::Unknown(Cause::Refused) => {
                self.queue_held = 0;
                0
            }
            Reading::Unknown(_) => 0,
        }
    }

    /// Takes a look at the sockets.
    pub fn sockets(&mut self, reading: Reading<Sockets>) {
        self.sockets = Some(reading);
        if let Reading::Known(sockets) = reading {
            self.seen_listening |= sockets.listening > 0;
            self.gone_in_a_row = if sockets.workload_gone() {
                (self.gone_in_a_row + 1).min(2)
            } else {
                0
            };
        }
    }

    /// What all sources together say. `mesh`: whether Envoy is in the path at all.
    pub fn load(&self, mesh: bool) -> Load {
        if let Some(gate) = self.gate {
            return self.load_with_gate(gate, mesh);
        }
        let envoy_held = if mesh { self.envoy_held } else { 0 };
        let busy = envoy_held.max(self.queue_held);
        if busy > 0 {
            return Load::Busy(busy);
        }
        if mesh && matches!(self.envoy, Some(Reading::Known(_))) {
            return Load::Idle(Source::Envoy);
        }
        if matches!(self.queue, Some(Reading::Known(_))) {
            return Load::Idle(Source::QueueProxy);
        }
        match self.sockets {
            Some(Reading::Known(sockets)) if sockets.established > 0 => {
                Load::Busy(sockets.established.into())
            }
            // Ports that never listened are not this pod's, and their silence means nothing.
            Some(Reading::Known(_)) if self.seen_listening => Load::Idle(Source::Sockets),
            _ => Load::Unknown,
        }
    }

    /// The gate's count is exact; others count for what they have beyond it. Its zero stands once Envoy
    /// was asked after it, who may have a request that has not reached the gate.
    fn load_with_gate(&self, gate: GateRequests, mesh: bool) -> Load {
        let envoy = match self.envoy {
            _ if !mesh => 0,
            Some(Reading::Known(envoy)) => envoy.active,
            Some(Reading::Unknown(_)) | None => self.past_gate,
        };
        let busy = gate.active.max(envoy).max(self.queue_held);
        if busy > 0 {
            return Load::Busy(busy);
        }
        if mesh && self.gate_unconfirmed() {
            return Load::Unknown;
        }
        Load::Idle(Source::Gate)
    }

    /// Whether Envoy said at its last look that it holds requests.
    pub fn envoy_busy(&self) -> bool {
        matches!(self.envoy, Some(Reading::Known(envoy)) if envoy.active > 0)
    }

    /// Whether nobody listened where Envoy was looked at last.
    pub fn envoy_gone(&self) -> bool {
        self.envoy == Some(Reading::Unknown(Cause::Refused))
    }

    /// The last word on the sockets, if they could be read.
    pub fn last_sockets(&self) -> Option<Sockets> {
        self.sockets.and_then(|reading| reading.known())
    }

    /// Whether the workload was there and has gone, in two looks.
    pub fn workload_left(&self) -> bool {
        self.seen_listening && self.gone_in_a_row >= 2
    }

    /// Requests that have arrived since the ledger was opened.
    pub fn late(&self) -> u64 {
        self.late
    }
}

/// The highest value of at least the last [`QUEUE_LAG`], in two buckets of that length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct RecentMax {
    began: Duration,
    current: u64,
    before: u64,
}

impl RecentMax {
    fn push(&mut self, now: Duration, value: u64) {
        self.roll(now);
        self.current = self.current.max(value);
    }

    fn get(&mut self, now: Duration) -> u64 {
        self.roll(now);
        self.current.max(self.before)
    }

    fn roll(&mut self, now: Duration) {
        let age = now.saturating_sub(self.began);
        if age < QUEUE_LAG {
            return;
        }
        self.before = if age < QUEUE_LAG * 2 { self.current } else { 0 };
        self.current = 0;
        self.began = now;
    }
}

#[cfg(test)]
mod tests;
