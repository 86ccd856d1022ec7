//! The webhook's two ports: reviews over TLS, and health and metrics in plain text.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::limits::Limits;
use super::metrics::Metrics;
use super::routes::Reviewer;
use crate::certs::Serving;
use crate::metrics::Format;
use crate::net::{self, Answer, Reading, Stream, text, typed};

/// How far the webhook is on its way out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It stays.
    #[default]
    Serving,
    /// It is not ready any more, and asks clients to go elsewhere; everybody is served.
    Leaving,
    /// Reviews in flight are finished, and nothing else begins.
    Finishing,
    /// The health port goes too.
    Over,
}

/// Returns once `stage` is reached, or nobody is left to reach it.
async fn reached(mut stages: watch::Receiver<Stage>, stage: Stage) {
    let _ = stages.wait_for(|now| *now >= stage).await;
}

/// What both ports share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) stages: watch::Receiver<Stage>,
    pub(super) serving: watch::Receiver<Serving>,
}

impl Shared {
    /// Why no review should be sent here.
    fn unready(&self, now: SystemTime) -> Option<String> {
        if *self.stages.borrow() > Stage::Serving {
            return Some("leaving".to_owned());
        }
        match &*self.serving.borrow() {
            Ok(pair) => pair.check(now).err().map(|error| error.to_string()),
            Err(error) => Some(error.clone()),
        }
    }

    fn builder(&self) -> http1::Builder {
        let mut builder = http1::Builder::new();
        builder
            .max_header_size(self.limits.head_bytes)
            // hyper panics below 8 KiB.
            .max_buf_size(self.limits.head_bytes.max(8 * 1024))
            .max_headers(self.limits.headers);
        builder
    }
}

/// Accepts connections until `stage`, each with a place of its own, and gives those that are open
/// then `within` to end. Returns whether all had.
async fn accept_until<C>(
    listener: TcpListener,
    places: usize,
    shared: &Shared,
    stage: Stage,
    within: Duration,
    connection: impl Fn(TcpStream) -> C,
) -> bool
where
    C: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(places));
    let mut connections = JoinSet::new();
    let mut starved = false;
    let admit = |tcp, connections: &mut JoinSet<()>| {
        // Closed without a word where there is no place: a TLS client could not be told.
        let Ok(place) = places.clone().try_acquire_owned() else {
            shared.metrics.connections_refused.inc();
            return;
        };
        let connection = connection(tcp);
        connections.spawn(async move {
            connection.await;
            drop(place);
        });
    };
    let over = reached(shared.stages.clone(), stage);
    tokio::pin!(over);
    loop {
        tokio::select! {
            () = &mut over => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (tcp, _) = net::accept(&listener, shared.limits.accept_backoff, &mut starved) => {
                admit(tcp, &mut connections);
            }
        }
    }
    net::drain_backlog(listener, |tcp, _| admit(tcp, &mut connections)).await;
    let left = async { while connections.join_next().await.is_some() {} };
    timeout(within, left).await.is_ok()
}

// ===== reviews =====

/// Serves reviews until [`Stage::Finishing`]; whoever is in flight then has `within`.
pub(super) async fn reviews(
    listener: TcpListener,
    tls: TlsAcceptor,
    reviewer: Reviewer,
    shared: Shared,
    within: Duration,
) -> bool {
    let reviewer = Arc::new(reviewer);
    let places = shared.limits.connections;
    let connection = |tcp| review(tcp, tls.clone(), reviewer.clone(), shared.clone());
    accept_until(
        listener,
        places,
        &shared,
        Stage::Finishing,
        within,
        connection,
    )
    .await
}

async fn review(tcp: TcpStream, tls: TlsAcceptor, reviewer: Arc<Reviewer>, shared: Shared) {
    let limits = shared.limits;
    // Small answers, each written whole.
    let _ = tcp.set_nodelay(true);
    let reading = Reading::new(limits.idle, limits.head);
    let stream = Stream::new(tcp, limits.write).with_reading(reading.clone());
    let stream = match timeout(limits.handshake, tls.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.metrics.handshakes_failed.inc();
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_) => {
            shared.metrics.handshakes_failed.inc();
            return;
        }
    };
    reading.awaits();
    let answer = |request| {
        reading.began();
        let (reading, reviewer, shared) = (&reading, &reviewer, &shared);
        async move {
            let mut answer = reviewer.answer(&shared.metrics, request).await;
            if *shared.stages.borrow() > Stage::Serving {
                // The next request of this client then goes where it will still find somebody.
                net::close_after(&mut answer);
            }
            reading.awaits();
            answer
        }
    };
    let finishing = reached(shared.stages.clone(), Stage::Finishing);
    let stream = net::serve(&shared.builder(), stream, answer, finishing).await;
    net::linger(stream, limits.linger).await;
}

// ===== health =====

/// Serves `/readyz`, `/livez` and `/metrics` until [`Stage::Over`].
pub(super) async fn health(listener: TcpListener, shared: Shared, within: Duration) -> bool {
    let places = shared.limits.health_connections;
    let connection = |tcp| {
        let shared = shared.clone();
        async move {
            let limits = shared.limits;
            let mut builder = shared.builder();
            builder
                .timer(TokioTimer::new())
                .header_read_timeout(limits.head);
            let answer = |request| {
                let answer = health_answer(&shared, &request);
                async move { answer }
            };
            let over = reached(shared.stages.clone(), Stage::Over);
            let stream = Stream::new(tcp, limits.write);
            let stream = net::serve(&builder, stream, answer, over).await;
            net::linger(stream.into_inner(), limits.linger).await;
        }
    };
    accept_until(listener, places, &shared, Stage::Over, within, connection).await
}

fn health_answer(shared: &Shared, request: &Request<Incoming>) -> Answer {
    let has_body = !request.body().is_end_stream();
    let path = request.uri().path();
    let mut answer = match path {
        "/readyz" | "/livez" | "/metrics" if request.method() != "GET" => net::wrong_verb("GET"),
        "/readyz" => match shared.unready(SystemTime::now()) {
            None => text(StatusCode::OK, "ready\n"),
            Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
        },
        "/livez" => text(StatusCode::OK, "alive\n"),
        "/metrics" => {
            let accept = request.headers().get(header::ACCEPT);
            let format = Format::from_accept(accept.and_then(|a| a.to_str().ok()));
            typed(format.content_type(), shared.metrics.encode(format))
        }
        _ => text(StatusCode::NOT_FOUND, "no such endpoint\n"),
    };
    if has_body {
        // It is not read.
        net::close_after(&mut answer);
    }
    answer
}
