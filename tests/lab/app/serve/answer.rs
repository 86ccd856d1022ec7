//! What the app answers.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use tidegate::config::duration;
use tracing::info;

use super::{Exchange, State, websocket};
use crate::feed::{Body, Feed, Gone, fed, full};
use crate::grpc::{self, Ask, Messages, Tick};
use crate::wire::{BYTES_MAX, CHUNK, Checksum, Received, TICK, pieces, unix_ms};

/// The longest gRPC request.
const ASK_MAX: usize = 1024;
/// gRPC's INVALID_ARGUMENT.
const INVALID_ARGUMENT: u32 = 3;
/// The most pieces of a body, ticks of a stream.
const PIECES_MAX: u64 = 1_000_000;

/// Answers a request; one that makes no sense is answered 400, and why.
pub(super) async fn answer(state: Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |path| path.as_str());
    let exchange = Exchange::begin(&state, request.method().as_str(), path);
    try_answer(&state, exchange, request)
        .await
        .unwrap_or_else(|why| text(StatusCode::BAD_REQUEST, format!("{why}\n")))
}

async fn try_answer(
    state: &Arc<State>,
    exchange: Exchange,
    request: Request<Incoming>,
) -> Result<Response<Body>, String> {
    let query = Query(request.uri().query().unwrap_or_default().to_owned());
    let post = request.method() == Method::POST;
    match request.uri().path() {
        "/slow" => return slow(state, exchange, &query).await,
        "/chunked" => {
            let (count, every) = (query.count("chunks", 10)?, query.duration("every", 1)?);
            return Ok(paced(state, exchange, count, CHUNK, every));
        }
        "/stream" => {
            let (time, every) = (query.seconds(45.0)?, query.duration("every", 1)?);
            return Ok(paced(state, exchange, ticks(time, every)?, TICK, every));
        }
        "/big" => {
            let bytes = query.number("bytes", 12_000_000, BYTES_MAX)?;
            return Ok(after(state, exchange, Duration::ZERO, bytes));
        }
        "/upload" if post => return upload(exchange, request.into_body()).await,
        grpc::PATH if post => return grpc_stream(state, exchange, request.into_body()).await,
        "/ws" => return websocket::upgrade(&state.scope, exchange, request),
        _ => {}
    }
    let answer = match request.uri().path() {
        "/healthz" if state.live.load(Ordering::Relaxed) => text(StatusCode::OK, "ok\n"),
        "/healthz" => text(StatusCode::INTERNAL_SERVER_ERROR, "failing, as asked\n"),
        "/fail-liveness" if post => {
            state.live.store(false, Ordering::Relaxed);
            info!(at = unix_ms(), "liveness fails");
            text(StatusCode::OK, "failing from now on\n")
        }
        "/crash" if post => {
            info!(at = unix_ms(), "crash");
            // It is full when another request has asked for the same.
            let _ = state.crash.try_send(());
            std::future::pending().await
        }
        _ => text(StatusCode::NOT_FOUND, "no such path or method\n"),
    };
    exchange.whole();
    Ok(answer)
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(full(text));
    *response.status_mut() = status;
    response
}

async fn slow(state: &State, exchange: Exchange, query: &Query) -> Result<Response<Body>, String> {
    let (time, bytes) = (
        query.seconds(20.0)?,
        query.number("bytes", 1000, BYTES_MAX)?,
    );
    match query.get("headers") {
        Some("first") => Ok(after(state, exchange, time, bytes)),
        None | Some("last") => {
            tokio::time::sleep(time).await;
            Ok(after(state, exchange, Duration::ZERO, bytes))
        }
        Some(other) => Err(format!("headers={other} is not known; use first or last")),
    }
}

/// The head at once and a body of known length later.
fn after(state: &State, exchange: Exchange, time: Duration, bytes: u64) -> Response<Body> {
    let mut response = feeding(state, exchange, |feed| async move {
        feed.sleep(time).await?;
        for piece in pieces(bytes, u64::MAX) {
            feed.send(piece).await?;
        }
        Ok(())
    });
    response.headers_mut().insert(CONTENT_LENGTH, bytes.into());
    response
}

/// The head at once, then `count` pieces, `every` before each.
fn paced(
    state: &State,
    exchange: Exchange,
    count: u64,
    size: u64,
    every: Duration,
) -> Response<Body> {
    feeding(state, exchange, |feed| async move {
        for piece in pieces(count * size, size) {
            feed.sleep(every).await?;
            feed.send(piece).await?;
        }
        Ok(())
    })
}

