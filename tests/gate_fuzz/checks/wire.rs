//! A connection without sockets: drives an engine as the gate's pump does, and holds it to its
//! promises.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tidegate::gate::counter::{Counter, Kind};
use tidegate::gate::engine::{Direction, Engine, HOLD_MAX, Stage, State, Step};
use tidegate::gate::{Links, h1, h2, tunnel, websocket};

use super::Dice;

/// How bytes are read.
#[derive(Clone, Debug)]
pub(super) enum Reads {
    /// All that is there.
    Whole,
    /// In pieces; in every other one, opaque bytes go by unseen.
    Pieces(Dice),
}

/// An engine and the bytes around it.
pub(super) struct Wire {
    engine: Box<dyn Engine>,
    pub(super) counter: Counter,
    stage: Stage,
    pub(super) up: Lane,
    pub(super) down: Lane,
    pub(super) doubts: Vec<&'static str>,
}

/// One direction.
#[derive(Default)]
pub(super) struct Lane {
    /// Sent and not read.
    socket: Vec<u8>,
    /// How much was sent.
    pub(super) sent: usize,
    /// Read and not judged.
    held: Vec<u8>,
    then: Then,
    /// Bytes judged: where in what was sent the next one is.
    pub(super) judged: usize,
    /// All that went out.
    pub(super) out: Vec<u8>,
    /// What the gate put in, each with the place in what was sent that it stands before.
    pub(super) own: Vec<(usize, Bytes)>,
    /// What was left out of what was sent.
    pub(super) swallowed: Vec<Range<usize>>,
}

/// When the bytes that are kept are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Then {
    #[default]
    More,
    Wait,
    Again,
}

/// What is the same however the bytes were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) state: State,
    pub(super) active: [u64; 3],
    pub(super) total: u64,
    pub(super) cut: u64,
    pub(super) doubts: Vec<&'static str>,
}

impl Wire {
    fn new(counter: Counter, engine: Box<dyn Engine>) -> Wire {
        Wire {
            engine,
            counter,
            stage: Stage::Serving,
            up: Lane::default(),
            down: Lane::default(),
            doubts: Vec::new(),
        }
    }

    pub(super) fn h1() -> Wire {
        let counter = Counter::default();
        let links = Arc::new(Links(counter.clone()));
        Wire::new(counter.clone(), Box::new(h1::Engine::new(counter, links)))
    }

    pub(super) fn h2() -> Wire {
        let counter = Counter::default();
        Wire::new(counter.clone(), Box::new(h2::Engine::new(counter)))
    }

    pub(super) fn websocket() -> Wire {
        let counter = Counter::default();
        let guard = counter.admit(Kind::Tunnel).expect("it is open");
        Wire::new(counter, Box::new(websocket::Engine::new(guard)))
    }

    pub(super) fn tunnel() -> Wire {
        let counter = Counter::default();
        let guard = counter.admit(Kind::Tunnel).expect("it is open");
        Wire::new(counter, Box::new(tunnel::Engine::new(guard)))
    }

    pub(super) fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    pub(super) fn state(&self) -> State {
        self.engine.state()
    }

    pub(super) fn opaque(&self, direction: Direction) -> u64 {
        self.engine.opaque(direction)
    }

    /// The sender of `direction` has sent this.
    pub(super) fn send(&mut self, direction: Direction, bytes: &[u8]) {
        let lane = self.lane(direction);
        lane.socket.extend_from_slice(bytes);
        lane.sent += bytes.len();
    }

    /// Sends, and reads all that can be read.
    pub(super) fn feed(&mut self, direction: Direction, bytes: &[u8], reads: &mut Reads) {
        self.send(direction, bytes);
        while self.can_read(direction) {
            match reads {
                Reads::Whole => self.read(direction, usize::MAX, false),
                Reads::Pieces(dice) => {
                    let most = match dice.under(4) {
                        0 => 1,
                        1 => 1 + dice.under(8),
                        2 => 1 + dice.under(100),
                        _ => 1 + dice.under(20_000),
                    };
                    self.read(direction, most, dice.under(2) == 0);
                }
            }
        }
    }

