//! What is in flight: one file a source, each a pure parser. The I/O that feeds them is in
//! `run::poll`.
//!
//! A source that cannot be read is [`Reading::Unknown`], a value of its own and never zero.

pub mod envoy;
pub mod queue;
pub mod sockets;
pub mod upgrades;

/// A source of what is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Envoy's inbound clusters.
    Envoy,
    /// queue-proxy's own report.
    QueueProxy,
    /// The kernel's table of sockets.
    Sockets,
    /// The gate's own count.
    Gate,
}

impl Source {
    /// All sources, in order.
    pub const ALL: [Source; 4] = [
        Source::Envoy,
        Source::QueueProxy,
        Source::Sockets,
        Source::Gate,
    ];

    /// The source's name in metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Source::Envoy => "envoy",
            Source::QueueProxy => "queue-proxy",
            Source::Sockets => "sockets",
            Source::Gate => "gate",
        }
    }
}

/// One look at a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reading<T> {
    /// The source answered.
    Known(T),
    /// The source did not answer, or answered something that cannot be believed.
    Unknown(Cause),
}

impl<T: Copy> Reading<T> {
    /// What the source said, if it could be read.
    pub fn known(&self) -> Option<T> {
        match *self {
            Reading::Known(value) => Some(value),
            Reading::Unknown(_) => None,
        }
    }
}

/// Why a source is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Nobody listens: the process behind it is gone, or never was.
    Refused,
    /// No whole answer within the time limit.
    Timeout,
    /// The connection broke before the answer was whole.
    Broken,
    /// An HTTP status other than 200.
    Status,
    /// An answer that does not parse, or is empty where it cannot be.
    Malformed,
    /// The source answers, and does not show this.
    Hidden,
}

/// What Envoy says of its inbound clusters (`GET /clusters`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EnvoyRequests {
    /// HTTP requests, WebSockets and TCP sessions in flight now: the sum of `rq_active`.
    pub active: u64,
    /// All that ever arrived: the sum of `rq_total`. Restarts from zero with Envoy.
    pub total: u64,
}

/// What Envoy says of upgraded connections (`GET /stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct EnvoyUpgrades {
    /// WebSockets and other upgraded connections that came in and are open now.
    pub active: u64,
}

/// What queue-proxy says of the last whole second (`GET :9090/metrics`).
///
/// It answers with a report that it renews once a second, so a reading lags by up to two seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct QueueRequests {
    /// Requests in flight, rounded up; 0 where the report shows that the last one has ended.
    pub active: u64,
    /// Requests that arrived within the report's second, rounded up. Probes are not among them.
    pub arrived: u64,
    /// Which report this is: queue-proxy's uptime when it was made, in milliseconds.
    pub report: u64,
}

/// What the gate has counted. It is exact, and always known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GateRequests {
    /// In flight now, bytes that are still to be written included.
    pub active: u64,
    /// Those among them that queue-proxy would cut: h2 streams, upgraded connections and tunnels.
    pub streams: u64,
    /// All that ever arrived.
    pub total: u64,
}

/// What the kernel says of the pod's TCP sockets (`/proc/net/tcp` and `tcp6`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sockets {
    /// Workload ports that LISTEN.
    pub listening: u32,
    /// ESTABLISHED connections to workload ports, idle keep-alives among them.
    pub established: u32,
    /// Bytes in the send queues of inbound connections: not yet acknowledged by the peer.
    pub unsent: u64,
}

impl Sockets {
    /// Whether the workload is gone: no port listens, and no connection to one is open.
    pub fn workload_gone(&self) -> bool {
        self.listening == 0 && self.established == 0
    }
}
