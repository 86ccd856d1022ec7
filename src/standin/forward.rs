//! A reverse proxy: streaming bodies, trailers, upgrades, one upstream connection kept for each
//! client connection.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Version, header};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::Scope;
use super::body::{Body, Broken, Guarded};

/// Forwards what one client connection sends.
#[derive(Clone)]
pub(crate) struct Forward {
    upstream: SocketAddr,
    scope: Scope,
    /// Once it says so, upgraded connections end.
    cut: Option<watch::Receiver<bool>>,
    kept: Arc<Mutex<Option<SendRequest<Incoming>>>>,
}

impl Forward {
    pub(crate) fn new(upstream: SocketAddr, scope: Scope) -> Forward {
        Forward {
            upstream,
            scope,
            cut: None,
            kept: Arc::default(),
        }
    }

    /// Upgraded connections end once `cut` says so.
    pub(crate) fn cut_by(self, cut: watch::Receiver<bool>) -> Forward {
        Forward {
            cut: Some(cut),
            ..self
        }
    }

    /// The same for another client connection: kept upstream connections are not shared.
    pub(crate) fn connection(&self) -> Forward {
        Forward {
            kept: Arc::default(),
            ..self.clone()
        }
    }

    /// Sends `request` on and answers with what comes back. `guard` is dropped when the response
    /// has ended, an upgraded connection included. An error says that upstream has gone.
    pub(crate) async fn send<G>(
        &self,
        mut request: Request<Incoming>,
        guard: G,
    ) -> Result<Response<Body>, Broken>
    where
        G: Send + Unpin + 'static,
    {
        if request.version() == Version::HTTP_2 {
            let response = self.send_h2(request).await?;
            return Ok(response.map(|body| Guarded::new(body, guard).boxed_unsync()));
        }
        let upgrading = request.headers().contains_key(header::UPGRADE);
        let client = upgrading.then(|| hyper::upgrade::on(&mut request));
        if !upgrading {
            request.headers_mut().remove(header::CONNECTION);
        }
        let mut response = self.send_h1(request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            if let Some(client) = client {
                let upstream = hyper::upgrade::on(&mut response);
                let cut = self.cut.clone();
                self.scope.spawn(async move {
                    // How a tunnel ended is its two ends' to see.
                    tokio::select! {
                        _ = tunnel(client, upstream) => {}
                        () = is_cut(cut) => {}
                    }
                    drop(guard);
                });
            }
            return Ok(response.map(|body| body.map_err(Into::into).boxed_unsync()));
        }
        response.headers_mut().remove(header::CONNECTION);
        Ok(response.map(|body| Guarded::new(body, guard).boxed_unsync()))
    }

    async fn send_h1(&self, mut request: Request<Incoming>) -> Result<Response<Incoming>, Broken> {
        let kept = self.slot().take().filter(|sender| !sender.is_closed());
        if let Some(mut sender) = kept
            && sender.is_ready()
        {
            match sender.try_send_request(request).await {
                Ok(response) => {
                    *self.slot() = Some(sender);
                    return Ok(response);
                }
                // Closed as it was about to be used: not a byte was sent.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let stream = self.connect().await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
        self.scope.spawn(async move {
            let _ = connection.with_upgrades().await;
        });
        let response = sender.send_request(request).await?;
        *self.slot() = Some(sender);
        Ok(response)
    }

    async fn send_h2(&self, request: Request<Incoming>) -> Result<Response<Incoming>, Broken> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(self.scope.clone(), stream).await?;
        self.scope.spawn(async move {
            let _ = connection.await;
        });
        Ok(sender.send_request(request).await?)
    }

    async fn connect(&self) -> Result<TokioIo<TcpStream>, Broken> {
        let stream = TcpStream::connect(self.upstream).await?;
        stream.set_nodelay(true)?;
        Ok(TokioIo::new(stream))
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<SendRequest<Incoming>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until it is said; for ever where nobody can.
async fn is_cut(cut: Option<watch::Receiver<bool>>) {
    if let Some(mut cut) = cut
        && cut.wait_for(|cut| *cut).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Copies both ways until upstream ends; a client that only stops sending may go on reading.
async fn tunnel(client: OnUpgrade, upstream: OnUpgrade) -> Result<(), Broken> {
    let (client, upstream) = tokio::try_join!(client, upstream)?;
    let (mut client_read, mut client_write) = tokio::io::split(TokioIo::new(client));
    let (mut upstream_read, mut upstream_write) = tokio::io::split(TokioIo::new(upstream));
    let up = async {
        tokio::io::copy(&mut client_read, &mut upstream_write).await?;
        upstream_write.shutdown().await?;
        std::future::pending::<std::io::Result<()>>().await
    };
    let down = async {
        tokio::io::copy(&mut upstream_read, &mut client_write).await?;
        client_write.shutdown().await
    };
    tokio::select! {
        result = up => result?,
        result = down => result?,
    }
    Ok(())
}
