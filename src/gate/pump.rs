//! Drives one engine over a client and the workload: the whole life of a connection, in one task.
//!
//! Bytes are read into a buffer that all connections of the thread share, judged there, and written
//! from there; a connection owns memory only for what the other side did not take at once, and is not
//! read further in that direction until it has.

mod clock;
mod ends;

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep};

use self::clock::Awaits;
use super::counter::Hold;
use super::engine::{Direction, Engine, HOLD_MAX, Stage, State, Step};
use super::lane::{Kept, Lane};
use super::shared::Seat;
use super::side::Side;

/// What is read at once.
const READ: usize = 64 * 1024;

/// What one direction moves before others have their turn.
const TURN: usize = 512 * 1024;

thread_local! {
    /// What was kept goes first, and what is read behind it.
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; HOLD_MAX + READ].into());
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Forwarding,
    /// What was passed is written, and nothing else.
    Finishing,
    /// The client was told; what it still sends is read and dropped.
    Lingering {
        left: usize,
    },
    Over,
}

/// One connection.
pub(super) struct Pump {
    seat: Seat,
    engine: Box<dyn Engine>,
    client: Side,
    workload: Side,
    up: Lane,
    down: Lane,
    /// While something is judged and not written.
    hold: Option<Hold>,
    stage: Stage,
    /// Its client came at a time when idle connections are closed, and has said nothing yet: it has
    /// come for something.
    fresh: bool,
    phase: Phase,
    awaits: Awaits,
    /// When it began to await that.
    since: Instant,
    /// Whether anything was judged since `since`.
    moved: bool,
    /// The client lacks something that it cannot be told of.
    torn: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pump {
    /// A connection of `client`, which has said nothing yet. The workload is connected to once there
    /// is something for it, or, if `at_once`, now.
    pub(super) fn new(seat: Seat, client: Side, engine: Box<dyn Engine>, at_once: bool) -> Pump {
        let workload = if at_once {
            Side::connect(seat.upstream, seat.shared.limits.connect)
        } else {
            Side::Absent
        };
        Pump {
            fresh: seat.shared.stage() >= Stage::Draining,
            seat,
            engine,
            client,
            workload,
            up: Lane::new(),
            down: Lane::new(),
            hold: None,
            stage: Stage::Serving,
            phase: Phase::Forwarding,
            awaits: Awaits::Request,
            since: Instant::now(),
            moved: false,
            torn: false,
            timer: None,
        }
    }

    /// What it owns beyond itself.
    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.up.memory() + self.down.memory()
    }

    /// The lane of `direction`, where its bytes come from, and where they go.
    fn ends(&mut self, direction: Direction) -> (&mut Lane, &mut Side, &mut Side) {
        match direction {
            Direction::Up => (&mut self.up, &mut self.client, &mut self.workload),
            Direction::Down => (&mut self.down, &mut self.workload, &mut self.client),
        }
    }

    fn lane(&mut self, direction: Direction) -> &mut Lane {
        self.ends(direction).0
    }

    // ===== forwarding =====

    fn forward(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) {
        let stage = self.seat.shared.stage();
        if stage != self.stage {
            // Idle connections are closed some time after the drain has come to that, not before.
            self.moved |= self.stage < Stage::Draining && stage >= Stage::Draining;
            self.stage = stage;
            self.engine.stage(stage);
            self.inject();
            self.up.look_again();
            self.down.look_again();
            self.heed();
        }
        loop {
            if let Poll::Ready(Err(error)) = self.workload.poll_open(cx) {
                tracing::debug!(%error, upstream = %self.seat.upstream, "the workload cannot be reached");
                self.seat.shared.metrics.unreachable.inc();
                self.lost(true);
            }
            self.flow(Direction::Up, cx, buffer);
            self.flow(Direction::Down, cx, buffer);
            let again = self.up.attention || self.down.attention;
            if !again || self.phase != Phase::Forwarding {
                return;
            }
        }
    }

