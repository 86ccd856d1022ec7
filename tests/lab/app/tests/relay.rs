//! A path to a server that tells how many bytes have gone through it.

use std::net::SocketAddr;

use tidegate::standin::ANY_PORT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::LIMIT;
use super::wait::within;

/// A relay of one connection.
pub(super) struct Relay {
    pub(super) addr: SocketAddr,
    to_server: watch::Receiver<u64>,
    to_client: watch::Receiver<u64>,
}

impl Relay {
    pub(super) async fn start(server: SocketAddr) -> Relay {
        let listener = TcpListener::bind(ANY_PORT).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (up, to_server) = watch::channel(0);
        let (down, to_client) = watch::channel(0);
        tokio::spawn(async move {
            let (client, _) = listener.accept().await.unwrap();
            let server = TcpStream::connect(server).await.unwrap();
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            // When one side has gone, both are closed.
            tokio::select! {
                () = copy(client_read, server_write, up) => {}
                () = copy(server_read, client_write, down) => {}
            }
        });
        Relay {
            addr,
            to_server,
            to_client,
        }
    }

    /// Waits until the server has been sent so much.
    pub(super) async fn asked(&mut self, bytes: u64) {
        let seen = self.to_server.wait_for(|count| *count >= bytes);
        within(LIMIT, "bytes to the server", seen).await.unwrap();
    }

    /// Waits until the client has been sent so much.
    pub(super) async fn answered(&mut self, bytes: u64) {
        let seen = self.to_client.wait_for(|count| *count >= bytes);
        within(LIMIT, "bytes to the client", seen).await.unwrap();
    }

    /// Waits until it has been closed.
    pub(super) async fn closed(&mut self) {
        let closed = async { while self.to_client.changed().await.is_ok() {} };
        within(LIMIT, "the end of the connection", closed).await;
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: watch::Sender<u64>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => {
                if to.write_all(&buffer[..length]).await.is_err() {
                    return;
                }
                count.send_modify(|count| *count += length as u64);
            }
        }
    }
}
