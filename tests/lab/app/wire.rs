//! What app and client agree on: the content of bodies, their checksum, and the clock.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

pub(crate) use tidegate::standin::body::pattern;

/// The longest piece of a body.
const PIECE: u64 = 64 * 1024;
/// The size of a piece of `/chunked`.
pub(crate) const CHUNK: u64 = 1_000;
/// The size of a tick of `/stream`.
pub(crate) const TICK: u64 = 16;
/// The largest body.
pub(crate) const BYTES_MAX: u64 = 1 << 30;

/// CLOCK_REALTIME in milliseconds since 1970; 0 where the clock is before that.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A runtime on this thread.
pub(crate) fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime; raise the container's limit of open files")
}

/// What an upload is answered with.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) bytes: u64,
    /// Of [`Checksum::hex`].
    pub(crate) checksum: String,
}

/// FNV-1a of 64 bits, fed piece by piece, with the length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checksum {
    state: u64,
    pub(crate) bytes: u64,
}

impl Checksum {
    pub(crate) fn new() -> Checksum {
        Checksum {
            state: 0xcbf2_9ce4_8422_2325,
            bytes: 0,
        }
    }

    /// Of the first `bytes` bytes of the pattern that every body here is made of.
    pub(crate) fn of_pattern(bytes: u64) -> Checksum {
        let mut checksum = Checksum::new();
        for piece in pieces(bytes, PIECE) {
            checksum.feed(&piece);
        }
        checksum
    }

    pub(crate) fn feed(&mut self, piece: &[u8]) {
        for byte in piece {
            self.state = (self.state ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.bytes += piece.len() as u64;
    }

    pub(crate) fn hex(self) -> String {
        format!("{:016x}", self.state)
    }
}

/// The pattern's first `bytes` bytes in pieces of `size`, and of [`PIECE`] at most.
pub(crate) fn pieces(bytes: u64, size: u64) -> impl Iterator<Item = Bytes> + Send {
    let size = size.clamp(1, PIECE);
    let count = bytes.div_ceil(size);
    (0..count).map(move |n| {
        let from = n * size;
        // At most PIECE, which any usize holds.
        pattern(from, size.min(bytes - from) as usize)
    })
}
