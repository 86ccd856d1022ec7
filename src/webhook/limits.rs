//! How much the webhook gives to anybody.

use std::time::Duration;

/// Bounds of the webhook's ports; the defaults are what `tidegate webhook` uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the opening of a connection until its TLS handshake is done.
    pub handshake: Duration,
    /// How long a client may keep a connection for its next request. The API server gives idle ones
    /// up after 90 s; it must be the first to, or its next request meets our close.
    pub idle: Duration,
    /// From a request's first byte until its head is whole.
    pub head: Duration,
    /// From a request's whole head until its answer is known: its body, and the review. The API
    /// server waits no longer than the configuration's timeoutSeconds.
    pub request: Duration,
    /// From the first byte of an answer that the kernel will not take until it has taken all.
    pub write: Duration,
    /// How long a connection that we end stays half open for its peer to take the answer.
    pub linger: Duration,
    /// The wait after an `accept` that failed for lack of something, descriptors say.
    pub accept_backoff: Duration,
    /// Bytes of a request's head, request line included; more is answered with 431.
    pub head_bytes: usize,
    /// Fields of a request's head; more is answered with 431.
    pub headers: usize,
    /// Bytes of a review; more is answered with 413. What the API server takes as a request itself.
    pub body_bytes: usize,
    /// Bytes of all reviews that are being read at once; more wait.
    pub bodies_bytes: usize,
    /// Connections for reviews at once; more are closed.
    pub connections: usize,
    /// Connections to the health port at once; more are closed.
    pub health_connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(5),
            idle: Duration::from_secs(120),
            head: Duration::from_secs(5),
            request: Duration::from_secs(5),
            write: Duration::from_secs(5),
            linger: Duration::from_millis(250),
            accept_backoff: Duration::from_millis(50),
            head_bytes: 16 * 1024,
            headers: 64,
            body_bytes: 3 << 20,
            bodies_bytes: 24 << 20,
            connections: 1024,
            health_connections: 64,
        }
    }
}
