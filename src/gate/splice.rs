//! `splice(2)` between two sockets: pages go through a pipe of the kernel's and never come here.
//!
//! Pipes are pooled and few, since a user may own only so many pages of them; a pipe is borrowed while
//! bytes flow, and is empty when it comes back. `SPLICE_F_MORE` is never said: it can hold the last
//! bytes back for 200 ms.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What a pipe holds, in bytes.
const PIPE: usize = 256 * 1024;

/// The pipes of a gate.
pub(super) struct Pool {
    limit: usize,
    pipes: Mutex<Pipes>,
}

#[derive(Default)]
struct Pipes {
    idle: Vec<Ends>,
    made: usize,
}

struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe that is borrowed.
pub(super) struct Pipe {
    ends: Ends,
    /// Bytes in it.
    held: usize,
}

impl Pool {
    pub(super) fn new(limit: usize) -> Pool {
        Pool {
            limit,
            pipes: Mutex::default(),
        }
    }

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty pipe, if one can be had.
    pub(super) fn take(&self) -> Option<Pipe> {
        let mut pipes = self.pipes();
        if let Some(ends) = pipes.idle.pop() {
            return Some(Pipe { ends, held: 0 });
        }
        if pipes.made >= self.limit {
            return None;
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        // Refused over the user's limit of pages, and then copying is cheaper than a small pipe.
        fcntl_setpipe_size(&write, PIPE).ok()?;
        pipes.made += 1;
        Some(Pipe {
            ends: Ends { read, write },
            held: 0,
        })
    }

    /// Takes a pipe back; one that is not empty is closed.
    pub(super) fn give(&self, pipe: Pipe) {
        let mut pipes = self.pipes();
        if pipe.held == 0 {
            pipes.idle.push(pipe.ends);
        } else {
            pipes.made -= 1;
        }
    }

    /// How many pipes there are, and how many of them are borrowed.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let pipes = self.pipes();
        (pipes.made, pipes.made - pipes.idle.len())
    }
}

impl Pipe {
    /// How many bytes it holds.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Moves up to `most` bytes from `source` into the pipe, which is empty; 0 at the end.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        source: &TcpStream,
        most: u64,
    ) -> Poll<io::Result<usize>> {
        let most = usize::try_from(most).map_or(PIPE, |most| most.min(PIPE));
        let ends = &self.ends;
        loop {
            ready!(source.poll_read_ready(cx))?;
            match source.try_io(Interest::READABLE, || moved(source, &ends.write, most)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(bytes) => {
                    self.held += bytes;
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Moves all that the pipe holds into `sink`.
    pub(super) fn poll_empty(
        &mut self,
        cx: &mut Context<'_>,
        sink: &TcpStream,
    ) -> Poll<io::Result<()>> {
        while self.held > 0 {
            ready!(sink.poll_write_ready(cx))?;
            let (ends, held) = (&self.ends, self.held);
            match sink.try_io(Interest::WRITABLE, || moved(&ends.read, sink, held)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => self.held -= bytes,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

fn moved(
    from: impl std::os::fd::AsFd,
    to: impl std::os::fd::AsFd,
    most: usize,
) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::io::retry_on_intr(|| {
        splice(&from, None, &to, None, most, flags)
    })?)
}

/// Whether the kernel does not splice these sockets at all, so that they are to be copied for good.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INVAL)
}
