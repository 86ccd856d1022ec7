//! Injection, from outside: whole pods, what Istio's webhook does in between, and the command.

mod by_hand;
mod command;
mod fixtures;
mod istio;
#[path = "../support/pods.rs"]
mod pods;
mod properties;