    /// Moves what can be moved in one direction.
    fn flow(&mut self, direction: Direction, cx: &mut Context<'_>, buffer: &mut [u8]) {
        self.lane(direction).attention = false;
        let mut moved = 0;
        while self.phase == Phase::Forwarding {
            match self.poll_written(direction, cx) {
                Poll::Pending => return,
                Poll::Ready(Err(_)) => return self.sink_broke(direction),
                Poll::Ready(Ok(())) => {}
            }
            let (lane, _, sink) = self.ends(direction);
            if lane.ended {
                if !lane.shut {
                    if sink.poll_shutdown(cx).is_pending() {
                        return;
                    }
                    lane.shut = true;
                    self.heed();
                }
                return;
            }
            if let Some(kept) = lane.take_again() {
                self.judge(direction, cx, &kept);
                continue;
            }
            if lane.waits() {
                return;
            }
            if moved >= TURN {
                cx.waker().wake_by_ref();
                return;
            }
            match self.poll_more(direction, cx, buffer) {
                Poll::Pending => return,
                Poll::Ready(Err(_)) => return self.source_broke(direction),
                Poll::Ready(Ok(0)) => self.source_ended(direction),
                Poll::Ready(Ok(bytes)) => moved += bytes,
            }
        }
    }

    fn poll_written(&mut self, direction: Direction, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (lane, _, sink) = self.ends(direction);
        if direction == Direction::Up && sink.is_absent() {
            if !lane.has_unwritten() {
                return Poll::Ready(Ok(()));
            }
            // The first byte for the workload. Whether it can be reached is looked at above.
            lane.attention = true;
            self.workload = Side::connect(self.seat.upstream, self.seat.shared.limits.connect);
            return Poll::Pending;
        }
        lane.poll_written(cx, sink)
    }

