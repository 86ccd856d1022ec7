//! The engine of a connection whose protocol is unknown or none of the gate's business: every byte
//! passes, and the whole of it counts as one in flight.

use bytes::Bytes;

use super::counter::Guard;
use super::engine::{Direction, Stage, State, Step};

#[cfg(test)]
mod tests;

/// A tunnel: raw TCP, CONNECT, an upgrade to a protocol that is not understood.
///
/// In flight until both sides have closed, or the connection broke; ended by the gate at
/// [`Stage::EndingUpgrades`]. What is dropped before it has ended counts as cut.
#[derive(Debug)]
pub struct Engine {
    guard: Option<Guard>,
    up_ended: bool,
    down_ended: bool,
    stage: Stage,
}

impl Engine {
    /// A tunnel that `guard` counts.
    pub fn new(guard: Guard) -> Engine {
        Engine {
            guard: Some(guard),
            up_ended: false,
            down_ended: false,
            stage: Stage::Serving,
        }
    }
}

impl super::engine::Engine for Engine {
    fn step(&mut self, _direction: Direction, input: &[u8]) -> Step {
        Step::Pass(input.len())
    }

    fn opaque(&self, _direction: Direction) -> u64 {
        u64::MAX
    }

    fn moved(&mut self, _direction: Direction, _bytes: u64) {}

    fn inject(&mut self, _direction: Direction) -> Option<Bytes> {
        None
    }

    fn stage(&mut self, stage: Stage) {
        self.stage = stage;
    }

    fn end(&mut self, direction: Direction, cut: bool) {
        match direction {
            Direction::Up => self.up_ended = true,
            Direction::Down => self.down_ended = true,
        }
        if cut {
            self.guard.take().into_iter().for_each(Guard::cut);
        } else if self.up_ended && self.down_ended {
            self.guard = None;
        }
    }

    fn upstream_lost(&mut self) -> Option<Bytes> {
        None
    }

    fn state(&self) -> State {
        if self.guard.is_none() || self.stage >= Stage::EndingUpgrades {
            State::Finished
        } else {
            State::Busy
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.guard.take().into_iter().for_each(Guard::cut);
    }
}
