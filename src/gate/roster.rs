//! Which connections are open, and how all of them are woken at once.
//!
//! A connection that waited for the drain's stages by itself would ask for them at every turn. Here it
//! leaves its waker once, and reads one atomic.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// The places for connections.
#[derive(Debug)]
pub(super) struct Roster {
    limit: usize,
    places: Mutex<Places>,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct Places {
    wakers: Vec<Option<Waker>>,
    free: Vec<u32>,
    taken: usize,
}

impl Roster {
    pub(super) fn new(limit: usize) -> Roster {
        Roster {
            limit,
            places: Mutex::default(),
            emptied: Notify::new(),
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, if there is one; to be given back by [`Roster::leave`].
    pub(super) fn enter(&self) -> Option<u32> {
        let mut places = self.places();
        if places.taken >= self.limit {
            return None;
        }
        let place = match places.free.pop() {
            Some(place) => place,
            None => {
                let place = u32::try_from(places.wakers.len()).ok()?;
                places.wakers.push(None);
                place
            }
        };
        places.taken += 1;
        Some(place)
    }

    /// Whom to wake for this place.
    pub(super) fn wakes(&self, place: u32, waker: &Waker) {
        if let Some(slot) = self.places().wakers.get_mut(place as usize) {
            *slot = Some(waker.clone());
        }
    }

    pub(super) fn leave(&self, place: u32) {
        let mut places = self.places();
        if let Some(slot) = places.wakers.get_mut(place as usize) {
            *slot = None;
        }
        places.free.push(place);
        places.taken -= 1;
        if places.taken == 0 {
            self.emptied.notify_one();
        }
    }

    /// How many places are taken.
    pub(super) fn taken(&self) -> usize {
        self.places().taken
    }

    /// Wakes everybody.
    pub(super) fn wake(&self) {
        let wakers: Vec<_> = self.places().wakers.iter().flatten().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns once nobody is here.
    pub(super) async fn emptied(&self) {
        while self.taken() > 0 {
            self.emptied.notified().await;
        }
    }
}
