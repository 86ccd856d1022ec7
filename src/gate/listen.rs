//! Taking the gate's ports, and what to do where they cannot be had.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use thiserror::Error;
use tokio_rustls::{TlsAcceptor, rustls};

use super::limits::Limits;
use super::server::Gate;
use super::tls::{self, Tls};
use crate::certs::{CertError, Store};
use crate::metrics::Metrics;
use crate::net::listen_everywhere;

/// What the gate understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// HTTP/1, HTTP/2 and what they are upgraded to; everything else is a tunnel, once its client has
    /// said something.
    Http,
    /// Tunnels, from the moment that a client connects: also where the workload speaks first.
    Tcp,
}

/// One port, and where its connections lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// The port taken, on all addresses; 0 lets the kernel choose.
    pub listen: u16,
    /// The workload.
    pub upstream: SocketAddr,
}

/// What a gate is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GateConfig {
    /// What it understands.
    pub mode: Mode,
    /// Its ports.
    pub routes: Vec<Route>,
    /// How it ends TLS; without it, and in [`Mode::Tcp`], TLS passes as a tunnel.
    pub tls: Option<Tls>,
    /// What it gives to anybody.
    pub limits: Limits,
    /// How long the closing of idle connections is spread, from [`Stage::Draining`] on.
    ///
    /// [`Stage::Draining`]: super::engine::Stage::Draining
    pub announce: Duration,
}

/// Why there can be no gate.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody else listens there.
    #[error(
        "the gate's port {0} is taken; see that queue-proxy was moved (QUEUE_SERVING_PORT), or set \
         tidegate.dev/gate (TIDEGATE_GATE) to off"
    )]
    Taken(u16),
    /// Anything else.
    #[error(
        "the gate cannot listen on port {port}: {source}; set tidegate.dev/gate (TIDEGATE_GATE) to off"
    )]
    Refused {
        /// The port.
        port: u16,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no certificate to end TLS with.
    #[error("the gate cannot end TLS: {0}")]
    Certificate(CertError),
    /// TLS cannot be set up.
    #[error("the gate cannot set TLS up: {0}")]
    Tls(#[from] rustls::Error),
}

/// The gate's ports, taken; connections queue up in the kernel until [`Bound::serve`].
pub struct Bound {
    pub(super) config: GateConfig,
    pub(super) listeners: Vec<(TcpListener, SocketAddr)>,
    pub(super) tls: Option<(TlsAcceptor, Store)>,
    addrs: Vec<SocketAddr>,
}

impl Bound {
    /// Takes the ports and reads the certificate.
    ///
    /// # Errors
    ///
    /// A port is taken, or the kernel refuses it; the certificate cannot be served.
    pub fn bind(config: &GateConfig) -> Result<Bound, BindError> {
        let tls = config.tls.as_ref().filter(|_| config.mode == Mode::Http);
        let tls = tls.map(tls::open).transpose()?;
        let mut listeners = Vec::new();
        let mut addrs = Vec::new();
        for route in &config.routes {
            let port = route.listen;
            let refused = |source| BindError::Refused { port, source };
            let listener = listen_everywhere(port).map_err(|errno| match errno {
                Errno::ADDRINUSE => BindError::Taken(port),
                errno => refused(errno.into()),
            })?;
            inherit(&listener, &config.limits).map_err(|errno| refused(errno.into()))?;
            addrs.push(listener.local_addr().map_err(refused)?);
            listeners.push((listener, route.upstream));
        }
        Ok(Bound {
            config: config.clone(),
            listeners,
            tls,
            addrs,
        })
    }

    /// The addresses taken, in the order of the routes: `[::]` or `0.0.0.0`, and the port.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// Begins to serve, on a thread of its own.
    ///
    /// # Errors
    ///
    /// The kernel gives no thread, or no epoll instance.
    pub fn serve(self, metrics: &Arc<Metrics>) -> io::Result<Gate> {
        Gate::start(self, metrics)
    }
}

/// Sets what accepted sockets inherit, so that it is set once.
fn inherit(listener: &TcpListener, limits: &Limits) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(listener, true)?;
    sockopt::set_socket_keepalive(listener, true)?;
    sockopt::set_tcp_keepidle(listener, limits.keepalive.max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(listener, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(listener, 3)
}
