//! The streams of one connection that are in flight.

use super::super::counter::Guard;
use super::super::engine::Direction;

/// Room for so many is kept once none is open: 3 KiB.
const KEPT: usize = 128;

/// Streams that have begun and not ended. What is dropped with the table counts as cut.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// By id, which only ever grow.
    open: Vec<Stream>,
}

#[derive(Debug)]
struct Stream {
    id: u32,
    /// The half that has ended.
    ended: Option<Direction>,
    guard: Guard,
}

impl Streams {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.find(id).is_some()
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = u32> {
        self.open.iter().map(|stream| stream.id)
    }

    /// `id` is higher than any before it.
    pub(super) fn begin(&mut self, id: u32, guard: Guard) {
        self.open.push(Stream {
            id,
            ended: None,
            guard,
        });
    }

    /// The half of a stream that goes in `direction` has ended; if it is open.
    pub(super) fn end_half(&mut self, id: u32, direction: Direction) {
        let Some(at) = self.find(id) else {
            return;
        };
        match self.open[at].ended {
            Some(ended) if ended != direction => self.remove(at),
            _ => self.open[at].ended = Some(direction),
        }
    }

    /// A stream has ended; if it is open.
    pub(super) fn end(&mut self, id: u32) {
        if let Some(at) = self.find(id) {
            self.remove(at);
        }
    }

    /// A stream, if it is open, ends unfinished.
    pub(super) fn cut(&mut self, id: u32) {
        if let Some(at) = self.find(id) {
            self.open.remove(at).guard.cut();
        }
    }

    /// Streams with a higher id than `last` will not be served.
    pub(super) fn end_above(&mut self, last: u32) {
        let kept = self.open.partition_point(|stream| stream.id <= last);
        self.open.truncate(kept);
    }

    /// All end unfinished.
    pub(super) fn cut_all(&mut self) {
        for stream in self.open.drain(..) {
            stream.guard.cut();
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.open.capacity()
    }

    fn remove(&mut self, at: usize) {
        self.open.remove(at);
        if self.open.is_empty() && self.open.capacity() > KEPT {
            self.open.shrink_to(KEPT);
        }
    }

    fn find(&self, id: u32) -> Option<usize> {
        self.open.binary_search_by_key(&id, |stream| stream.id).ok()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.cut_all();
    }
}
