//! A TCP front before any server, with faults that can be switched while it runs.
//!
//! In [`Fault::Reset`] it is what plaintext meets at a port under STRICT mTLS.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::{Process, Scope};

/// What befalls a connection. It is read when the connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: bytes pass both ways.
    None,
    /// Bytes are read, and nothing is ever answered.
    Hang,
    /// Reset on the first byte.
    Reset,
    /// Closed on the first byte, with no answer.
    Empty,
    /// An HTTP 500.
    Status500,
    /// An HTTP 200 whose body is not what it should be.
    Garbage,
    /// Bytes that are not HTTP.
    NotHttp,
    /// An HTTP 200 that breaks off before its content-length.
    Truncated,
}

/// A running front.
#[derive(Clone, Debug)]
pub struct Handle {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The process: killed, it refuses connections.
    pub process: Process,
    fault: watch::Sender<Fault>,
}

impl Handle {
    /// Switches the fault. Connections that hang or pass are cut, so that the next request sees it.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// Starts a front at `listen` before `target`. An error is an address that cannot be had.
pub async fn start(listen: SocketAddr, target: SocketAddr, fault: Fault) -> io::Result<Handle> {
    let listener = TcpListener::bind(listen).await?;
    let addr = listener.local_addr()?;
    let fault = watch::Sender::new(fault);
    let faults = fault.subscribe();
    let process = Process::start("front", move |scope| {
        accept(scope, listener, target, faults)
    });
    Ok(Handle {
        addr,
        process,
        fault,
    })
}

async fn accept(
    scope: Scope,
    listener: TcpListener,
    target: SocketAddr,
    mut faults: watch::Receiver<Fault>,
) -> u8 {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let fault = *faults.borrow_and_update();
        let mut faults = faults.clone();
        scope.spawn(async move {
            tokio::select! {
                // How the connection ended is its peer's to see.
                _ = befall(fault, stream, target) => {}
                _ = faults.wait_for(|now| *now != fault) => {}
            }
        });
    }
}

async fn befall(fault: Fault, mut stream: TcpStream, target: SocketAddr) -> io::Result<()> {
    if fault == Fault::None {
        return pass(stream, target).await;
    }
    // A whole request head fits: what is left unread would turn a close into a reset.
    let mut head = [0; 8192];
    let _ = stream.read(&mut head).await?;
    match fault {
        Fault::None | Fault::Empty => {}
        Fault::Hang => while stream.read(&mut head).await? > 0 {},
        Fault::Reset => stream.set_zero_linger()?,
        Fault::Status500 => {
            answer(
                &mut stream,
                "HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n",
            )
            .await?
        }
        Fault::Garbage => {
            answer(
                &mut stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n\u{1}gar|bage",
            )
            .await?
        }
        Fault::NotHttp => answer(&mut stream, "\u{15}\u{3}\u{1}").await?,
        Fault::Truncated => {
            answer(
                &mut stream,
                "HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\ninbound|80",
            )
            .await?
        }
    }
    Ok(())
}

async fn answer(stream: &mut TcpStream, bytes: &str) -> io::Result<()> {
    stream.write_all(bytes.as_bytes()).await?;
    stream.shutdown().await
}

async fn pass(client: TcpStream, target: SocketAddr) -> io::Result<()> {
    let target = TcpStream::connect(target).await?;
    let (mut client_read, mut client_write) = client.into_split();
    let (mut target_read, mut target_write) = target.into_split();
    let up = async {
        tokio::io::copy(&mut client_read, &mut target_write).await?;
        target_write.shutdown().await
    };
    let down = async {
        tokio::io::copy(&mut target_read, &mut client_write).await?;
        client_write.shutdown().await
    };
    tokio::try_join!(up, down).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::standin::{ANY_PORT, app, client};
    use hyper::{Method, StatusCode};

    #[tokio::test]
    async fn each_fault_is_what_it_says() {
        let limit = Duration::from_secs(10);
        let app = app::start(app::Config::default()).await.expect("app");
        let front = start(ANY_PORT, app.addr, Fault::None).await.expect("front");
        let get = |limit| client::request(Method::GET, front.addr, "/?bytes=9", limit);
        let (status, body) = get(limit).await.expect("passes");
        assert_eq!((status, body.len()), (StatusCode::OK, 9));

        for fault in [Fault::Reset, Fault::Empty, Fault::NotHttp] {
            front.set(fault);
            let error = get(limit).await.expect_err("no answer");
            assert!(
                matches!(error, client::Error::Broken(_)),
                "{fault:?}: {error}"
            );
        }
        front.set(Fault::Truncated);
        let error = get(limit).await.expect_err("short");
        assert!(matches!(error, client::Error::Body(_)), "{error}");
        front.set(Fault::Status500);
        assert_eq!(
            get(limit).await.expect("answer").0,
            StatusCode::INTERNAL_SERVER_ERROR
        );
        front.set(Fault::Garbage);
        assert_eq!(&get(limit).await.expect("answer").1[..], b"\x01gar|bage");

        front.set(Fault::Hang);
        let hung = get(limit);
        tokio::pin!(hung);
        tokio::select! {
            _ = &mut hung => panic!("a hanging front answered"),
            // Nothing ever comes, however long one waits.
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
        }
        front.set(Fault::Reset);
        hung.await.expect_err("cut by the switch");
        front.process.kill();
        front.process.exited().await;
        let error = get(limit).await.expect_err("refused");
        assert!(matches!(error, client::Error::Connect { .. }), "{error}");
    }
}
