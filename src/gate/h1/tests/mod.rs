//! Tests of HTTP/1 in the gate: a pump without I/O to drive an engine, shared by the files below.

mod conversations;
mod differential;
mod doubts;
mod drain;
mod ends;
mod properties;
mod scan;

use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::{Doubt, Engine, Links};
use crate::gate::counter::{Counter, Guard, Kind};
use crate::gate::engine::{self, Direction, Engine as _, HOLD_MAX, Stage, State, Step};

/// How the pump reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// All that is there.
    Whole,
    /// Byte by byte.
    Bytes,
    /// All that is there, opaque bytes unseen.
    Unseen,
}

const READS: [Reads; 3] = [Reads::Whole, Reads::Bytes, Reads::Unseen];

/// A connection and what went through it.
struct Talk {
    engine: Engine,
    /// What came after it.
    next: Option<Box<dyn engine::Engine>>,
    stage: Stage,
    counter: Counter,
    links: Arc<Record>,
    up: Side,
    down: Side,
    /// Steps asked for.
    steps: usize,
}

/// One direction.
#[derive(Default)]
struct Side {
    held: Vec<u8>,
    passed: Vec<u8>,
    swallowed: Vec<u8>,
}

#[derive(Default)]
struct Record {
    next: Mutex<Vec<&'static str>>,
}

impl Record {
    fn replace(&self, name: &'static str, guard: Guard) -> Box<dyn engine::Engine> {
        self.next.lock().unwrap().push(name);
        Box::new(Replacement {
            guard: Some(guard),
            ended: 0,
        })
    }
}

impl Links for Record {
    fn websocket(&self, guard: Guard) -> Box<dyn engine::Engine> {
        self.replace("websocket", guard)
    }

    fn h2c(&self, guard: Guard) -> Box<dyn engine::Engine> {
        self.replace("h2c", guard)
    }

    fn tunnel(&self, guard: Guard) -> Box<dyn engine::Engine> {
        self.replace("tunnel", guard)
    }
}

/// Passes all until both sides have ended.
struct Replacement {
    guard: Option<Guard>,
    ended: usize,
}

impl engine::Engine for Replacement {
    fn step(&mut self, _: Direction, input: &[u8]) -> Step {
        Step::Pass(input.len())
    }

    fn opaque(&self, _: Direction) -> u64 {
        u64::MAX
    }

    fn moved(&mut self, _: Direction, _: u64) {}

    fn inject(&mut self, _: Direction) -> Option<Bytes> {
        None
    }

    fn stage(&mut self, stage: Stage) {
        if stage >= Stage::EndingUpgrades {
            self.guard = None;
        }
    }

    fn end(&mut self, _: Direction, cut: bool) {
        self.ended += 1;
        if cut || self.ended == 2 {
            self.guard = None;
        }
    }

    fn upstream_lost(&mut self) -> Option<Bytes> {
        None
    }

    fn state(&self) -> State {
        if self.guard.is_some() {
            State::Busy
        } else {
            State::Finished
        }
    }
}

impl Talk {
    fn new() -> Talk {
        Talk::at(Stage::Serving)
    }

    fn at(stage: Stage) -> Talk {
        let counter = Counter::default();
        let links = Arc::new(Record::default());
        let mut engine = Engine::new(counter.clone(), links.clone());
        engine.stage(stage);
        Talk {
            engine,
            next: None,
            stage,
            counter,
            links,
            up: Side::default(),
            down: Side::default(),
            steps: 0,
        }
    }

    fn engine(&mut self) -> &mut dyn engine::Engine {
        match &mut self.next {
            Some(next) => &mut **next,
            None => &mut self.engine,
        }
    }

    fn state(&self) -> State {
        match &self.next {
            Some(next) => next.state(),
            None => self.engine.state(),
        }
    }

