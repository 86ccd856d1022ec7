//! How much the gate gives to anybody.

use std::time::Duration;

/// Bounds of the gate; the defaults are what `tidegate run` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, each with its own to the workload; more are closed without a word.
    pub connections: usize,
    /// From the first byte of a request's head, or of a TLS handshake, until it is whole.
    pub head: Duration,
    /// How long a client may keep a connection for its next request. Clients that keep connections
    /// for reuse must be the first to give them up, or their next request meets our close; Envoy does
    /// so after an hour.
    pub idle: Duration,
    /// How long the workload may take to accept a connection.
    pub connect: Duration,
    /// How long a connection that we end stays half open for its peer to take what was sent, and how
    /// long the workload has to take the rest of what its client sent.
    pub linger: Duration,
    /// How long a client may be silent before the kernel asks whether it is still there.
    pub keepalive: Duration,
    /// The wait after an `accept` that failed for lack of something, descriptors say.
    pub accept_backoff: Duration,
    /// Pipes for `splice(2)` at once, 256 KiB each; connections beyond them are copied. A user may
    /// have 64 MiB of pipes (`pipe-user-pages-soft`).
    pub pipes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            head: Duration::from_secs(10),
            // Longer than Envoy's hour, so that Envoy is first.
            idle: Duration::from_secs(3660),
            connect: Duration::from_secs(5),
            linger: Duration::from_secs(1),
            keepalive: Duration::from_secs(60),
            accept_backoff: Duration::from_millis(50),
            pipes: 128,
        }
    }
}
