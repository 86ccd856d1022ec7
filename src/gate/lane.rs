//! One direction of a connection: what was read and cannot be judged yet, and what was judged and is
//! not written yet. Empty, it owns no memory.

use std::io;
use std::task::{Context, Poll, ready};

use super::side::Side;
use super::splice::{Pipe, Pool};

/// How many bytes a tunnel moves, none of them in small pieces, before its bytes are spliced.
const STREAK: u64 = 128 * 1024;

/// A body of so many bytes is spliced from where it begins. Less is copied sooner than a pipe is had.
const BODY: u64 = 512 * 1024;

/// A piece so small costs less to copy than to splice, which takes two calls and one that finds nothing.
const SMALL: usize = 8 * 1024;

/// What to do with the bytes that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// Judge them once more have come.
    More,
    /// Judge them once the other direction has moved.
    Wait,
    /// Judge them now.
    Again,
}

pub(super) struct Lane {
    /// Read and not judged.
    kept: Vec<u8>,
    then: Kept,
    /// Judged and not written, from `written` on; what `pipe` holds goes before it.
    out: Vec<u8>,
    written: usize,
    pipe: Option<Pipe>,
    /// Bytes that came without a small piece among them.
    streak: u64,
    copies_for_good: bool,
    /// Something was written and not flushed.
    dirty: bool,
    /// Its source has ended.
    pub(super) ended: bool,
    /// Its sink was told so, or takes nothing any more.
    pub(super) shut: bool,
    /// The other direction left something to do here.
    pub(super) attention: bool,
}

impl Lane {
    pub(super) fn new() -> Lane {
        Lane {
            kept: Vec::new(),
            then: Kept::More,
            out: Vec::new(),
            written: 0,
            pipe: None,
            streak: 0,
            copies_for_good: false,
            dirty: false,
            ended: false,
            shut: false,
            attention: false,
        }
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.kept.capacity() + self.out.capacity()
    }

    // ===== what is kept =====

    /// Takes what is kept, where it is to be judged now.
    pub(super) fn take_again(&mut self) -> Option<Vec<u8>> {
        (self.then == Kept::Again).then(|| self.take_kept())
    }

    pub(super) fn take_kept(&mut self) -> Vec<u8> {
        self.then = Kept::More;
        std::mem::take(&mut self.kept)
    }

    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    pub(super) fn keep(&mut self, bytes: &[u8], then: Kept) {
        self.then = then;
        if bytes.is_empty() {
            self.kept = Vec::new();
        } else {
            self.kept.clear();
            self.kept.extend_from_slice(bytes);
        }
    }

    /// Whether nothing more is read until the other direction has moved.
    pub(super) fn waits(&self) -> bool {
        self.then == Kept::Wait
    }

    /// The other direction has moved, or the stage: what waits for that is judged again.
    pub(super) fn look_again(&mut self) {
        if !self.kept.is_empty() {
            self.then = Kept::Again;
            self.attention = true;
        }
    }

    // ===== what is to be written =====

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Whether something is judged and not written.
    pub(super) fn has_unwritten(&self) -> bool {
        self.has_out() || self.dirty || self.pipe.as_ref().is_some_and(|pipe| pipe.held() > 0)
    }

    fn has_out(&self) -> bool {
        self.written < self.out.len()
    }

    /// Writes `bytes` at once, as far as the kernel takes them; the rest is written later.
    pub(super) fn write(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Side,
        bytes: &[u8],
    ) -> io::Result<()> {
        let mut taken = 0;
        if !self.has_unwritten() && !bytes.is_empty() {
            match sink.poll_write(cx, bytes) {
                Poll::Ready(written) => {
                    taken = written?;
                    self.dirty = sink.plain().is_none();
                }
                Poll::Pending => {}
            }
        }
        self.push(&bytes[taken..]);
        Ok(())
    }

    /// Writes all that there is to be written.
    pub(super) fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut Side,
    ) -> Poll<io::Result<()>> {
        if let (Some(pipe), Some(tcp)) = (&mut self.pipe, sink.plain()) {
            ready!(pipe.poll_empty(cx, tcp))?;
        }
        if self.out.capacity() > 0 {
            while self.has_out() {
                let written = ready!(sink.poll_write(cx, &self.out[self.written..]))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.dirty = sink.plain().is_none();
                self.written += written;
            }
            self.written = 0;
            self.out = Vec::new();
        }
        if self.dirty {
            ready!(sink.poll_flush(cx))?;
            self.dirty = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Forgets what would be written: nobody is there to take it.
    pub(super) fn discard(&mut self, pool: &Pool) {
        self.out = Vec::new();
        self.written = 0;
        self.dirty = false;
        self.give_back(pool);
    }

    // ===== splicing =====

    /// Notes that `bytes` were read.
    pub(super) fn came(&mut self, bytes: usize) {
        if bytes < SMALL {
            self.streak = 0;
        } else {
            self.streak = self.streak.saturating_add(bytes as u64);
        }
    }

    /// Whether the next bytes are to be spliced, `opaque` of which may be.
    pub(super) fn is_spliced(&mut self, opaque: u64, pool: &Pool) -> bool {
        if opaque == 0 || self.copies_for_good || !self.kept.is_empty() {
            self.give_back(pool);
            return false;
        }
        if self.pipe.is_none()
            && (opaque == u64::MAX && self.streak >= STREAK || (BODY..u64::MAX).contains(&opaque))
        {
            self.pipe = pool.take();
        }
        self.pipe.is_some()
    }

    /// Moves up to `opaque` bytes into the pipe; to be followed by [`Lane::poll_written`].
    pub(super) fn poll_splice(
        &mut self,
        cx: &mut Context<'_>,
        source: &Side,
        opaque: u64,
        pool: &Pool,
    ) -> Poll<io::Result<Option<usize>>> {
        let (Some(pipe), Some(tcp)) = (&mut self.pipe, source.plain()) else {
            return Poll::Ready(Ok(None));
        };
        match pipe.poll_fill(cx, tcp, opaque) {
            Poll::Pending => {
                // Nothing flows: others may need the pipe more.
                self.give_back(pool);
                Poll::Pending
            }
            Poll::Ready(Err(error)) if super::splice::is_unsupported(&error) => {
                self.copies_for_good = true;
                self.give_back(pool);
                Poll::Ready(Ok(None))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(bytes)) => {
                self.came(bytes);
                Poll::Ready(Ok(Some(bytes)))
            }
        }
    }

    /// Gives the pipe back.
    pub(super) fn give_back(&mut self, pool: &Pool) {
        if let Some(pipe) = self.pipe.take() {
            pool.give(pipe);
        }
    }
}
