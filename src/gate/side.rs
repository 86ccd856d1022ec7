//! One end of a connection: a client, plain or over TLS, or the workload.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// What a TLS connection begins with: a handshake record (RFC 8446, section 5.1). No method of HTTP
/// does.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

type Connecting = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

pub(super) enum Side {
    Plain(TcpStream),
    /// The first byte says whether it is TLS.
    Undecided(TcpStream, TlsAcceptor),
    Handshaking(Box<Accept<TcpStream>>),
    Tls(Box<TlsStream<TcpStream>>),
    /// Nobody is connected to yet.
    Absent,
    Connecting(Connecting),
    Gone,
}

impl Side {
    /// Begins to connect.
    pub(super) fn connect(to: SocketAddr, within: Duration) -> Side {
        Side::Connecting(Box::pin(async move {
            let tcp = timeout(within, TcpStream::connect(to)).await??;
            tcp.set_nodelay(true)?;
            Ok(tcp)
        }))
    }

    /// The socket, where bytes may pass it unseen.
    pub(super) fn plain(&self) -> Option<&TcpStream> {
        match self {
            Side::Plain(tcp) => Some(tcp),
            _ => None,
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Side::Plain(tcp) | Side::Undecided(tcp, _) => Some(tcp),
            Side::Handshaking(accept) => accept.get_ref(),
            Side::Tls(tls) => Some(tls.get_ref().0),
            Side::Absent | Side::Connecting(_) | Side::Gone => None,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Side::Absent)
    }

    /// Whether a TLS handshake is under way.
    pub(super) fn is_handshaking(&self) -> bool {
        matches!(self, Side::Handshaking(_))
    }

    /// Whether the kernel has bytes from this side that nobody has read, or its end: what the reactor
    /// has not told yet, too.
    pub(super) fn has_unread(&self) -> bool {
        let Some(tcp) = self.tcp() else { return false };
        let peek = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(tcp, &mut [0; 1][..], peek).is_ok()
    }

    /// Closes so that the peer learns that something is missing: by a reset.
    pub(super) fn abort(&mut self) {
        if let Some(tcp) = self.tcp() {
            // If it fails, the peer learns by the missing rest only.
            let _ = tcp.set_zero_linger();
        }
        *self = Side::Gone;
    }

    /// Comes as far as bytes can be read and written; pending while there is nobody.
    pub(super) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            *self = match self {
                Side::Plain(_) | Side::Tls(_) => return Poll::Ready(Ok(())),
                Side::Absent => return Poll::Pending,
                Side::Gone => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                Side::Connecting(connecting) => Side::Plain(ready!(connecting.as_mut().poll(cx))?),
                Side::Handshaking(accept) => {
                    Side::Tls(Box::new(ready!(Pin::new(accept.as_mut()).poll(cx))?))
                }
                Side::Undecided(tcp, _) => {
                    let mut first = [0; 1];
                    let read = ready!(tcp.poll_peek(cx, &mut ReadBuf::new(&mut first)))?;
                    let Side::Undecided(tcp, acceptor) = std::mem::replace(self, Side::Gone) else {
                        continue;
                    };
                    if read == 1 && first[0] == TLS_HANDSHAKE {
                        Side::Handshaking(Box::new(acceptor.accept(tcp)))
                    } else {
                        Side::Plain(tcp)
                    }
                }
            }
        }
    }

    /// Reads; 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        into: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        let mut buf = ReadBuf::new(into);
        match self {
            Side::Plain(tcp) => ready!(Pin::new(tcp).poll_read(cx, &mut buf))?,
            Side::Tls(tls) => match ready!(Pin::new(tls).poll_read(cx, &mut buf)) {
                // Many close without a close_notify; the engine knows whether something is missing.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                read => read?,
            },
            _ => return Poll::Pending,
        }
        Poll::Ready(Ok(buf.filled().len()))
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_open(cx))?;
        match self {
            Side::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Side::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
            _ => Poll::Pending,
        }
    }

    /// Returns once the kernel has all that was written.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Side::Tls(tls) => Pin::new(tls).poll_flush(cx),
            _ => Poll::Ready(Ok(())),
        }
    }

    /// Closes our half.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Side::Plain(tcp) | Side::Undecided(tcp, _) => Pin::new(tcp).poll_shutdown(cx),
            Side::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Side::Connecting(_) => {
                ready!(self.poll_open(cx))?;
                self.poll_shutdown(cx)
            }
            Side::Handshaking(_) | Side::Absent | Side::Gone => Poll::Ready(Ok(())),
        }
    }
}