/// A response whose body `work` feeds in a task.
fn feeding<W, F>(state: &State, exchange: Exchange, work: W) -> Response<Body>
where
    W: FnOnce(Feed) -> F,
    F: Future<Output = Result<(), Gone>> + Send + 'static,
{
    let (feed, body) = fed();
    let work = work(feed);
    state.scope.spawn(async move {
        if work.await.is_ok() {
            exchange.whole();
        }
    });
    Response::new(body)
}

async fn upload(exchange: Exchange, mut body: Incoming) -> Result<Response<Body>, String> {
    let mut checksum = Checksum::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| format!("the upload broke: {error}"))?;
        if let Some(piece) = frame.data_ref() {
            checksum.feed(piece);
        }
    }
    let received = Received {
        bytes: checksum.bytes,
        checksum: checksum.hex(),
    };
    let json = serde_json::to_vec(&received).map_err(|error| error.to_string())?;
    exchange.whole();
    Ok(text(StatusCode::OK, json))
}

async fn grpc_stream(
    state: &State,
    exchange: Exchange,
    body: Incoming,
) -> Result<Response<Body>, String> {
    let ask = match asked(body).await {
        Ok(ask) => ask,
        Err(why) => {
            info!(at = unix_ms(), id = exchange.id, why, "not a gRPC request");
            let mut response = Response::new(full(""));
            response
                .headers_mut()
                .insert(grpc::STATUS, INVALID_ARGUMENT.into());
            return Ok(grpc_response(response));
        }
    };
    let response = feeding(state, exchange, |feed| async move {
        for number in 1..=ask.count {
            feed.sleep(Duration::from_millis(ask.every_ms)).await?;
            let at = unix_ms();
            feed.send(grpc::framed(&Tick { number, at })).await?;
        }
        let mut trailers = HeaderMap::new();
        trailers.insert(grpc::STATUS, HeaderValue::from_static("0"));
        feed.trailers(trailers).await
    });
    Ok(grpc_response(response))
}

fn grpc_response(mut response: Response<Body>) -> Response<Body> {
    let kind = HeaderValue::from_static(grpc::CONTENT_TYPE);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn asked(body: Incoming) -> Result<Ask, String> {
    let body = Limited::new(body, ASK_MAX).collect().await;
    let mut messages = Messages::default();
    messages.feed(&body.map_err(|error| error.to_string())?.to_bytes());
    match messages.next::<Ask>() {
        Ok(Some(ask)) if !messages.in_the_middle() => Ok(ask),
        Ok(_) => Err("not one whole message".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// How many ticks of `every` go into `time`.
pub(crate) fn ticks(time: Duration, every: Duration) -> Result<u64, String> {
    if every.is_zero() {
        return Err("every must be more than 0".to_owned());
    }
    let ticks = (time.as_nanos() / every.as_nanos()).max(1);
    match u64::try_from(ticks) {
        Ok(ticks) if ticks <= PIECES_MAX => Ok(ticks),
        _ => Err(format!("{ticks} ticks are too many; at most {PIECES_MAX}")),
    }
}

/// What a URL asks for.
struct Query(String);

impl Query {
    fn get(&self, key: &str) -> Option<&str> {
        let mut pairs = self.0.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    fn number(&self, key: &str, default: u64, max: u64) -> Result<u64, String> {
        let Some(value) = self.get(key) else {
            return Ok(default);
        };
        match value.parse() {
            Ok(number) if number <= max => Ok(number),
            _ => Err(format!("{key}={value} is not a number up to {max}")),
        }
    }

    fn count(&self, key: &str, default: u64) -> Result<u64, String> {
        self.number(key, default, PIECES_MAX)
    }

    /// `seconds`, which may have a fraction.
    fn seconds(&self, default: f64) -> Result<Duration, String> {
        let seconds = match self.get("seconds") {
            Some(value) => value
                .parse()
                .map_err(|_| format!("seconds={value} is not a number"))?,
            None => default,
        };
        match Duration::try_from_secs_f64(seconds) {
            Ok(time) if time <= duration::LIMIT => Ok(time),
            _ => Err(format!("seconds={seconds} is not between 0 and a day")),
        }
    }

    fn duration(&self, key: &str, default: u64) -> Result<Duration, String> {
        self.get(key)
            .map_or(Ok(Duration::from_secs(default)), |value| {
                duration::parse(value).map_err(|error| format!("{key}: {error}"))
            })
    }
}