    fn can_read(&mut self, direction: Direction) -> bool {
        let finished = self.state() == State::Finished;
        let lane = self.lane(direction);
        !finished && !lane.socket.is_empty() && lane.then == Then::More
    }

    /// Reads up to so many bytes, and lets them go by unseen where that is asked for and the engine
    /// says that they may.
    pub(super) fn read(&mut self, direction: Direction, most: usize, unseen: bool) {
        if !self.can_read(direction) {
            return;
        }
        let opaque = usize::try_from(self.engine.opaque(direction)).unwrap_or(usize::MAX);
        let lane = self.lane(direction);
        let most = most.min(lane.socket.len());
        if unseen && opaque > 0 && lane.held.is_empty() {
            let bytes = most.min(opaque);
            let moved: Vec<u8> = lane.socket.drain(..bytes).collect();
            lane.pass(&moved);
            self.engine.moved(direction, bytes as u64);
            self.settle(direction);
        } else {
            let read: Vec<u8> = lane.socket.drain(..most).collect();
            lane.held.extend_from_slice(&read);
            self.judge(direction);
        }
        self.look_again();
        self.holds();
    }

    fn look_again(&mut self) {
        loop {
            let finished = self.state() == State::Finished;
            let due = [Direction::Up, Direction::Down]
                .into_iter()
                .find(|direction| self.lane(*direction).then == Then::Again);
            match due {
                Some(direction) if !finished => {
                    self.lane(direction).then = Then::More;
                    self.judge(direction);
                }
                _ => return,
            }
        }
    }

    fn judge(&mut self, direction: Direction) {
        let mut input = std::mem::take(&mut self.lane(direction).held);
        let mut at = 0;
        let mut stepped = 0;
        while at < input.len() && self.state() != State::Finished {
            let rest = &input[at..];
            stepped += 1;
            assert!(stepped < 100_000, "the engine does not get on");
            let step = self.engine.step(direction, rest);
            let open = self.stage == Stage::Serving && !self.counter.is_closed();
            let mut keep = None;
            match step {
                Step::Pass(bytes) => {
                    assert!((1..=rest.len()).contains(&bytes), "passes {bytes}");
                    self.lane(direction).pass(&rest[..bytes]);
                    at += bytes;
                }
                Step::Swallow(bytes) => {
                    assert!(!open, "swallows while the pod serves");
                    assert!((1..=rest.len()).contains(&bytes), "swallows {bytes}");
                    self.lane(direction).swallow(bytes);
                    at += bytes;
                }
                Step::Insert(bytes) => {
                    assert!(!open, "puts something in while the pod serves");
                    self.lane(direction).put(bytes);
                }
                Step::More => {
                    assert!(rest.len() < HOLD_MAX, "keeps {}", rest.len());
                    keep = Some(Then::More);
                }
                Step::Wait => keep = Some(Then::Wait),
            }
            let moved = keep.is_none();
            let replaced = self.settle_own(direction, moved);
            if let Some(then) = keep
                && !replaced
            {
                self.lane(direction).then = then;
                break;
            }
        }
        self.lane(direction).held = input.split_off(at);
    }

    /// What follows once bytes have gone in `direction`.
    fn settle(&mut self, direction: Direction) {
        self.settle_own(direction, true);
    }

    /// Whether another engine has taken over.
    fn settle_own(&mut self, direction: Direction, moved: bool) -> bool {
        self.inject();
        let other = self.lane(direction.other());
        if moved && other.then == Then::Wait {
            other.then = Then::Again;
        }
        self.succeed()
    }

    fn inject(&mut self) {
        for direction in [Direction::Up, Direction::Down] {
            while let Some(bytes) = self.engine.inject(direction) {
                let open = self.stage == Stage::Serving && !self.counter.is_closed();
                assert!(!open, "puts something in while the pod serves");
                self.lane(direction).put(bytes);
            }
        }
    }

    fn succeed(&mut self) -> bool {
        let mut succeeded = false;
        while self.state() == State::Replaced {
            self.doubts.extend(self.engine.doubt());
            self.engine = self.engine.successor().expect("it was replaced");
            self.engine.stage(self.stage);
            for direction in [Direction::Up, Direction::Down] {
                let lane = self.lane(direction);
                if !lane.held.is_empty() || lane.then == Then::Wait {
                    lane.then = Then::Again;
                }
            }
            self.inject();
            succeeded = true;
        }
        succeeded
    }

