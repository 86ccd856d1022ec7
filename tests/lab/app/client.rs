//! The client: runs a plan, and tells of each request as it ends.

mod exchange;
mod load;
mod websocket;

use std::io::Write;

use anyhow::Context;
use bytes::Bytes;
use hyper::{HeaderMap, Request as HttpRequest};
use tidegate::exit;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::feed::{Body, fed, full};
use crate::grpc::{self, Messages, Tick};
use crate::plan::{Ask, Http, Plan, Request};
use crate::record::{Failure, Outcome, Record, Seen};
use crate::serve::ticks;
use crate::wire::{self, CHUNK, Checksum, Received, TICK, pieces, unix_ms};
use exchange::Exchange;

/// The exit code when a request was not ok.
const NOT_OK: u8 = 1;
/// The longest answer of an upload that is read.
const RECEIVED_MAX: usize = 4096;
/// Pieces of an upload a second.
const UPLOAD_PIECES: u64 = 10;

/// Runs a plan and prints its records.
pub(crate) fn main(target: Option<String>, plan: &str) -> anyhow::Result<u8> {
    let read;
    let json = match plan.strip_prefix('@') {
        Some(file) => {
            read = std::fs::read(file).with_context(|| format!("cannot read the plan {file}"))?;
            &read
        }
        None => plan.as_bytes(),
    };
    let plan = match Plan::parse(json, target.as_deref()) {
        Ok(plan) => plan,
        Err(error) => {
            writeln!(std::io::stderr(), "lab-app: {error}")?;
            return Ok(exit::DATA);
        }
    };
    wire::runtime()?.block_on(async {
        let (sender, mut records) = mpsc::channel(16);
        let mut running = JoinSet::new();
        running.spawn(run(plan, sender));
        let mut code = 0;
        while let Some(record) = records.recv().await {
            if record.outcome != Outcome::Ok {
                code = NOT_OK;
            }
            let mut out = std::io::stdout().lock();
            out.write_all(&record.line()?)?;
            out.flush()?;
        }
        Ok(code)
    })
}

/// Runs a plan. All of it is given up when nobody takes its records any more.
pub(crate) async fn run(plan: Plan, records: mpsc::Sender<Record>) {
    let mut requests = JoinSet::new();
    for request in plan.requests {
        requests.spawn(async move {
            tokio::time::sleep(request.after).await;
            send(request).await
        });
    }
    loop {
        let ended = tokio::select! {
            () = records.closed() => return,
            ended = requests.join_next() => ended,
        };
        match ended {
            Some(Ok(record)) => {
                if records.send(record).await.is_err() {
                    return;
                }
            }
            // A task that panicked has said so; the missing record tells the reader.
            Some(Err(_)) => {}
            None => return,
        }
    }
}

async fn send(request: Request) -> Record {
    let Request {
        name,
        after: _,
        target,
        http,
        deadline,
        ask,
    } = request;
    let kind = ask.kind();
    if let Ask::Load {
        rps,
        seconds,
        delay,
        bytes,
    } = ask
    {
        return load::run(
            name,
            target,
            load::Load {
                rps,
                seconds,
                delay,
                bytes,
                deadline,
            },
        )
        .await;
    }
    let wanted = match ask {
        Ask::WebSocket { .. } => 101,
        Ask::Get { status, .. } => status,
        _ => 200,
    };
    let started = unix_ms();
    let mut seen = Seen::default();
    let exchange = Exchange {
        target: &target,
        http,
        rate: None,
        wanted,
    };
    let result = timeout(deadline, one(exchange, &ask, &mut seen))
        .await
        .unwrap_or(Err(Failure::Deadline(deadline)));
    Record::of(name, kind, started, &seen, wanted, &result)
}

/// One request of any kind but a load; well only if the answer is whole.
async fn one(mut exchange: Exchange<'_>, ask: &Ask, seen: &mut Seen) -> Result<(), Failure> {
    match ask {
        Ask::Slow {
            seconds,
            headers,
            bytes,
        } => {
            let path = slow_path(*seconds, headers.name(), *bytes);
            download(exchange, &path, *bytes, seen).await
        }
        Ask::Chunked { chunks, every } => {
            let path = format!("/chunked?chunks={chunks}&every={}ms", every.as_millis());
            download(exchange, &path, chunks * CHUNK, seen).await
        }
        Ask::Stream { seconds, every } => {
            let (secs, millis) = (seconds.as_secs_f64(), every.as_millis());
            let path = format!("/stream?seconds={secs}&every={millis}ms");
            let count = ticks(*seconds, *every).map_err(Failure::Broken)?;
            download(exchange, &path, count * TICK, seen).await
        }
        Ask::Big { bytes, rate } => {
            exchange.rate = *rate;
            download(exchange, &format!("/big?bytes={bytes}"), *bytes, seen).await
        }
        Ask::Upload { bytes, rate } => upload(exchange, *bytes, *rate, seen).await,
        Ask::Grpc { seconds, every } => {
            let count = ticks(*seconds, *every).map_err(Failure::Broken)?;
            let ask = grpc::Ask {
                // At most a million.
                count: count as u32,
                every_ms: u64::try_from(every.as_millis()).unwrap_or(u64::MAX),
            };
            grpc_stream(exchange, &ask, seen).await
        }
        Ask::WebSocket { seconds, every } => {
            let count = ticks(*seconds, *every).map_err(Failure::Broken)?;
            websocket::echo(exchange.target, count, *every, seen).await
        }
        Ask::Get { path, method, .. } => {
            let request = exchange.request(method, path, full(""))?;
            let took = exchange.run(request, seen, |_| Ok(())).await;
            took.map(|_| ())
        }
        // A load has its own way: see `send`.
        Ask::Load { .. } => Err(Failure::Broken("a load is not one request".to_owned())),
    }
}

