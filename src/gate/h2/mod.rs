//! The engine of an HTTP/2 connection: counts its streams by the frames that begin and end them, and
//! says goodbye by GOAWAY.
//!
//! Of a frame its first nine bytes are looked at, of PING and GOAWAY a little more; header blocks are
//! not decoded. What is read in part is kept until it can be judged: 24 bytes at most.
//!
//! **Streams.** One is in flight from its HEADERS until both sides have sent END_STREAM, either has
//! sent RST_STREAM, or the workload's GOAWAY says that it will not be served. What a server pushes is
//! not counted. Streams that come after the gate's last GOAWAY are forwarded and counted like others:
//! a header block that is left out would spoil the compression state of all later ones.
//!
//! **Closed.** Once the counter admits nothing, this price is paid: the client is told the last stream
//! that was forwarded, and from the first refused stream on no header block goes up any more. All
//! else that belongs to older streams does, and of what is left out the client gets its flow-control
//! window back. An older stream whose trailers are left out is reset on both sides.
//!
//! **GOAWAY.** A later one must not name a higher stream than an earlier one (RFC 9113, section 6.8),
//! and clients end the connection over it. So the gate never does, and where the workload does after
//! the gate has spoken, its last id is lowered to what the client was told: the one change to bytes
//! that are the workload's.

use bytes::{Bytes, BytesMut};

use self::farewell::Farewell;
use self::frame::{Code, Frame, HEADER, Kind, PREFACE};
use self::refusal::Refusal;
use self::scanner::{Ended, Scanner};
use self::streams::Streams;
use super::counter::{self, Counter, Guard};
use super::engine::{Direction, Stage, State, Step};

pub use self::scanner::Doubt;

mod farewell;
mod frame;
mod refusal;
mod scanner;
mod streams;

#[cfg(test)]
mod tests;

/// How many streams of one connection are told apart. With more open at once, the connection counts
/// as one tunnel for good.
pub const STREAMS_MAX: usize = 1024;

/// The part of a GOAWAY that says which stream is the last: header and id.
const GO_AWAY_HEAD: usize = HEADER + 4;

/// A whole PING.
const PING: usize = HEADER + 8;

/// One HTTP/2 connection. Streams that are open when it is dropped count as cut.
#[derive(Debug)]
pub struct Engine {
    counter: Counter,
    streams: Streams,
    /// In place of streams, from the doubt on.
    tunnel: Option<Guard>,
    doubt: Option<Doubt>,
    up: Scanner,
    down: Scanner,
    /// The client's preface has passed.
    opened: bool,
    /// The head of the client's next frame has come in part, and is kept.
    kept_up: bool,
    /// The same of the workload's.
    kept_down: bool,
    /// The last stream of the client's that was forwarded.
    highest: u32,
    /// The last stream that the workload serves, by its own GOAWAY.
    served: u32,
    farewell: Farewell,
    /// The stage in which the connection began.
    began: Stage,
    refusal: Refusal,
    /// The client's frame at hand goes nowhere.
    swallowing: bool,
    /// The head of the workload's GOAWAY has gone out lowered, and is still to be taken in.
    lowered: bool,
    up_ended: bool,
    down_ended: bool,
    lost: bool,
}

impl Engine {
    /// A connection that begins with the client's preface.
    pub fn new(counter: Counter) -> Engine {
        Engine {
            counter,
            streams: Streams::default(),
            tunnel: None,
            doubt: None,
            up: Scanner::default(),
            down: Scanner::default(),
            opened: false,
            kept_up: false,
            kept_down: false,
            highest: 0,
            served: u32::MAX,
            farewell: Farewell::new(),
            began: Stage::Serving,
            refusal: Refusal::default(),
            swallowing: false,
            lowered: false,
            up_ended: false,
            down_ended: false,
            lost: false,
        }
    }

    /// A connection that was upgraded from HTTP/1.1, from after the head of its 101. The request that
    /// asked for it, which `guard` counts, is stream 1: the client's half has ended (RFC 7540, section
    /// 3.2). The client's preface is still to come.
    pub fn upgraded(counter: Counter, guard: Guard) -> Engine {
        let mut engine = Engine::new(counter);
        engine.highest = 1;
        engine.streams.begin(1, guard);
        engine.streams.end_half(1, Direction::Up);
        engine
    }

