//! How much the hook port gives to anybody.

use std::time::Duration;

/// Bounds of the hook server; the defaults are what `tidegate run` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the opening of a connection, or the end of its last answer, until the next request's
    /// head is whole. It ends slow heads and idle keep-alives alike.
    pub header_read: Duration,
    /// From the first byte of an answer that the kernel will not take until it has taken all.
    pub write: Duration,
    /// How long a connection that we end stays half open for its peer to take the answer: closing
    /// with unread bytes would reset it.
    pub linger: Duration,
    /// How long `/released` waits for the release before it says no. `pilot-agent wait` gives up on a
    /// request after 500 ms, unless it is told otherwise.
    pub poll: Duration,
    /// How long `POST /drain` waits for a place in the driver's queue.
    pub queue: Duration,
    /// The wait after an `accept` that failed for lack of something, descriptors say.
    pub accept_backoff: Duration,
    /// Bytes of a request's head, request line included; more is answered with 431.
    pub head_bytes: usize,
    /// Fields of a request's head; more is answered with 431.
    pub headers: usize,
    /// Connections at once; more are answered with 503.
    pub connections: usize,
    /// Connections on top of `connections` for the pod's own processes, so that `tidegate drain`
    /// and the probes always get in.
    pub reserve: usize,
    /// Connections that are being told 503 at once; more are closed without a word.
    pub refusals: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            header_read: Duration::from_secs(5),
            write: Duration::from_secs(10),
            linger: Duration::from_millis(250),
            poll: Duration::from_millis(350),
            queue: Duration::from_secs(1),
            accept_backoff: Duration::from_millis(50),
            head_bytes: 8 * 1024,
            headers: 64,
            connections: 4096,
            reserve: 64,
            refusals: 64,
        }
    }
}
