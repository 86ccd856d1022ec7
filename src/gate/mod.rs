//! The gate: an optional proxy between Envoy and queue-proxy that forwards bytes as they are and
//! knows exactly what is in flight.
//!
//! A connection is an [`engine::Engine`], which is pure, driven by a pump, which does the I/O. All
//! connections share one thread; each has one connection to the workload, and one task.

mod conn;
pub mod counter;
pub mod detect;
pub mod engine;
pub mod h1;
pub mod h2;
mod lane;
mod limits;
mod listen;
mod metrics;
mod pump;
#[cfg(test)]
mod rig;
mod roster;
mod server;
mod shared;
mod side;
mod splice;
#[cfg(test)]
mod tests;
mod tls;
pub mod tunnel;
pub mod websocket;

pub use conn::Links;
pub use limits::Limits;
pub use listen::{BindError, Bound, GateConfig, Mode, Route};
pub(crate) use metrics::Slot;
pub use server::Gate;
pub use tls::Tls;

/// What the counter is made of; its proof under loom has its own.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering};
    pub(super) use std::sync::{Arc, Mutex};
}