    /// Frames are made out.
    fn is_framed(&self) -> bool {
        matches!(self.doubt, None | Some(Doubt::Streams))
    }

    /// The gate's own frames may go down here.
    fn is_open_down(&self) -> bool {
        self.is_framed() && self.down.is_open() && !self.lowered && !self.down_ended
    }

    /// The gate has something to say to the client.
    fn is_due(&self) -> bool {
        !self.is_fresh() && (self.farewell.is_due() || self.refusal.is_due())
    }

    /// The client connected in this stage of the drain, and is told once its first stream has come:
    /// before, it would do no more than connect again.
    fn is_fresh(&self) -> bool {
        let drains = (Stage::Announcing..Stage::Closed).contains(&self.began);
        drains
            && self.began == self.farewell.stage()
            && !self.refusal.has_begun()
            && self.highest == 0
    }

    fn scanner(&mut self, direction: Direction) -> &mut Scanner {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    /// The next step for bytes that come `first`, or behind others that pass with them. `None`: those
    /// are to be dealt with first.
    fn next(&mut self, direction: Direction, rest: &[u8], first: bool) -> Option<Step> {
        let left = self.scanner(direction).left();
        if left > 0 {
            let bytes = rest.len().min(left as usize);
            return if direction == Direction::Down || !self.swallowing {
                self.payload(direction, bytes as u32);
                Some(Step::Pass(bytes))
            } else if first {
                self.payload(direction, bytes as u32);
                Some(Step::Swallow(bytes))
            } else {
                None
            };
        }
        if direction == Direction::Up && !self.opened {
            return self.preface(rest, first);
        }
        if direction == Direction::Down && self.is_due() && self.is_open_down() {
            if !first {
                return None;
            }
            if let Some(bytes) = self.own() {
                return Some(Step::Insert(bytes));
            }
        }
        let Some(header) = rest.first_chunk() else {
            return first.then_some(Step::More);
        };
        let frame = Frame::parse(header);
        if let Err(doubt) = self.scanner(direction).check(&frame) {
            self.distrust(doubt);
            return Some(Step::Pass(rest.len()));
        }
        match direction {
            Direction::Up => self.next_up(frame, rest, first),
            Direction::Down => self.next_down(frame, rest, first),
        }
    }

    fn preface(&mut self, rest: &[u8], first: bool) -> Option<Step> {
        if rest.starts_with(PREFACE) {
            self.opened = true;
            Some(Step::Pass(PREFACE.len()))
        } else if PREFACE.starts_with(rest) {
            first.then_some(Step::More)
        } else {
            self.distrust(Doubt::Preface);
            Some(Step::Pass(rest.len()))
        }
    }

    fn next_up(&mut self, frame: Frame, rest: &[u8], first: bool) -> Option<Step> {
        if frame.kind == Kind::Ping
            && frame.is_ack()
            && let Some(ping) = self.farewell.ping()
        {
            let Some(whole) = rest.get(..PING) else {
                return first.then_some(Step::More);
            };
            if whole.ends_with(&ping) {
                if !first {
                    return None;
                }
                self.farewell.answered();
                return Some(Step::Swallow(PING));
            }
        }
        if frame.kind == Kind::Headers && frame.stream % 2 == 1 && frame.stream > self.highest {
            self.admit(frame.stream);
        }
        self.swallowing = self.refusal.covers(&frame, self.highest);
        if !self.swallowing {
            self.begin(Direction::Up, frame);
            return Some(Step::Pass(HEADER));
        }
        if !first {
            return None;
        }
        if frame.kind == Kind::Headers && self.streams.contains(frame.stream) {
            // These are trailers. The workload must not take the request for whole without them.
            self.streams.cut(frame.stream);
            self.refusal.resets(frame.stream);
            let mut reset = BytesMut::new();
            frame::reset(&mut reset, frame.stream, Code::Cancel);
            return Some(Step::Insert(reset.freeze()));
        }
        self.refusal.drops(&frame);
        self.begin(Direction::Up, frame);
        Some(Step::Swallow(HEADER))
    }

    /// Counts a new stream, or refuses it and all that follow.
    fn admit(&mut self, stream: u32) {
        if self.refusal.has_begun() {
            return;
        }
        let admitted = if self.farewell.stage() >= Stage::Closed {
            false
        } else if self.doubt.is_some() || stream > self.served {
            // Nobody tells them apart any more, or nobody will serve it.
            true
        } else if self.streams.len() < STREAMS_MAX {
            match self.counter.admit(counter::Kind::Stream) {
                Some(guard) => {
                    self.streams.begin(stream, guard);
                    true
                }
                None => false,
            }
        } else {
            self.tunnel = self.counter.admit(counter::Kind::Tunnel);
            if self.tunnel.is_some() {
                self.doubt = Some(Doubt::Streams);
                self.streams.end_above(0);
            }
            self.tunnel.is_some()
        };
        if admitted {
            self.highest = stream;
        } else {
            self.refusal.begin();
            self.farewell.refuse();
        }
    }

    fn next_down(&mut self, frame: Frame, rest: &[u8], first: bool) -> Option<Step> {
        if frame.kind == Kind::GoAway {
            let Some([header @ .., l0, l1, l2, l3]) = rest.first_chunk::<GO_AWAY_HEAD>() else {
                return first.then_some(Step::More);
            };
            if self.lowered {
                self.lowered = false;
                self.begin(Direction::Down, frame);
                self.payload(Direction::Down, 4);
                return Some(Step::Swallow(GO_AWAY_HEAD));
            }
            let last = frame::id(&[*l0, *l1, *l2, *l3]);
            self.served = self.served.min(last);
            self.streams.end_above(last);
            if let Some(told) = self.farewell.lowers(last) {
                if !first {
                    return None;
                }
                self.lowered = true;
                let mut head = BytesMut::with_capacity(GO_AWAY_HEAD);
                head.extend_from_slice(header);
                head.extend_from_slice(&told.to_be_bytes());
                return Some(Step::Insert(head.freeze()));
            }
            self.farewell.overheard(last);
        }
        self.begin(Direction::Down, frame);
        Some(Step::Pass(HEADER))
    }

    fn begin(&mut self, direction: Direction, frame: Frame) {
        let ended = self.scanner(direction).begin(frame);
        self.ended(direction, ended);
    }

    fn payload(&mut self, direction: Direction, bytes: u32) {
        let ended = self.scanner(direction).payload(bytes);
        self.ended(direction, ended);
    }

    fn ended(&mut self, direction: Direction, ended: Option<Ended>) {
        match ended {
            Some(Ended::Half(stream)) => self.streams.end_half(stream, direction),
            Some(Ended::Stream(stream)) => self.streams.end(stream),
            None => {}
        }
    }

    /// Frames cannot be made out any more: a tunnel from here.
    fn distrust(&mut self, doubt: Doubt) {
        if self.tunnel.is_none() {
            self.tunnel = self.counter.admit(counter::Kind::Tunnel);
        }
        if self.tunnel.is_some() {
            self.streams.end_above(0);
        }
        self.doubt = Some(doubt);
    }

    /// What the gate has to say to the client here.
    fn own(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        self.farewell.write(&mut out, self.highest);
        self.refusal.write(&mut out);
        (!out.is_empty()).then(|| out.freeze())
    }
}

impl super::engine::Engine for Engine {
    fn step(&mut self, direction: Direction, input: &[u8]) -> Step {
        if !self.is_framed() {
            return Step::Pass(input.len());
        }
        let mut passed = 0;
        let step = loop {
            let Some(rest) = input.get(passed..).filter(|rest| !rest.is_empty()) else {
                break Step::Pass(passed);
            };
            match self.next(direction, rest, passed == 0) {
                Some(Step::Pass(bytes)) => passed += bytes,
                Some(step) => break step,
                None => break Step::Pass(passed),
            }
        };
        let kept = step == Step::More;
        match direction {
            Direction::Up => self.kept_up = kept,
            Direction::Down => self.kept_down = kept,
        }
        step
    }

