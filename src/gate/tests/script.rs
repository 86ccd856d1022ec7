//! An engine that says everything an engine may say, for the pump to get right.

use bytes::Bytes;

use crate::gate::counter::{Counter, Guard, Kind};
use crate::gate::engine::{Direction, Engine, Stage, State, Step};

/// Lines, each a request upwards or a reply downwards: `swallow` goes nowhere, `mark` has `[m]` put
/// before it, `quit` ends the connection, downward `wait` waits for a line upwards.
pub(super) struct Script {
    counter: Counter,
    guards: Vec<Guard>,
    asked: u32,
    marked: bool,
    own: [Option<Bytes>; 2],
    finished: bool,
    /// Announces the drain to both sides.
    staged: bool,
}

impl Script {
    pub(super) fn boxed(counter: &Counter) -> Box<Script> {
        Box::new(Script {
            counter: counter.clone(),
            guards: Vec::new(),
            asked: 0,
            marked: false,
            own: [None, None],
            finished: false,
            staged: false,
        })
    }
}

impl Engine for Script {
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            return Step::More;
        };
        let line = &input[..=end];
        match line {
            b"wait\n" if direction == Direction::Down && self.asked == 0 => return Step::Wait,
            b"mark\n" if !self.marked => {
                self.marked = true;
                return Step::Insert(Bytes::from_static(b"[m]"));
            }
            b"quit\n" => self.finished = true,
            b"ping\n" => self.own[direction.other() as usize] = Some(Bytes::from_static(b"pong\n")),
            _ => {}
        }
        self.marked = false;
        match direction {
            Direction::Up => {
                self.asked += 1;
                self.guards.extend(self.counter.admit(Kind::Request));
            }
            Direction::Down => {
                self.asked = self.asked.saturating_sub(1);
                self.guards.pop();
            }
        }
        match line {
            b"swallow\n" => Step::Swallow(line.len()),
            _ => Step::Pass(line.len()),
        }
    }

    fn opaque(&self, _direction: Direction) -> u64 {
        0
    }

    fn moved(&mut self, _direction: Direction, _bytes: u64) {}

    fn inject(&mut self, direction: Direction) -> Option<Bytes> {
        self.own[direction as usize].take()
    }

    fn stage(&mut self, stage: Stage) {
        if stage >= Stage::Announcing && !self.staged {
            self.staged = true;
            self.own = [(); 2].map(|()| Some(Bytes::from_static(b"going\n")));
        }
    }

    fn end(&mut self, _direction: Direction, cut: bool) {
        if cut {
            self.guards.drain(..).for_each(Guard::cut);
            self.finished = true;
        }
    }

    fn owes(&self) -> bool {
        !self.guards.is_empty()
    }

    fn upstream_lost(&mut self) -> Option<Bytes> {
        (!self.guards.is_empty()).then(|| Bytes::from_static(b"lost\n"))
    }

    fn state(&self) -> State {
        match (self.finished, self.guards.is_empty()) {
            (true, _) => State::Finished,
            (false, true) => State::Idle,
            (false, false) => State::Busy,
        }
    }
}
