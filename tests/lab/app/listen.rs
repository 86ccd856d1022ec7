//! An HTTP server: HTTP/1.1 and h2c by prior knowledge on one port.

use std::convert::Infallible;
use std::future::Future;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::TcpListener;

use tidegate::standin::Scope;

use crate::feed::Body;

/// Accepts for as long as it is polled. Connections live as long as `scope`; `connections` can ask
/// them to end after what they are at.
pub(crate) async fn accept<A, F>(
    listener: &TcpListener,
    scope: &Scope,
    connections: &GracefulShutdown,
    answer: A,
) -> Infallible
where
    A: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<Body>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Without it pieces come late, not never.
                let _ = stream.set_nodelay(true);
                let answer = answer.clone();
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let connection = auto::Builder::new(scope.clone())
                    .serve_connection_with_upgrades(TokioIo::new(stream), service)
                    .into_owned();
                let connection = connections.watch(connection);
                scope.spawn(async move {
                    // How it ended is the peer's to see.
                    let _ = connection.await;
                });
            }
            // Out of descriptors, say: do not spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}
