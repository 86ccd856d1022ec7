//! What a connection waits for, and for how long it may.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::Pump;
use crate::gate::engine::{Stage, State};

/// When to look again at a client that was to be closed and had just said something.
const UNREAD: Duration = Duration::from_millis(10);

/// What a connection waits for, by which it is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// The first byte of a request.
    Request,
    /// The rest of a head, or of a handshake.
    Head,
    /// The end of what is in flight, which may take its time.
    End,
}

impl Pump {
    /// Notes what is awaited now, and acts where it was awaited too long.
    pub(super) fn keep_time(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let state = self.engine.state();
        let awaits = match state {
            _ if self.client.is_handshaking() => Awaits::Head,
            State::Idle if self.up.kept().is_empty() => Awaits::Request,
            State::Idle | State::Head => Awaits::Head,
            State::Busy | State::Finished | State::Replaced => Awaits::End,
        };
        let restarts = self.moved && awaits == Awaits::Request;
        if awaits != self.awaits || restarts {
            self.awaits = awaits;
            // What may take its time needs no clock.
            if awaits != Awaits::End {
                self.since = Instant::now();
            }
        }
        self.moved = false;
        let written = !self.up.has_unwritten() && !self.down.has_unwritten();
        if written && (state != State::Head || self.up.kept().is_empty()) {
            self.hold = None;
        }
        loop {
            let Some(until) = self.until() else {
                return Poll::Pending;
            };
            if !self.arm(until, cx) {
                return Poll::Pending;
            }
            let now = Instant::now();
            if now < until {
                continue;
            }
            // One last read: what has come by now is served.
            if self.awaits == Awaits::Request && (!written || self.client.has_unread()) {
                self.since = now + UNREAD;
                continue;
            }
            self.finish();
            return Poll::Ready(());
        }
    }

    /// Until when it may await what it awaits.
    fn until(&self) -> Option<Instant> {
        let shared = &self.seat.shared;
        let within = match self.awaits {
            Awaits::End => return None,
            Awaits::Head => shared.limits.head,
            Awaits::Request => match self.stage {
                Stage::Serving | Stage::Announcing => shared.limits.idle,
                Stage::Draining | Stage::EndingUpgrades if self.fresh => shared.limits.head,
                Stage::Draining | Stage::EndingUpgrades => self.seat.part_of(shared.announce),
                Stage::Closed => Duration::ZERO,
            },
        };
        Some(self.since + within)
    }

    /// Sees to it that the timer has fired by `at`, or does earlier; returns whether it has.
    pub(super) fn arm(&mut self, at: Instant, cx: &mut Context<'_>) -> bool {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(Box::pin(sleep_until(at))),
        };
        if timer.deadline() > at || timer.is_elapsed() {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx).is_ready()
    }
}