    /// The drain comes to this stage.
    pub(super) fn stage(&mut self, stage: Stage) {
        if stage <= self.stage {
            return;
        }
        self.stage = stage;
        if stage == Stage::Closed {
            self.counter.close();
        }
        self.engine.stage(stage);
        self.inject();
        for lane in [&mut self.up, &mut self.down] {
            if !lane.held.is_empty() {
                lane.then = Then::Again;
            }
        }
        self.succeed();
        self.look_again();
        self.holds();
    }

    /// What is true at any time.
    fn holds(&self) {
        let in_flight = self.counter.in_flight();
        let active = Kind::ALL.map(|kind| self.counter.active(kind));
        assert_eq!(active.iter().sum::<u64>(), in_flight);
        match self.state() {
            State::Idle => assert_eq!(in_flight, 0, "idle with something in flight"),
            State::Busy | State::Head | State::Finished | State::Replaced => {}
        }
        for (lane, name) in [(&self.up, "up"), (&self.down, "down")] {
            let own: usize = lane.own.iter().map(|(_, bytes)| bytes.len()).sum();
            let swallowed: usize = lane.swallowed.iter().map(ExactSizeIterator::len).sum();
            assert_eq!(lane.out.len(), lane.judged + own - swallowed, "{name}");
        }
    }

    /// What came of it.
    pub(super) fn outcome(&self) -> Outcome {
        let mut doubts = self.doubts.clone();
        doubts.extend(self.engine.doubt());
        Outcome {
            state: self.state(),
            active: Kind::ALL.map(|kind| self.counter.active(kind)),
            total: self.counter.total(),
            cut: self.counter.cut(),
            doubts,
        }
    }

    /// Bytes that did not go on: kept, waiting or not read.
    pub(super) fn left(&mut self, direction: Direction) -> usize {
        let lane = self.lane(direction);
        lane.held.len() + lane.socket.len()
    }

    /// The connection breaks; nothing is in flight any more.
    pub(super) fn drop(self) {
        let Wire {
            engine, counter, ..
        } = self;
        let (in_flight, cut) = (counter.in_flight(), counter.cut());
        drop(engine);
        assert_eq!(counter.in_flight(), 0, "something outlives its connection");
        assert!(counter.cut() <= cut + in_flight);
    }
}

impl Lane {
    fn pass(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
        self.judged += bytes.len();
    }

    fn swallow(&mut self, bytes: usize) {
        let range = self.judged..self.judged + bytes;
        match self.swallowed.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.swallowed.push(range),
        }
        self.judged += bytes;
    }

    fn put(&mut self, bytes: Bytes) {
        assert!(!bytes.is_empty());
        assert!(self.own.len() < 10_000, "the engine puts in without end");
        self.out.extend_from_slice(&bytes);
        self.own.push((self.judged, bytes));
    }

    /// What was sent and came out, if nothing was changed.
    pub(super) fn is_verbatim(&self, sent: &[u8]) -> bool {
        self.own.is_empty() && self.swallowed.is_empty() && sent.starts_with(&self.out)
    }
}

/// Plays the same twice, read at once and in pieces: it must end the same way.
pub(super) fn both_ways(dice: Dice, play: impl Fn(&mut Reads) -> Wire) -> Wire {
    let whole = play(&mut Reads::Whole);
    let pieces = play(&mut Reads::Pieces(dice));
    assert_eq!(whole.outcome(), pieces.outcome(), "whole, and in pieces");
    for (whole, pieces) in [(&whole.up, &pieces.up), (&whole.down, &pieces.down)] {
        // Once it is finished, what comes behind is passed or not, as it comes.
        let shorter = whole.out.len().min(pieces.out.len());
        assert_eq!(whole.out[..shorter], pieces.out[..shorter]);
    }
    if whole.state() != State::Finished {
        assert_eq!(whole.up.out.len(), pieces.up.out.len());
        assert_eq!(whole.down.out.len(), pieces.down.out.len());
    }
    pieces.drop();
    whole
}