    fn opaque(&self, direction: Direction) -> u64 {
        match direction {
            _ if !self.is_framed() => u64::MAX,
            Direction::Up if self.swallowing => 0,
            Direction::Up => self.up.left().into(),
            Direction::Down => self.down.left().into(),
        }
    }

    fn moved(&mut self, direction: Direction, bytes: u64) {
        if self.is_framed() {
            self.payload(direction, u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    fn inject(&mut self, direction: Direction) -> Option<Bytes> {
        if direction == Direction::Down && self.is_due() && self.is_open_down() {
            self.own()
        } else {
            None
        }
    }

    fn stage(&mut self, stage: Stage) {
        if !self.up.started() && !self.opened {
            self.began = stage;
        }
        self.farewell.advance(stage);
    }

    /// Streams stay in flight where only one side has closed: the workload may still answer a client
    /// that has sent all, and [`Engine::upstream_lost`] tells the client of those that the workload
    /// left.
    ///
    /// [`Engine::upstream_lost`]: super::engine::Engine::upstream_lost
    fn end(&mut self, direction: Direction, cut: bool) {
        match direction {
            Direction::Up => {
                self.up_ended = true;
                self.kept_up = false;
                self.farewell.hurry();
            }
            Direction::Down => self.down_ended = true,
        }
        if cut && direction == Direction::Up {
            self.streams.cut_all();
        }
        if cut && !self.is_framed() {
            self.tunnel.take().into_iter().for_each(Guard::cut);
        } else if self.up_ended && self.down_ended {
            self.tunnel = None;
        }
    }

    /// Streams are open, and the workload has sent no GOAWAY, by which a client knows what to think of
    /// those.
    fn owes(&self) -> bool {
        let busy = !self.streams.is_empty() || self.tunnel.is_some();
        self.is_framed() && busy && self.served == u32::MAX
    }

    /// RST_STREAM for each open stream, then GOAWAY with the last one that was forwarded, unless the
    /// client knows that: 0 if none was, which is what a client may try again elsewhere. The workload's
    /// SETTINGS are made up where they have not come. `None` in the middle of a frame or header block.
    fn upstream_lost(&mut self) -> Option<Bytes> {
        let between = self.down.is_open() || !self.down.started();
        let torn = self.lowered || self.down_ended && self.kept_down;
        let mut out = BytesMut::new();
        if self.is_framed() && between && !torn {
            if !self.down.started() {
                frame::settings(&mut out);
            }
            for stream in self.streams.ids() {
                frame::reset(&mut out, stream, Code::InternalError);
            }
            if self.farewell.told() > self.highest {
                let code = if self.streams.is_empty() && self.tunnel.is_none() {
                    Code::NoError
                } else {
                    Code::InternalError
                };
                frame::go_away(
                    &mut out,
                    self.highest,
                    code,
                    "tidegate: the workload is gone",
                );
            }
        }
        self.lost = true;
        self.streams.cut_all();
        self.tunnel.take().into_iter().for_each(Guard::cut);
        (!out.is_empty()).then(|| out.freeze())
    }

    fn doubt(&self) -> Option<&'static str> {
        self.doubt.map(Doubt::name)
    }

    fn state(&self) -> State {
        if self.lost {
            return State::Finished;
        }
        if !self.is_framed() {
            // Nothing counts it if nothing was admitted any more.
            let counted = self.tunnel.is_some() || !self.streams.is_empty();
            return if counted {
                State::Busy
            } else {
                State::Finished
            };
        }
        let said = self.farewell.is_said() && self.down.is_open();
        if self.down_ended {
            State::Finished
        } else if self.tunnel.is_some() || !self.streams.is_empty() {
            State::Busy
        } else if said && !self.is_due() && !self.lowered {
            State::Finished
        } else if !self.up.started() || self.kept_up || self.is_fresh() {
            State::Head
        } else {
            State::Idle
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.tunnel.take().into_iter().for_each(Guard::cut);
    }
}
