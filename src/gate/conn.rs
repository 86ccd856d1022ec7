//! A connection's beginning, and which engine follows which.

use std::sync::Arc;

use tokio::net::TcpStream;

use super::counter::{Counter, Guard, Kind};
use super::detect::{Detector, Protocol};
use super::engine::Engine;
use super::listen::Mode;
use super::pump::Pump;
use super::shared::{Seat, Shared};
use super::side::Side;
use super::{h1, h2, tunnel, websocket};

/// The whole of a connection; `None` where nothing is admitted any more.
pub(super) fn begin(tcp: TcpStream, seat: Seat, mode: Mode) -> Option<Pump> {
    match mode {
        Mode::Tcp => {
            let engine = engine(&seat.shared, Protocol::Other)?;
            Some(Pump::new(seat, Side::Plain(tcp), engine, true))
        }
        Mode::Http => {
            let client = match &seat.shared.tls {
                Some(acceptor) => Side::Undecided(tcp, acceptor.clone()),
                None => Side::Plain(tcp),
            };
            let shared = seat.shared.clone();
            let detector = Detector::new(move |protocol| engine(&shared, protocol));
            Some(Pump::new(seat, client, Box::new(detector), false))
        }
    }
}

/// The engine of a protocol; `None` where nothing is admitted any more.
fn engine(shared: &Arc<Shared>, protocol: Protocol) -> Option<Box<dyn Engine>> {
    let counter = shared.counter.clone();
    Some(match protocol {
        Protocol::Http1 => Box::new(h1::Engine::new(counter, shared.links.clone())),
        Protocol::Http2 => Box::new(h2::Engine::new(counter)),
        Protocol::Other => Box::new(tunnel::Engine::new(counter.admit(Kind::Tunnel)?)),
    })
}

/// Where HTTP/1 connections lead to, with the counter of what then begins in them.
#[derive(Debug)]
pub struct Links(pub Counter);

impl h1::Links for Links {
    fn websocket(&self, guard: Guard) -> Box<dyn Engine> {
        Box::new(websocket::Engine::new(guard))
    }

    fn h2c(&self, guard: Guard) -> Box<dyn Engine> {
        Box::new(h2::Engine::upgraded(self.0.clone(), guard))
    }

    fn tunnel(&self, guard: Guard) -> Box<dyn Engine> {
        Box::new(tunnel::Engine::new(guard))
    }
}
