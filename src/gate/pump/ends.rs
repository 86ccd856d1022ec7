//! The ends of a connection: of one side, of a side that breaks, and of the whole.

use std::io;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::{Phase, Pump};
use crate::gate::engine::{Direction, State};
use crate::gate::lane::Kept;
use crate::gate::side::Side;

/// What is read from a client that was told that the connection ends.
const LINGER_BYTES: usize = 256 * 1024;

impl Pump {
    pub(super) fn source_ended(&mut self, direction: Direction) {
        if direction == Direction::Down && self.engine.owes() {
            return self.lost(false);
        }
        let lane = self.lane(direction);
        lane.ended = true;
        let kept = lane.take_kept();
        self.hold();
        self.engine.end(direction, false);
        self.lane(direction).push(&kept);
        self.settle(direction);
    }

    pub(super) fn source_broke(&mut self, direction: Direction) {
        match direction {
            Direction::Up => self.client_broke(),
            Direction::Down => self.lost(true),
        }
    }

    pub(super) fn sink_broke(&mut self, direction: Direction) {
        match direction {
            Direction::Down => self.client_broke(),
            Direction::Up => {
                // It may have answered before it stopped listening.
                self.up.discard(&self.seat.shared.pipes);
                self.up.keep(&[], Kept::Wait);
                self.up.shut = true;
                self.heed();
            }
        }
    }

    /// Nobody is there to be answered.
    fn client_broke(&mut self) {
        if self.engine.state() == State::Busy {
            self.workload.abort();
        }
        self.engine.end(Direction::Up, true);
        self.client = Side::Gone;
        self.phase = Phase::Over;
    }

    /// The workload is not there any more, and did not finish: if it `broke`, so does the connection
    /// to a client that cannot be told otherwise.
    pub(super) fn lost(&mut self, broke: bool) {
        self.hold();
        let busy = self.engine.state() == State::Busy;
        let last_words = self.engine.upstream_lost();
        self.engine.end(Direction::Down, broke);
        self.down.keep(&[], Kept::More);
        self.up.discard(&self.seat.shared.pipes);
        self.workload = Side::Gone;
        match last_words {
            Some(last_words) => self.down.push(&last_words),
            None => self.torn = broke && busy,
        }
        self.finish();
    }

    // ===== finishing =====

    /// Writes what was passed, and says that nothing follows.
    pub(super) fn poll_finished(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Pump {
            up,
            down,
            client,
            workload,
            torn,
            ..
        } = self;
        let to_client = match down.poll_written(cx, client) {
            Poll::Ready(Ok(())) if *torn => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Ready(Ok(())) if !down.shut => client.poll_shutdown(cx),
            written => written,
        };
        let to_workload = if workload.plain().is_some() || up.has_unwritten() {
            match up.poll_written(cx, workload) {
                Poll::Ready(Ok(())) => workload.poll_shutdown(cx),
                written => written,
            }
        } else {
            Poll::Ready(Ok(()))
        };
        match (to_client, to_workload) {
            (Poll::Pending, _) => return Poll::Pending,
            (Poll::Ready(Err(_)), _) => {
                self.client.abort();
                self.phase = Phase::Over;
            }
            // The workload has a little longer than the client.
            (Poll::Ready(Ok(())), Poll::Pending)
                if !self.arm(self.since + self.seat.shared.limits.linger, cx) =>
            {
                return Poll::Pending;
            }
            (Poll::Ready(Ok(())), _) if self.up.ended => self.phase = Phase::Over,
            (Poll::Ready(Ok(())), _) => {
                self.phase = Phase::Lingering { left: LINGER_BYTES };
                self.since = Instant::now();
            }
        }
        // All that was passed is written; what is not finished by now never will be.
        self.engine.end(Direction::Up, true);
        self.engine.end(Direction::Down, true);
        self.hold = None;
        self.workload = Side::Gone;
        Poll::Ready(())
    }

    /// Reads until the client has closed, for as long as it may take: a socket closed with unread
    /// bytes is reset, and the reset can overtake the answer.
    pub(super) fn poll_lingered(
        &mut self,
        left: usize,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<()> {
        let late = self.arm(self.since + self.seat.shared.limits.linger, cx);
        match self.client.poll_read(cx, buffer) {
            Poll::Pending if !late => Poll::Pending,
            Poll::Ready(Ok(read)) if read > 0 && read < left => {
                self.phase = Phase::Lingering { left: left - read };
                Poll::Ready(())
            }
            _ => {
                self.phase = Phase::Over;
                Poll::Ready(())
            }
        }
    }
}