fn slow_path(time: std::time::Duration, headers: &str, bytes: u64) -> String {
    let seconds = time.as_secs_f64();
    format!("/slow?seconds={seconds}&headers={headers}&bytes={bytes}")
}

/// Reads a body that must be the first `bytes` bytes of the pattern.
async fn download(
    exchange: Exchange<'_>,
    path: &str,
    bytes: u64,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let mut checksum = Checksum::new();
    let request = exchange.request("GET", path, full(""))?;
    let wanted = exchange.wanted;
    exchange
        .run(request, seen, |piece| {
            checksum.feed(piece);
            Ok(())
        })
        .await?;
    // Another status has another body, and is judged by itself.
    if seen.status != Some(wanted) || checksum == Checksum::of_pattern(bytes) {
        return Ok(());
    }
    Err(Failure::Broken(match checksum.bytes {
        read if read == bytes => "the checksum is another".to_owned(),
        read => format!("{read} bytes of {bytes}, and a clean end"),
    }))
}

async fn upload(
    exchange: Exchange<'_>,
    bytes: u64,
    rate: Option<u64>,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let (feed, body) = fed();
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        let size = rate.map_or(u64::MAX, |rate| rate.div_ceil(UPLOAD_PIECES));
        for piece in pieces(bytes, size) {
            let time = rate.map_or(0.0, |rate| piece.len() as f64 / rate as f64);
            // Whoever does not read on has answered, or has gone.
            if feed.send(piece).await.is_err()
                || feed
                    .sleep(std::time::Duration::from_secs_f64(time))
                    .await
                    .is_err()
            {
                return;
            }
        }
    });
    let request = exchange.request("POST", "/upload", body)?;
    let wanted = exchange.wanted;
    let mut answer = Vec::new();
    exchange
        .run(request, seen, |piece| {
            if answer.len() + piece.len() > RECEIVED_MAX {
                return Err("the answer of an upload is too long".to_owned());
            }
            answer.extend_from_slice(piece);
            Ok(())
        })
        .await?;
    seen.bytes = 0;
    if seen.status != Some(wanted) {
        return Ok(());
    }
    let received: Received =
        serde_json::from_slice(&answer).map_err(|error| Failure::broken(&error))?;
    seen.bytes = received.bytes;
    let expected = Received {
        bytes,
        checksum: Checksum::of_pattern(bytes).hex(),
    };
    if received == expected {
        return Ok(());
    }
    Err(Failure::Broken(format!(
        "the app got {} bytes of {bytes}, checksum {}",
        received.bytes, received.checksum
    )))
}

async fn grpc_stream(
    exchange: Exchange<'_>,
    ask: &grpc::Ask,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let mut request = exchange.request("POST", grpc::PATH, full(grpc::framed(ask)))?;
    let headers = request.headers_mut();
    headers.insert(
        "content-type",
        hyper::header::HeaderValue::from_static(grpc::CONTENT_TYPE),
    );
    headers.insert("te", hyper::header::HeaderValue::from_static("trailers"));
    let wanted = exchange.wanted;
    let mut messages = Messages::default();
    let mut ticks = 0;
    let (head, trailers) = exchange
        .run(request, seen, |piece| {
            messages.feed(piece);
            while let Some(tick) = messages.next::<Tick>().map_err(|error| error.to_string())? {
                ticks += 1;
                if tick.number != ticks {
                    return Err(format!("tick {} in the place of tick {ticks}", tick.number));
                }
            }
            Ok(())
        })
        .await?;
    if seen.status != Some(wanted) {
        return Ok(());
    }
    let status = |headers: &HeaderMap| headers.get(grpc::STATUS)?.to_str().ok()?.parse().ok();
    let only = status(&head);
    seen.grpc_status = only.or(trailers.as_ref().and_then(status));
    seen.grpc_status_only = only.is_some();
    match seen.grpc_status {
        Some(0) if ticks == ask.count && !messages.in_the_middle() => Ok(()),
        Some(status) => Err(Failure::Broken(format!(
            "grpc-status {status} after {ticks} messages of {}",
            ask.count
        ))),
        None => Err(Failure::Broken(format!(
            "no grpc-status after {ticks} messages of {}",
            ask.count
        ))),
    }
}

impl Exchange<'_> {
    /// A request as this protocol wants it: h2 with scheme and authority, HTTP/1.1 with a Host.
    fn request(&self, method: &str, path: &str, body: Body) -> Result<HttpRequest<Body>, Failure> {
        let authority = &self.target.authority;
        let request = match self.http {
            Http::Two => HttpRequest::builder().uri(format!("http://{authority}{path}")),
            Http::One => HttpRequest::builder().uri(path).header("host", authority),
        };
        request
            .method(method)
            .body(body)
            .map_err(|error| Failure::broken(&error))
    }
}

/// What reads a body: an error gives up.
trait Read: FnMut(&Bytes) -> Result<(), String> {}
impl<F: FnMut(&Bytes) -> Result<(), String>> Read for F {}
