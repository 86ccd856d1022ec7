//! A proxy of the harness: it relays bytes and knows nothing of them. It stands in for the gate, to
//! tell the gate's doing from the harness's, and misbehaves where the harness is to notice.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manners {
    /// It passes as it is, half-closed or broken too.
    Transparent,
    /// The first end that comes ends both directions.
    ClosesBothWays,
    /// A break becomes a proper end.
    HidesResets,
}

/// A running relay, ended when dropped with all its connections.
pub(crate) struct Relay {
    tasks: JoinSet<()>,
}

impl Relay {
    /// Listens on one port of this namespace and passes what comes to another.
    pub(crate) async fn start(listen: u16, upstream: u16, manners: Manners) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", listen)).await;
        let listener = listener.expect("a port of the namespace");
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, upstream, manners));
        Relay { tasks }
    }

    /// Ends it, and waits until its ports are free.
    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
    }
}

async fn accept(listener: TcpListener, upstream: u16, manners: Manners) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(async move {
            // A client whose upstream is not there is hung up on.
            if let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await {
                pass(client, server, manners).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Passes both directions until both have ended, or one breaks.
async fn pass(mut client: TcpStream, mut server: TcpStream, manners: Manners) {
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let broke = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let up = copy(from_client, to_server);
        let down = copy(from_server, to_client);
        if manners == Manners::ClosesBothWays {
            tokio::select! {
                up = up => up.is_err(),
                down = down => down.is_err(),
            }
        } else {
            tokio::try_join!(up, down).is_err()
        }
    };
    if broke && manners != Manners::HidesResets {
        let _ = (client.set_zero_linger(), server.set_zero_linger());
    }
}

async fn copy(mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
    }
}
