//! HTTP/1 in the gate: which bytes are a request or a reply, and nothing more than that. Pure.
//!
//! What two readers could read in two ways is a [`Doubt`]: from there on the connection is a tunnel,
//! which passes untouched and counts as one thing in flight until it closes.

mod answer;
mod engine;
pub mod scan;

#[cfg(test)]
mod tests;

pub use engine::{Engine, Links, OUTSTANDING_MAX};
pub use scan::Doubt;
