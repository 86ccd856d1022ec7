//! Stand-ins for what surrounds Tidegate in a pod, on loopback, in one process: for the demo and
//! for tests without a cluster.
//!
//! | module | models |
//! |---|---|
//! | [`app`] | a user container: HTTP/1.1, h2c, upgrades, raw TCP, three manners on SIGTERM |
//! | [`queue_proxy`] | Knative's queue-proxy: its quiet timer, probes, metrics and order of closing |
//! | [`envoy`] | the inbound half of istio-proxy's Envoy and its admin interface |
//! | [`real_envoy`] | not a stand-in: starts a real Envoy with a matching bootstrap |
//! | [`agent`] | pilot-agent: its SIGTERM, `/drain`, `/quitquitquit`, rewritten hooks, `wait` |
//! | [`kubelet`] | the end of a pod: hooks, signals, order, grace period |
//! | [`front`] | a faulty path to any of them: hangs, resets, garbage |
//! | [`load`] | clients that count what is lost |
//!
//! Each is started alone with `start(config)`, listens where it is told to (port 0 lets the kernel
//! choose) and is a [`Process`]: it can be sent SIGTERM, and killed so that every socket closes at
//! once. Every [`std::time::Duration`] in a configuration is modelled time; a [`Scale`] turns it
//! into what is really waited.

pub mod agent;
pub mod app;
pub mod body;
pub mod client;
mod drainer;
pub mod envoy;
mod forward;
pub mod front;
mod gauge;
pub mod kubelet;
pub mod load;
pub mod process;
pub mod queue_proxy;
pub mod real_envoy;
mod server;
mod stat;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

pub use process::{Exit, How, Process, Scope};

/// A loopback address whose port the kernel chooses.
pub const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How much faster than the real thing a stand-in lives: one factor for every modelled constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl Scale {
    /// As the real thing.
    pub const REAL: Scale = Scale(1.0);

    /// A factor between 0.0001 and 1; what lies outside is brought inside.
    pub fn new(factor: f64) -> Scale {
        if factor.is_nan() {
            Scale::REAL
        } else {
            Scale(factor.clamp(1e-4, 1.0))
        }
    }

    /// What is really waited for a modelled duration.
    pub fn real(self, modelled: Duration) -> Duration {
        modelled.mul_f64(self.0)
    }

    /// What a real duration stands for.
    pub fn modelled(self, real: Duration) -> Duration {
        real.div_f64(self.0)
    }

    /// The factor.
    pub fn factor(self) -> f64 {
        self.0
    }
}
