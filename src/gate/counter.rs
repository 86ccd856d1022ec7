//! How many requests are in flight in the gate: counted without a lock, closed without a race.
//!
//! One word holds what must agree: how many are in flight, whether the counter is closed, and whether
//! somebody waits for the last one to end. The counts by kind, of arrivals and of cuts tell people,
//! and decide nothing.

use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};

use super::sync::{Arc, AtomicU64, Mutex, Ordering};

/// Nobody is admitted any more.
const CLOSED: u64 = 1 << 63;
/// Somebody is to be told of the last end.
const AWAITED: u64 = 1 << 62;
/// The rest is how many are in flight.
const COUNT: u64 = AWAITED - 1;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An HTTP/1 request, from the first byte of its head until it and its reply are whole.
    Request,
    /// An HTTP/2 stream. queue-proxy cuts those.
    Stream,
    /// An upgraded connection or a tunnel. queue-proxy cuts those too.
    Tunnel,
}

impl Kind {
    /// All, in the order of their declaration.
    pub const ALL: [Kind; 3] = [Kind::Request, Kind::Stream, Kind::Tunnel];

    /// As metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Request => "request",
            Kind::Stream => "stream",
            Kind::Tunnel => "tunnel",
        }
    }
}

/// Counts of one gate; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    word: AtomicU64,
    active: [AtomicU64; 3],
    total: AtomicU64,
    cut: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// Who waits for the last end; looked at only under [`AWAITED`].
#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Shared {
    /// One less; whoever waits for the last one is told.
    fn leave(&self) {
        // Release: what the one that ends has done is seen by whoever then sees nothing in flight.
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        if before & COUNT == 1 && before & AWAITED != 0 {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            self.word.fetch_and(!AWAITED, Ordering::AcqRel);
            let wakers = std::mem::take(&mut waiting.wakers);
            drop(waiting);
            for (_, waker) in wakers {
                waker.wake();
            }
        }
    }
}

impl Counter {
    /// Counts one more, which is an arrival; `None` once the counter is closed.
    pub fn admit(&self, kind: Kind) -> Option<Guard> {
        let guard = self.enter(kind)?;
        guard.arrives();
        Some(guard)
    }

    /// Counts one more, of which [`Guard::arrives`] may say later that it is an arrival; `None` once
    /// the counter is closed.
    pub fn enter(&self, kind: Kind) -> Option<Guard> {
        if self.shared.word.fetch_add(1, Ordering::AcqRel) & CLOSED != 0 {
            self.shared.leave();
            return None;
        }
        self.shared.active[kind as usize].fetch_add(1, Ordering::Relaxed);
        Some(Guard {
            counter: self.clone(),
            kind,
        })
    }

    /// Keeps the counter from zero: for what was in flight until now and has bytes here that are not
    /// written yet, or may turn out to be a request. Closed or not.
    pub fn hold(&self) -> Hold {
        self.shared.word.fetch_add(1, Ordering::AcqRel);
        Hold {
            shared: self.shared.clone(),
        }
    }

    /// How many of this kind are in flight.
    pub fn active(&self, kind: Kind) -> u64 {
        self.shared.active[kind as usize].load(Ordering::Relaxed)
    }

    /// How much is in flight: all guards and holds.
    pub fn in_flight(&self) -> u64 {
        self.shared.word.load(Ordering::Acquire) & COUNT
    }

    /// How many ever arrived.
    pub fn total(&self) -> u64 {
        self.shared.total.load(Ordering::Relaxed)
    }

    /// How many ended unfinished.
    pub fn cut(&self) -> u64 {
        self.shared.cut.load(Ordering::Relaxed)
    }

    /// Admits nothing from now on.
    pub fn close(&self) {
        self.shared.word.fetch_or(CLOSED, Ordering::AcqRel);
    }

    /// Closes the counter if nothing is in flight at that moment; says whether it is closed.
    pub fn close_if_idle(&self) -> bool {
        let close = |word| (word & (CLOSED | COUNT) == 0).then_some(word | CLOSED);
        let word = &self.shared.word;
        match word.fetch_update(Ordering::AcqRel, Ordering::Acquire, close) {
            Ok(_) => true,
            Err(word) => word & CLOSED != 0,
        }
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.shared.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Resolves at a moment when nothing is in flight. Only a closed counter stays that way.
    pub fn idle(&self) -> Idle {
        Idle {
            shared: self.shared.clone(),
            place: None,
        }
    }
}

/// One thing in flight, until it is dropped.
#[derive(Debug)]
pub struct Guard {
    counter: Counter,
    kind: Kind,
}

impl Guard {
    /// It counts as an arrival. Said once at most.
    pub fn arrives(&self) {
        self.counter.shared.total.fetch_add(1, Ordering::Relaxed);
    }

    /// It goes on as something else: a request that was upgraded is a tunnel.
    pub fn becomes(&mut self, kind: Kind) {
        let active = &self.counter.shared.active;
        active[kind as usize].fetch_add(1, Ordering::Relaxed);
        active[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
        self.kind = kind;
    }

    /// It ends unfinished.
    pub fn cut(self) {
        self.counter.shared.cut.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let shared = &self.counter.shared;
        shared.active[self.kind as usize].fetch_sub(1, Ordering::Relaxed);
        shared.leave();
    }
}

/// Bytes that are not written yet, until it is dropped.
#[derive(Debug)]
pub struct Hold {
    shared: Arc<Shared>,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.shared.leave();
    }
}

/// The future of [`Counter::idle`].
#[derive(Debug)]
pub struct Idle {
    shared: Arc<Shared>,
    /// Its number among those who wait.
    place: Option<u64>,
}

impl Future for Idle {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.shared.word.load(Ordering::Acquire) & COUNT == 0 {
            return Poll::Ready(());
        }
        let shared = self.shared.clone();
        let mut waiting = shared
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Whoever leaves last after this finds the waker, since it waits for the lock.
        if shared.word.fetch_or(AWAITED, Ordering::AcqRel) & COUNT == 0 {
            return Poll::Ready(());
        }
        let place = *self.place.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let ours = |(other, _): &&mut (u64, Waker)| *other == place;
        match waiting.wakers.iter_mut().find(ours) {
            Some((_, waker)) => waker.clone_from(cx.waker()),
            None => waiting.wakers.push((place, cx.waker().clone())),
        }
        Poll::Pending
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            let mut waiting = self
                .shared
                .waiting
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            waiting.wakers.retain(|(other, _)| *other != place);
        }
    }
}
