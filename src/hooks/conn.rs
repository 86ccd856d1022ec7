//! One connection to the hook port, from its first byte to its last.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::TokioTimer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::hooks::Limits;
use crate::hooks::routes::{self, App};
use crate::net::{self, Stream};

/// The answer to a connection for which there is no place.
const NO_PLACE: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A process of the pod itself.
    Pod,
    /// The network, or something that cannot be told from it.
    Network,
}

impl Origin {
    /// Istio's Envoy reaches the pod's ports from 127.0.0.6, a loopback address, so what came
    /// through the network may carry such a source: only the two addresses that a process of the
    /// pod gets when it connects to localhost count, and only on a loopback address of ours.
    pub(super) fn of(peer: SocketAddr, local: Option<SocketAddr>) -> Origin {
        let peer = peer.ip().to_canonical();
        let own = [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            IpAddr::from(Ipv6Addr::LOCALHOST),
        ];
        match local {
            Some(local) if own.contains(&peer) && local.ip().to_canonical().is_loopback() => {
                Origin::Pod
            }
            _ => Origin::Network,
        }
    }
}

/// Serves one connection until it ends, or until the server finishes and it has nothing to say.
pub(super) async fn serve(tcp: TcpStream, origin: Origin, app: Arc<App>) {
    let limits = app.limits;
    let answer = |request| routes::answer(&app, origin, request);
    let stream = Stream::new(tcp, limits.write);
    let stream = net::serve(&builder(&limits), stream, answer, app.finishing()).await;
    net::linger(stream.into_inner(), limits.linger).await;
}

/// Tells a connection that there is no place for it.
pub(super) async fn refuse(mut tcp: TcpStream, limits: Limits) {
    if let Ok(Ok(())) = timeout(limits.linger, tcp.write_all(NO_PLACE)).await {
        net::linger(tcp, limits.linger).await;
    }
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_read)
        .max_header_size(limits.head_bytes)
        // hyper panics below 8 KiB.
        .max_buf_size(limits.head_bytes.max(8 * 1024))
        .max_headers(limits.headers);
    builder
}
