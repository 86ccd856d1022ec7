//! What all connections of a gate share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;
use std::time::Duration;

use tokio_rustls::TlsAcceptor;

use super::conn::Links;
use super::counter::Counter;
use super::engine::Stage;
use super::h1;
use super::limits::Limits;
use super::metrics::Metrics;
use super::roster::Roster;
use super::splice::Pool;

pub(super) struct Shared {
    pub(super) limits: Limits,
    /// How long the closing of idle connections is spread.
    pub(super) announce: Duration,
    pub(super) counter: Counter,
    /// Where HTTP/1 connections lead to.
    pub(super) links: Arc<dyn h1::Links>,
    pub(super) metrics: Metrics,
    pub(super) pipes: Pool,
    pub(super) tls: Option<TlsAcceptor>,
    roster: Roster,
    stage: AtomicU8,
}

impl Shared {
    pub(super) fn new(
        limits: Limits,
        announce: Duration,
        tls: Option<TlsAcceptor>,
        metrics: Metrics,
    ) -> Shared {
        let counter = Counter::default();
        Shared {
            limits,
            announce,
            links: Arc::new(Links(counter.clone())),
            counter,
            metrics,
            pipes: Pool::new(limits.pipes),
            tls,
            roster: Roster::new(limits.connections),
            stage: AtomicU8::new(0),
        }
    }

    /// The stage of the drain.
    pub(super) fn stage(&self) -> Stage {
        Stage::ALL[usize::from(self.stage.load(Ordering::Relaxed))]
    }

    /// Comes to `stage`, unless it is there or further, and lets every connection know.
    pub(super) fn advance(&self, stage: Stage) {
        if self.stage.fetch_max(stage as u8, Ordering::Relaxed) < stage as u8 {
            if stage == Stage::Closed {
                self.counter.close();
            }
            self.roster.wake();
        }
    }

    /// Returns once no connection is open.
    pub(super) async fn emptied(&self) {
        self.roster.emptied().await;
    }
}

/// One connection's place in the gate.
pub(super) struct Seat {
    pub(super) shared: Arc<Shared>,
    /// Where its client's bytes go.
    pub(super) upstream: SocketAddr,
    place: u32,
    waker: Option<Waker>,
}

impl Seat {
    /// A place, where there is one.
    pub(super) fn take(shared: &Arc<Shared>, upstream: SocketAddr) -> Option<Seat> {
        let place = shared.roster.enter()?;
        shared.metrics.opened();
        Some(Seat {
            shared: shared.clone(),
            upstream,
            place,
            waker: None,
        })
    }

    /// Remembers whom to wake; to be told at every turn, and costs nothing while it is the same.
    pub(super) fn wakes(&mut self, waker: &Waker) {
        if !self.waker.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.shared.roster.wakes(self.place, waker);
            self.waker = Some(waker.clone());
        }
    }

    /// A part of `whole` that is this place's own: neighbours' lie far apart.
    pub(super) fn part_of(&self, whole: Duration) -> Duration {
        // Fibonacci hashing.
        let spread = self.place.wrapping_mul(2_654_435_769);
        whole.mul_f64(f64::from(spread) / f64::from(u32::MAX))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shared.metrics.closed();
        self.shared.roster.leave(self.place);
    }
}
