//! What a protocol engine is: it watches the bytes of one connection pass in both directions, counts
//! what is in flight, and says what is to become of each byte. It does no I/O and knows no clock.

use bytes::Bytes;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the workload.
    Up,
    /// From the workload to the client.
    Down,
}

impl Direction {
    /// The other one.
    pub fn other(self) -> Direction {
        match self {
            Direction::Up => Direction::Down,
            Direction::Down => Direction::Up,
        }
    }
}

/// What is to become of the bytes at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The first so many, at least one, go on as they are.
    Pass(usize),
    /// The first so many, at least one, go nowhere.
    Swallow(usize),
    /// These go out first; then ask again with the same bytes.
    Insert(Bytes),
    /// They cannot be judged yet: keep them, and come again once more have come. Never said of more
    /// than [`HOLD_MAX`] bytes.
    More,
    /// Keep them, and come again once the other direction has moved.
    Wait,
}

/// The most bytes that an engine asks to keep: a head larger than this makes the connection a tunnel.
pub const HOLD_MAX: usize = 64 * 1024;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Nothing is in flight, and no byte of a next request has come.
    Idle,
    /// The head of a request, or the start of the connection, is incomplete.
    Head,
    /// Something is in flight.
    Busy,
    /// Nothing more is to be forwarded once what was passed is written: close, politely.
    Finished,
    /// Another protocol begins with the next byte: take [`Engine::successor`].
    Replaced,
}

/// What the drain asks of connections. Stages only advance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// The pod serves.
    #[default]
    Serving,
    /// Tell every client, politely, to go elsewhere; refuse nothing.
    Announcing,
    /// The same, and connections that turn idle are closed.
    Draining,
    /// The same, and upgraded connections are ended: `upgrade-grace` is over.
    EndingUpgrades,
    /// Nothing is admitted any more. What is in flight may still end.
    Closed,
}

impl Stage {
    /// All of them, in their order.
    pub const ALL: [Stage; 5] = [
        Stage::Serving,
        Stage::Announcing,
        Stage::Draining,
        Stage::EndingUpgrades,
        Stage::Closed,
    ];
}

/// One connection's protocol.
pub trait Engine: Send {
    /// Judges `input`, which is never empty: bytes that the sender of `direction` has sent and that
    /// have not been passed or swallowed.
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step;

    /// How many of the next bytes in `direction` pass whatever they are, so that the kernel may move
    /// them unseen; `u64::MAX`: all until the end. It counts from after the last byte judged.
    fn opaque(&self, direction: Direction) -> u64;

    /// `bytes` of the opaque ones were moved unseen.
    fn moved(&mut self, direction: Direction, bytes: u64);

    /// The gate's own bytes that may go out in `direction` right now, after all that was passed.
    /// Asked after every step, and whenever the stage changes.
    fn inject(&mut self, direction: Direction) -> Option<Bytes>;

    /// The drain has come to this stage.
    fn stage(&mut self, stage: Stage);

    /// The sender of `direction` has closed its half, or, if `cut`, the connection broke. Bytes that
    /// were kept have been offered before, and pass as they are afterwards.
    fn end(&mut self, direction: Direction, cut: bool);

    /// Whether the workload owes the client an answer that its closing would not end: then it is lost
    /// where it closes, too.
    fn owes(&self) -> bool {
        false
    }

    /// The workload cannot be reached, or broke off: what the client is to be told. Nothing else is
    /// forwarded to it afterwards; bytes that were kept are dropped. [`Engine::end`] follows.
    fn upstream_lost(&mut self) -> Option<Bytes>;

    /// Where the connection stands.
    fn state(&self) -> State;

    /// Why the engine does not believe the connection any more and passes it as it is, as metrics call
    /// it. Asked once, at the end of the connection or before [`Engine::successor`].
    fn doubt(&self) -> Option<&'static str> {
        None
    }

    /// The engine of the protocol that begins now; only where [`Engine::state`] says
    /// [`State::Replaced`].
    fn successor(&mut self) -> Option<Box<dyn Engine>> {
        None
    }
}
