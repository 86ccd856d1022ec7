//! Tidegate drains a Knative pod in an Istio mesh: every request in flight finishes, and the pod
//! goes as soon as the last byte has left.
//!
//! The binary is a thin shell over this library. `drain` holds the pure state machine, `inflight`
//! the pure parsers of what is in flight; `run` wires them to sockets, signals and Envoy.

mod certs;
pub mod cli;
pub mod config;
pub mod control;
#[cfg(feature = "stand-ins")]
pub mod demo;
pub mod drain;
pub mod envoy;
pub mod exit;
pub mod fetch;
pub mod gate;
pub mod hooks;
pub mod inflight;
pub mod inject;
pub mod install;
pub mod metrics;
mod net;
pub mod report;
pub mod run;
pub mod signals;
#[cfg(feature = "stand-ins")]
pub mod standin;
pub mod telemetry;
pub mod webhook;
