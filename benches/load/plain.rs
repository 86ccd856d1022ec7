//! A plain proxy of hyper and hyper-util's client pool, as one would write it: a peer to compare with.

use std::future::Future;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderMap, HeaderName, UPGRADE};
use hyper::http::uri::{Authority, Scheme};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Uri, Version};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::TcpListener;

use crate::Result;

type Pool = Client<HttpConnector, Incoming>;

const TUNNEL_BUFFER: usize = 64 * 1024;

/// A port and the backend's, by HTTP/1.1 and by h2c. Serves for ever, on one thread.
pub(crate) async fn serve(h1: (u16, u16), h2: (u16, u16)) -> Result<()> {
    let (h1, h1_up) = (bind(h1.0).await?, upstream(h1.1)?);
    let (h2, h2_up) = (bind(h2.0).await?, upstream(h2.1)?);
    let h1_pool = pool(false);
    let h2_pool = pool(true);
    loop {
        tokio::select! {
            accepted = h1.accept() => {
                let (stream, _) = accepted?;
                stream.set_nodelay(true)?;
                let (pool, up) = (h1_pool.clone(), h1_up.clone());
                let service = service_fn(move |request| forward(pool.clone(), up.clone(), request));
                let connection = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .with_upgrades();
                spawn(connection);
            }
            accepted = h2.accept() => {
                let (stream, _) = accepted?;
                stream.set_nodelay(true)?;
                let (pool, up) = (h2_pool.clone(), h2_up.clone());
                let service = service_fn(move |request| forward(pool.clone(), up.clone(), request));
                let connection = http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                spawn(connection);
            }
        }
    }
}

async fn bind(port: u16) -> Result<TcpListener> {
    Ok(TcpListener::bind(("127.0.0.1", port)).await?)
}

fn upstream(port: u16) -> Result<Authority> {
    Ok(format!("127.0.0.1:{port}").parse()?)
}

fn pool(h2: bool) -> Pool {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new())
        .http2_only(h2)
        .build(connector)
}

fn spawn<F>(connection: F)
where
    F: Future<Output = hyper::Result<()>> + Send + 'static,
{
    // The load generator sees what fails.
    tokio::spawn(async move { _ = connection.await });
}

async fn forward(
    pool: Pool,
    upstream: Authority,
    mut request: Request<Incoming>,
) -> Result<Response<Incoming>> {
    let upgrade = request
        .headers()
        .contains_key(UPGRADE)
        .then(|| hyper::upgrade::on(&mut request));
    let mut uri = std::mem::take(request.uri_mut()).into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(upstream);
    *request.uri_mut() = Uri::from_parts(uri)?;
    if upgrade.is_none() {
        end_to_end(request.headers_mut());
    }
    if request.version() == Version::HTTP_10 {
        *request.version_mut() = Version::HTTP_11;
    }
    let mut response = pool.request(request).await?;
    match upgrade {
        Some(client) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            let server = hyper::upgrade::on(&mut response);
            tokio::spawn(async move {
                if let (Ok(client), Ok(server)) = (client.await, server.await) {
                    let (mut client, mut server) = (TokioIo::new(client), TokioIo::new(server));
                    _ = copy_bidirectional_with_sizes(
                        &mut client,
                        &mut server,
                        TUNNEL_BUFFER,
                        TUNNEL_BUFFER,
                    )
                    .await;
                }
            });
        }
        _ => end_to_end(response.headers_mut()),
    }
    Ok(response)
}

/// Takes out what is for one connection only: RFC 9110, section 7.6.1.
fn end_to_end(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(HeaderName::from_static("keep-alive"));
    headers.remove(HeaderName::from_static("proxy-connection"));
}
