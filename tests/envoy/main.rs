//! Tests on a real Envoy, configured as istio-proxy's would be, each in a network namespace of its
//! own: run them by `./test envoy`, as root.
//!
//! [`pod`] is the pod that most of them run in; [`manifest`], [`netns`], [`envoy`], [`sidecar`], [`tap`],
//! [`client`], [`wait`] and [`end`] are what it is made of and seen by; the other modules are tests.

mod agents;
mod bootstrap;
mod client;
mod deadline;
mod end;
mod envoy;
mod faults;
mod http;
mod injected;
mod late;
mod manifest;
#[path = "../support/netns.rs"]
mod netns;
mod pod;
mod reports;
mod restart;
mod sidecar;
mod signals;
mod smoke;
mod streams;
mod tap;
#[path = "../support/tied.rs"]
mod tied;
mod traffic;
#[path = "../support/wait.rs"]
mod wait;
