//! Calls to Envoy's admin interface and to pilot-agent, each bounded in time and size.

pub mod admin;
pub mod agent;
pub mod backoff;
pub mod http;
pub mod version;

pub use admin::Admin;
pub use agent::Agent;
pub use backoff::Backoff;
pub use http::{CALL_TIMEOUT, CallError, Client};
pub use version::Version;
