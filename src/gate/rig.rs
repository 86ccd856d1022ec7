//! What tests drive an engine with: a pump without sockets that holds it to its promises.

use std::mem;

use bytes::Bytes;

use super::engine::{Direction, Engine, HOLD_MAX, Step};

/// One direction of a connection.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Came, and was neither passed nor swallowed.
    kept: Vec<u8>,
    /// All that went out.
    pub(super) out: Vec<u8>,
    /// What went out of what came.
    pub(super) passed: Vec<u8>,
    /// What the gate itself put in, piece by piece.
    pub(super) own: Vec<Bytes>,
    pub(super) swallowed: Vec<u8>,
}

/// An engine and the bytes around it.
#[derive(Debug)]
pub(super) struct Rig<E> {
    pub(super) engine: E,
    pub(super) up: Lane,
    pub(super) down: Lane,
    /// Opaque bytes are moved unseen, where there are at least so many.
    pub(super) unseen: u64,
}

impl<E: Engine> Rig<E> {
    /// Everything is shown to the engine.
    pub(super) fn new(engine: E) -> Rig<E> {
        Rig {
            engine,
            up: Lane::default(),
            down: Lane::default(),
            unseen: u64::MAX,
        }
    }

    pub(super) fn lane(&mut self, direction: Direction) -> &mut Lane {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// The client has sent this.
    pub(super) fn client(&mut self, bytes: impl AsRef<[u8]>) {
        self.feed(Direction::Up, bytes.as_ref());
    }

    /// The workload has sent this.
    pub(super) fn server(&mut self, bytes: impl AsRef<[u8]>) {
        self.feed(Direction::Down, bytes.as_ref());
    }

    /// Bytes came from the sender of `direction`.
    pub(super) fn feed(&mut self, direction: Direction, bytes: &[u8]) {
        let mut input = mem::take(&mut self.lane(direction).kept);
        input.extend_from_slice(bytes);
        let opaque = self.engine.opaque(direction);
        let mut at = 0;
        if opaque >= self.unseen {
            at = opaque.min(input.len() as u64) as usize;
            self.engine.moved(direction, at as u64);
            self.pass(direction, &input[..at]);
            self.inject();
        }
        while at < input.len() {
            let rest = &input[at..];
            match self.engine.step(direction, rest) {
                Step::Pass(bytes) => {
                    assert!((1..=rest.len()).contains(&bytes));
                    self.pass(direction, &rest[..bytes]);
                    at += bytes;
                }
                Step::Swallow(bytes) => {
                    assert!((1..=rest.len()).contains(&bytes));
                    let swallowed = &mut self.lane(direction).swallowed;
                    swallowed.extend_from_slice(&rest[..bytes]);
                    at += bytes;
                }
                Step::Insert(bytes) => self.put(direction, bytes),
                Step::More => {
                    assert!(rest.len() < HOLD_MAX);
                    break;
                }
                Step::Wait => panic!("no engine here waits for the other direction"),
            }
            self.inject();
        }
        self.lane(direction).kept = input.split_off(at);
    }

    /// The sender of `direction` has closed.
    pub(super) fn end(&mut self, direction: Direction, cut: bool) {
        self.engine.end(direction, cut);
        let kept = mem::take(&mut self.lane(direction).kept);
        self.pass(direction, &kept);
        self.inject();
    }

    /// Lets the engine put in what it wants to.
    pub(super) fn inject(&mut self) {
        for direction in [Direction::Up, Direction::Down] {
            while let Some(bytes) = self.engine.inject(direction) {
                self.put(direction, bytes);
            }
        }
    }

    fn put(&mut self, direction: Direction, bytes: Bytes) {
        assert!(!bytes.is_empty());
        let lane = self.lane(direction);
        lane.out.extend_from_slice(&bytes);
        lane.own.push(bytes);
        assert!(lane.own.len() < 10_000, "the engine puts in without end");
    }

    fn pass(&mut self, direction: Direction, bytes: &[u8]) {
        let lane = self.lane(direction);
        lane.out.extend_from_slice(bytes);
        lane.passed.extend_from_slice(bytes);
    }
}
