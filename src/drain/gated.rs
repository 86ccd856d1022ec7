//! The gate's part in a drain: its stages, and its closing at a moment when nothing is in flight.

use super::Phase;
use super::budget::DOOR_LEAD;
use super::event::Action;
use super::machine::{Drain, Machine, Now};
use crate::config::Gate;
use crate::gate::engine::Stage;

impl Machine {
    /// Whether a gate counts.
    pub(super) fn gated(&self) -> bool {
        self.settings.gate != Gate::Off
    }

    /// Brings the gate to where the drain is.
    pub(super) fn follow_with_gate(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(drain) = self.drain else {
            return;
        };
        let stage = match self.phase {
            Phase::Serving => Stage::Serving,
            Phase::Announcing => Stage::Announcing,
            Phase::Draining | Phase::ClosingDoor | Phase::Flushing => {
                if now >= self.upgrades_end(&drain) {
                    Stage::EndingUpgrades
                } else {
                    Stage::Draining
                }
            }
            Phase::ReleasingWorkload | Phase::ReleasingProxy | Phase::Done => Stage::Closed,
        };
        self.gate_to(stage, out);
    }

    /// Stages only advance.
    pub(super) fn gate_to(&mut self, stage: Stage, out: &mut Vec<Action>) {
        if !self.gated() {
            return;
        }
        self.with_drain(|drain| {
            if stage > drain.stage {
                drain.stage = stage;
                out.push(Action::Gate(stage));
            }
        });
    }

    /// When WebSockets and tunnels are ended: at their own limit, or as long before the deadline as
    /// the door is closed, so that their ends are told and not cut.
    pub(super) fn upgrades_end(&self, drain: &Drain) -> Now {
        let by = drain.deadline.saturating_sub(DOOR_LEAD);
        let grace = self.settings.timing.upgrade_grace;
        grace.map_or(by, |grace| by.min(drain.at + grace))
    }

    /// How the attempt to close it ended. What came in at the last moment is waited for like anything
    /// else.
    pub(super) fn gate_closed(&mut self, closed: bool) {
        if closed {
            self.with_drain(|drain| drain.gate_closed = true);
        } else {
            self.ledger.gate_was_busy();
            self.zero = None;
        }
    }
}
