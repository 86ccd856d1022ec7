//! A bounded queue of log lines: putting in never waits, taking out does.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Lines that wait to be written: a drain logs some twenty.
const LINES: usize = 256;
/// Bytes that wait to be written.
const BYTES: usize = 512 << 10;

/// Lines on their way to the writing thread.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    bytes: usize,
    /// Lines dropped since the last one that was put in.
    lost: u64,
    /// A line has been taken and is not yet written.
    writing: bool,
    closed: bool,
}

/// What the writing thread is to write.
#[derive(Debug, PartialEq)]
pub(super) struct Taken {
    /// The line, with its end.
    pub(super) line: Vec<u8>,
    /// Lines dropped since the last one taken; how many of them came before this line is not known.
    pub(super) lost: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under the lock, and the lines are whole at every point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a line in, or drops and counts it where there is no room.
    pub(super) fn put(&self, line: &[u8]) {
        let mut state = self.lock();
        if state.closed || state.lines.len() >= LINES || line.len() > BYTES - state.bytes {
            state.lost += 1;
            return;
        }
        state.bytes += line.len();
        state.lines.push_back(line.to_vec());
        drop(state);
        self.changed.notify_all();
    }

    /// Waits for a line; `None`: the queue is closed and empty.
    pub(super) fn take(&self) -> Option<Taken> {
        let mut state = self
            .changed
            .wait_while(self.lock(), |state| state.lines.is_empty() && !state.closed)
            .unwrap_or_else(PoisonError::into_inner);
        let line = state.lines.pop_front()?;
        state.bytes -= line.len();
        state.writing = true;
        let lost = std::mem::take(&mut state.lost);
        Some(Taken { line, lost })
    }

    /// The line taken last has been written.
    pub(super) fn written(&self) {
        self.lock().writing = false;
        self.changed.notify_all();
    }

    /// Takes no more lines, and waits until those in it are written, at most `limit`.
    pub(super) fn close(&self, limit: Duration) {
        let mut state = self.lock();
        state.closed = true;
        self.changed.notify_all();
        let busy = |state: &mut State| state.writing || !state.lines.is_empty();
        drop(self.changed.wait_timeout_while(state, limit, busy));
    }
}

/// The end of the queue that a subscriber writes to: one write is one line.
#[derive(Clone, Debug)]
pub(super) struct Sender(pub(super) Arc<Queue>);

impl io::Write for Sender {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