    /// Moves some more bytes, through the pipe or the buffer; 0 at the end.
    fn poll_more(
        &mut self,
        direction: Direction,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let pool = &self.seat.shared.pipes;
        let (lane, source, sink) = match direction {
            Direction::Up => (&mut self.up, &mut self.client, &self.workload),
            Direction::Down => (&mut self.down, &mut self.workload, &self.client),
        };
        let opaque = self.engine.opaque(direction);
        if source.plain().is_some()
            && sink.plain().is_some()
            && lane.is_spliced(opaque, pool)
            && let Some(bytes) = ready!(lane.poll_splice(cx, source, opaque, pool))?
        {
            if bytes > 0 {
                // Before the engine learns of it, and says that nothing is in flight.
                self.hold();
                self.engine.moved(direction, bytes as u64);
                self.settle(direction);
            }
            return Poll::Ready(Ok(bytes));
        }
        let kept = lane.kept().len();
        let room = buffer.len().min(kept + READ);
        if kept >= room {
            // No engine keeps that much.
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        let read = ready!(source.poll_read(cx, &mut buffer[kept..room]))?;
        if read > 0 {
            lane.came(read);
            buffer[..kept].copy_from_slice(lane.kept());
            self.judge(direction, cx, &buffer[..kept + read]);
        }
        Poll::Ready(Ok(read))
    }

    /// Asks the engine what becomes of `input`, and does it.
    fn judge(&mut self, direction: Direction, cx: &mut Context<'_>, input: &[u8]) {
        self.hold();
        self.moved = true;
        self.fresh &= direction == Direction::Down;
        let (mut passed, mut at) = (0, 0);
        let mut then = Kept::More;
        let mut any = false;
        while at < input.len() && self.phase == Phase::Forwarding {
            let step = self.engine.step(direction, &input[at..]);
            let mut own = None;
            let rests = match step {
                Step::Pass(bytes) => {
                    at = input.len().min(at + bytes);
                    None
                }
                Step::Swallow(bytes) => {
                    self.lane(direction).push(&input[passed..at]);
                    at = input.len().min(at + bytes);
                    passed = at;
                    None
                }
                Step::Insert(bytes) => {
                    own = Some(bytes);
                    None
                }
                Step::More => Some(Kept::More),
                Step::Wait => Some(Kept::Wait),
            };
            any |= rests.is_none();
            while let Some(bytes) = own.or_else(|| self.engine.inject(direction)) {
                let lane = self.lane(direction);
                lane.push(&input[passed..at]);
                lane.push(&bytes);
                passed = at;
                own = None;
            }
            self.inject_into(direction.other());
            let replaced = self.engine.state() == State::Replaced;
            self.heed();
            if let Some(kept) = rests
                && !replaced
            {
                then = kept;
                break;
            }
        }
        let (lane, _, sink) = self.ends(direction);
        let written = lane.write(cx, sink, &input[passed..at]);
        if self.phase == Phase::Forwarding {
            self.lane(direction).keep(&input[at..], then);
        }
        if any && self.lane(direction.other()).waits() {
            self.lane(direction.other()).look_again();
        }
        if written.is_err() {
            self.sink_broke(direction);
        }
    }

    /// Keeps the counter from zero until all is written that is about to be judged.
    fn hold(&mut self) {
        if self.hold.is_none() {
            self.hold = Some(self.seat.shared.counter.hold());
        }
    }

    fn settle(&mut self, direction: Direction) {
        self.moved = true;
        self.inject();
        let other = self.lane(direction.other());
        if other.waits() {
            other.look_again();
        }
        self.heed();
    }

    fn inject(&mut self) {
        self.inject_into(Direction::Up);
        self.inject_into(Direction::Down);
    }

    fn inject_into(&mut self, direction: Direction) {
        while let Some(own) = self.engine.inject(direction) {
            self.hold();
            let lane = self.lane(direction);
            lane.push(&own);
            lane.attention = true;
        }
    }

    /// Heeds what the engine says of the whole connection.
    fn heed(&mut self) {
        if self.phase != Phase::Forwarding {
            return;
        }
        while self.engine.state() == State::Replaced {
            self.note_doubt();
            let Some(next) = self.engine.successor() else {
                return self.finish();
            };
            self.engine = next;
            self.engine.stage(self.stage);
            if self.up.ended {
                self.engine.end(Direction::Up, false);
            }
            if self.down.ended {
                self.engine.end(Direction::Down, false);
            }
            self.inject();
            self.up.look_again();
            self.down.look_again();
        }
        let (up, down) = (self.up.shut, self.down.shut);
        match self.engine.state() {
            State::Finished => self.finish(),
            State::Idle if up || down => self.finish(),
            _ if up && down => self.finish(),
            _ => {}
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finishing;
        self.since = Instant::now();
    }

    fn note_doubt(&self) {
        if let Some(doubt) = self.engine.doubt() {
            self.seat.shared.metrics.doubt(doubt);
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<()> {
        self.seat.wakes(cx.waker());
        loop {
            let turned = match self.phase {
                Phase::Forwarding => {
                    self.forward(cx, buffer);
                    if self.phase == Phase::Forwarding {
                        self.keep_time(cx)
                    } else {
                        Poll::Ready(())
                    }
                }
                Phase::Finishing => self.poll_finished(cx),
                Phase::Lingering { left } => self.poll_lingered(left, cx, buffer),
                Phase::Over => return Poll::Ready(()),
            };
            if turned.is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let pump = self.get_mut();
        BUFFER.with_borrow_mut(|buffer| pump.turn(cx, buffer))
    }
}

impl Drop for Pump {
    /// What is in flight is cut, and whoever waits for the rest learns that there is none.
    fn drop(&mut self) {
        self.note_doubt();
        let busy = self.phase == Phase::Forwarding && self.engine.state() == State::Busy;
        if busy || self.down.has_unwritten() {
            self.client.abort();
            self.workload.abort();
        }
        let pipes = &self.seat.shared.pipes;
        self.up.give_back(pipes);
        self.down.give_back(pipes);
    }
}
