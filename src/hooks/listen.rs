//! Taking the hook port, and what to do where it cannot be had.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use rustix::io::Errno;
use thiserror::Error;
use tokio::sync::{mpsc, watch};

use crate::hooks::{Board, Limits, Notice, Server};
use crate::metrics::Metrics;
use crate::net::listen_everywhere;

/// Why the hook port could not be had.
#[derive(Debug, Error)]
pub enum BindError {
    /// Somebody else listens there.
    #[error("port {0} is taken; set tidegate.dev/hook-port (TIDEGATE_HOOK_PORT) to a free one")]
    Taken(u16),
    /// Anything else.
    #[error(
        "cannot listen on port {port}: {source}; \
         set tidegate.dev/hook-port (TIDEGATE_HOOK_PORT) to one that is allowed"
    )]
    Refused {
        /// The port.
        port: u16,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The hook port, taken; connections queue up in the kernel until [`Bound::serve`].
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    addr: SocketAddr,
    limits: Limits,
}

impl Bound {
    /// Takes `port` on all addresses; 0 lets the kernel choose.
    ///
    /// # Errors
    ///
    /// The port is taken, or the kernel refuses it.
    pub fn bind(port: u16) -> Result<Bound, BindError> {
        let refused = |source| BindError::Refused { port, source };
        let listener = listen_everywhere(port).map_err(|e| match e {
            Errno::ADDRINUSE => BindError::Taken(port),
            e => refused(e.into()),
        })?;
        let addr = listener.local_addr().map_err(refused)?;
        Ok(Bound {
            listener,
            addr,
            limits: Limits::default(),
        })
    }

    /// Serves under other limits than the default ones.
    pub fn with_limits(mut self, limits: Limits) -> Bound {
        self.limits = limits;
        self
    }

    /// The address taken: `[::]` or `0.0.0.0`, and the port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Begins to serve, on a thread of its own. `notices` should be bounded generously: a hook that
    /// finds it full waits for a place; where it is closed, every hook is answered at once.
    ///
    /// # Errors
    ///
    /// The kernel gives no thread, or no epoll instance.
    pub fn serve(
        self,
        notices: mpsc::Sender<Notice>,
        board: watch::Receiver<Board>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Server> {
        Server::start(self.listener, self.limits, notices, board, metrics)
    }
}
