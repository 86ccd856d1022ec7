//! Accepting connections: what fails for the peer's sake, what for lack of something here, and whom
//! the kernel has promised one.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::coop;
use tokio::time::sleep;

use super::listen::BACKLOG;

/// The next connection. An `accept` that fails for lack of something, descriptors say, is tried
/// again after `backoff` and logged once until it succeeds again; `starved` remembers that between
/// calls. Dropping the future loses no connection.
pub(crate) async fn accept(
    listener: &TcpListener,
    backoff: Duration,
    starved: &mut bool,
) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => {
                *starved = false;
                return accepted;
            }
            Err(error) if is_the_peers(&error) => {}
            Err(error) => {
                if !*starved {
                    *starved = true;
                    let port = listener.local_addr().map_or(0, |addr| addr.port());
                    tracing::warn!(%error, port, "cannot accept connections");
                }
                sleep(backoff).await;
            }
        }
    }
}

/// Takes what is in the kernel's queue, and then closes the port: whoever is in the queue has been
/// promised a connection by its handshake.
pub(crate) async fn drain_backlog(
    listener: TcpListener,
    mut admit: impl FnMut(TcpStream, SocketAddr),
) {
    tokio::task::yield_now().await;
    for _ in 0..BACKLOG {
        let next = coop::unconstrained(poll_fn(|cx| match listener.poll_accept(cx) {
            Poll::Ready(accepted) => Poll::Ready(accepted.ok()),
            Poll::Pending => Poll::Ready(None),
        }));
        let Some((tcp, peer)) = next.await else { break };
        admit(tcp, peer);
    }
}

/// Whether `accept` failed because of the connection that it would have been (accept(2) passes
/// its pending network errors on), not for lack of anything here.
pub(crate) fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionAborted
            | Kind::ConnectionReset
            | Kind::Interrupted
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::PermissionDenied
    )
}

/// Each connection is an open file, and some nodes start containers with a soft limit of 1,024.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}
