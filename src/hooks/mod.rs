//! The plaintext port outside Envoy's interception, served on a thread and runtime of its own.
//!
//! | endpoint | who | what |
//! |---|---|---|
//! | `GET /wait-for-drain[?container=NAME]` | kubelet | silent until release, then 200 |
//! | `GET /released` | `pilot-agent wait` | 200 once the proxy may go; 503 where that does not come soon |
//! | `GET /readyz`, `/livez` | probes | 200, or 503 once a drain has begun (`/readyz`) |
//! | `GET /metrics`, `/status` | Prometheus, people | |
//! | `POST /drain` | loopback peers only | the trigger |
//!
//! Everything else is 404, a wrong verb 405, a request with a body 413: none is ever read. Nobody
//! on the network can hold more than [`Limits`] allows, and what it can do cannot be a trigger.

use tokio::sync::oneshot;

use crate::drain::{HookId, Phase};

mod conn;
mod limits;
mod listen;
mod routes;
mod server;
#[cfg(test)]
mod tests;

pub use limits::Limits;
pub use listen::{BindError, Bound};
pub use server::Server;

/// What the server tells the driver.
#[derive(Debug)]
pub enum Notice {
    /// A hook asks to be held; `answer` ends the hold with 200.
    Opened {
        /// Its number, unique in this process.
        hook: HookId,
        /// The `container` query parameter, empty where there is none.
        container: String,
        /// Sent or dropped: the hook is answered.
        answer: oneshot::Sender<()>,
    },
    /// The waiter hung up before it was answered.
    Closed {
        /// The number it was opened under.
        hook: HookId,
    },
    /// `POST /drain` from a loopback peer.
    Drain,
    /// `/released` was asked for by a loopback peer, as istio-proxy's preStop does; what the network
    /// asks is answered and not told. Not told either where the driver is too busy to take it.
    ReleasedPolled {
        /// Whether the answer was 200.
        released: bool,
    },
}

/// What the driver tells the server.
#[derive(Clone, Debug)]
pub struct Board {
    /// The phase.
    pub phase: Phase,
    /// What `/readyz` answers.
    pub ready: bool,
    /// What `/released` answers.
    pub proxy_released: bool,
    /// The body of `/status`.
    pub status: std::sync::Arc<serde_json::Value>,
}