    fn side(&mut self, direction: Direction) -> &mut Side {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn send(&mut self, direction: Direction, bytes: impl AsRef<[u8]>, reads: Reads) {
        match reads {
            Reads::Whole | Reads::Unseen => self.read(direction, bytes.as_ref(), reads),
            Reads::Bytes => {
                for byte in bytes.as_ref() {
                    self.read(direction, std::slice::from_ref(byte), reads);
                }
            }
        }
    }

    fn read(&mut self, direction: Direction, bytes: &[u8], reads: Reads) {
        self.side(direction).held.extend_from_slice(bytes);
        self.pump(direction, reads);
        self.pump(direction.other(), reads);
        self.pump(direction, reads);
    }

    fn up(&mut self, bytes: impl AsRef<[u8]>) {
        self.send(Direction::Up, bytes, Reads::Whole);
    }

    fn down(&mut self, bytes: impl AsRef<[u8]>) {
        self.send(Direction::Down, bytes, Reads::Whole);
    }

    fn stage(&mut self, stage: Stage) {
        self.stage = stage;
        self.engine().stage(stage);
        self.inject();
    }

    fn inject(&mut self) {
        for direction in [Direction::Up, Direction::Down] {
            if let Some(bytes) = self.engine().inject(direction) {
                self.side(direction).passed.extend_from_slice(&bytes);
            }
        }
        if self.state() == State::Replaced {
            let mut next = self.engine().successor().expect("a successor");
            next.stage(self.stage);
            self.next = Some(next);
        }
    }

    /// Asks the engine until it keeps what is there.
    fn pump(&mut self, direction: Direction, reads: Reads) {
        while !self.side(direction).held.is_empty() {
            let mut held = std::mem::take(&mut self.side(direction).held);
            let opaque = self.engine().opaque(direction);
            if opaque > 0 && reads == Reads::Unseen {
                let bytes = held
                    .len()
                    .min(usize::try_from(opaque).unwrap_or(usize::MAX));
                self.engine().moved(direction, bytes as u64);
                let side = self.side(direction);
                side.passed.extend(held.drain(..bytes));
                side.held = held;
                self.inject();
                continue;
            }
            self.steps += 1;
            let step = self.engine().step(direction, &held);
            let side = self.side(direction);
            let keep = match step {
                Step::Pass(bytes) => {
                    assert!(bytes > 0);
                    side.passed.extend(held.drain(..bytes));
                    false
                }
                Step::Swallow(bytes) => {
                    assert!(bytes > 0);
                    side.swallowed.extend(held.drain(..bytes));
                    false
                }
                Step::Insert(bytes) => {
                    side.passed.extend_from_slice(&bytes);
                    false
                }
                Step::More => {
                    assert!(held.len() < HOLD_MAX, "there is no room for more");
                    true
                }
                Step::Wait => true,
            };
            side.held = held;
            self.inject();
            if keep {
                return;
            }
        }
    }

    fn end(&mut self, direction: Direction) {
        self.engine().end(direction, false);
        let side = self.side(direction);
        let held = std::mem::take(&mut side.held);
        side.passed.extend(held);
    }

    /// Requests, streams and tunnels in flight.
    fn counts(&self) -> [u64; 3] {
        [Kind::Request, Kind::Stream, Kind::Tunnel].map(|kind| self.counter.active(kind))
    }

    fn doubt(&self) -> Option<Doubt> {
        let name = self.engine.doubt()?;
        Doubt::ALL.into_iter().find(|doubt| doubt.name() == name)
    }
}

/// What is in flight in a state with nothing but requests.
fn requests(count: u64) -> [u64; 3] {
    [count, 0, 0]
}

const STREAM: [u64; 3] = [0, 1, 0];
const TUNNEL: [u64; 3] = [0, 0, 1];

/// One thing that happens, and what is then in flight.
enum Line {
    Up(&'static str, [u64; 3], State),
    Down(&'static str, [u64; 3], State),
    Ends(Direction, [u64; 3], State),
}

/// Plays a conversation, however it is read: all of it passes as it is, and after each line so much
/// is in flight.
#[track_caller]
fn converse(lines: &[Line]) {
    for reads in READS {
        let mut talk = Talk::new();
        let (mut sent_up, mut sent_down) = (String::new(), String::new());
        for (index, line) in lines.iter().enumerate() {
            let (counts, state) = match *line {
                Line::Up(bytes, counts, state) => {
                    sent_up.push_str(bytes);
                    talk.send(Direction::Up, bytes, reads);
                    (counts, state)
                }
                Line::Down(bytes, counts, state) => {
                    sent_down.push_str(bytes);
                    talk.send(Direction::Down, bytes, reads);
                    (counts, state)
                }
                Line::Ends(direction, counts, state) => {
                    talk.end(direction);
                    (counts, state)
                }
            };
            let at = format!("{reads:?}, line {index}");
            assert_eq!(talk.counts(), counts, "{at}");
            assert_eq!(talk.state(), state, "{at}");
        }
        assert_eq!(String::from_utf8_lossy(&talk.up.passed), sent_up);
        assert_eq!(String::from_utf8_lossy(&talk.down.passed), sent_down);
        assert_eq!(talk.doubt(), None);
    }
}
