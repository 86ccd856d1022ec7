//! Taking a port: both address families by one socket where the node has both.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// A thousand connections may come in the same millisecond; the kernel caps it at net.core.somaxconn.
pub(super) const BACKLOG: i32 = 4096;

/// Takes `port` on all addresses, not blocking; 0 lets the kernel choose.
pub(crate) fn listen_everywhere(port: u16) -> Result<TcpListener, Errno> {
    listen(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).or_else(|e| match e {
        // No IPv6 on this node, or none that takes IPv4 as well.
        Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::NOPROTOOPT => {
            listen(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))
        }
        e => Err(e),
    })
}

fn listen(addr: SocketAddr) -> Result<TcpListener, Errno> {
    let family = match addr {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    // A restarted process finds its predecessor's connections in TIME_WAIT.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}
