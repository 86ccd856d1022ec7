//! A steady load, open loop: requests are sent on time, however long the others take.
//!
//! Connections are kept and used again, the one that was used last first. A kept one that turns out
//! closed before a byte was sent costs nothing: the request moves to a new connection, as any HTTP
//! client does. What fails after that is counted; nothing is sent twice.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::exchange::connect;
use crate::feed::{Body, full};
use crate::plan::{Target, load_count};
use crate::record::{Failure, Outcome, Record, Seen, Totals};
use crate::wire::{Checksum, unix_ms};

/// Requests in flight at once; beyond that they are skipped, and counted as such.
const IN_FLIGHT_MAX: usize = 5_000;

/// What load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) rps: f64,
    pub(super) seconds: Duration,
    /// How long the app takes for each.
    pub(super) delay: Duration,
    pub(super) bytes: u64,
    /// For each.
    pub(super) deadline: Duration,
}

/// What the requests share.
struct Client {
    target: Target,
    path: String,
    expected: Checksum,
    deadline: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    totals: Totals,
    took: Vec<u64>,
    seen: Seen,
}

struct Connection {
    sender: SendRequest<Body>,
    /// Drives it; cut when this is dropped.
    _driver: JoinSet<()>,
}

pub(super) async fn run(name: String, target: Target, load: Load) -> Record {
    let Load {
        rps,
        seconds,
        delay,
        bytes,
        deadline,
    } = load;
    let client = Arc::new(Client {
        target,
        // Hundreds of lines a second would be the larger part of the load.
        path: super::slow_path(delay, "last", bytes) + "&quiet",
        expected: Checksum::of_pattern(bytes),
        deadline,
        state: Mutex::default(),
    });
    let started = unix_ms();
    let begun = Instant::now();
    let mut requests = JoinSet::new();
    for number in 0..load_count(rps, seconds) {
        sleep_until(begun + Duration::from_secs_f64(number as f64 / rps)).await;
        while requests.try_join_next().is_some() {}
        if requests.len() >= IN_FLIGHT_MAX {
            client.with(|state| state.totals.skipped += 1);
            continue;
        }
        let client = Arc::clone(&client);
        requests.spawn(async move { client.one().await });
    }
    while requests.join_next().await.is_some() {}
    client.record(name, started)
}

impl Client {
    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn one(&self) {
        let started = unix_ms();
        let mut seen = Seen::default();
        let result = timeout(self.deadline, self.exchange(&mut seen))
            .await
            .unwrap_or(Err(Failure::Deadline(self.deadline)));
        let record = Record::of(String::new(), "load", started, &seen, 200, &result);
        self.with(|state| {
            if record.outcome == Outcome::Ok {
                state.took.push(record.ended.saturating_sub(started));
                state.seen.bytes += record.bytes;
                state.seen.first_byte = state.seen.first_byte.or(seen.first_byte);
                state.seen.last_byte = seen.last_byte;
                state.seen.status = seen.status;
            }
            state.totals.count(record);
        });
    }

    async fn exchange(&self, seen: &mut Seen) -> Result<(), Failure> {
        let mut request = Request::builder()
            .uri(&self.path)
            .header("host", &self.target.authority)
            .body(full(""))
            .map_err(|error| Failure::broken(&error))?;
        while let Some(connection) = self.with(|state| state.idle.pop()) {
            match self.send(connection, request, seen).await {
                Ok(()) => return Ok(()),
                Err(Unsent::Back(unsent)) => {
                    request = *unsent;
                    self.with(|state| state.totals.moved += 1);
                }
                Err(Unsent::Failed(failure)) => return Err(failure),
            }
        }
        let connection = self.open().await?;
        match self.send(connection, request, seen).await {
            Ok(()) => Ok(()),
            Err(Unsent::Failed(failure)) => Err(failure),
            Err(Unsent::Back(_)) => Err(Failure::Broken(
                "a new connection was closed before anything was sent".to_owned(),
            )),
        }
    }

    async fn open(&self) -> Result<Connection, Failure> {
        let stream = connect(&self.target, None).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Failure::broken(&error))?;
        self.with(|state| state.totals.connections += 1);
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // An error is seen by the request.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            _driver: driver,
        })
    }

    /// Sends on a connection, and keeps that for the next when the answer was whole.
    async fn send(
        &self,
        mut connection: Connection,
        request: Request<Body>,
        seen: &mut Seen,
    ) -> Result<(), Unsent> {
        // Ready once the last answer has been read to its end; an error is seen by the request.
        let _ = connection.sender.ready().await;
        let response = match connection.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return Err(match error.take_message() {
                    Some(request) => Unsent::Back(Box::new(request)),
                    None => Unsent::Failed(Failure::broken(&error.into_error())),
                });
            }
        };
        seen.head(response.status().as_u16());
        let mut body = response.into_body();
        let mut checksum = Checksum::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Unsent::Failed(Failure::broken(&error)))?;
            if let Some(piece) = frame.data_ref() {
                seen.more(piece.len());
                checksum.feed(piece);
            }
        }
        if !connection.sender.is_closed() {
            self.with(|state| state.idle.push(connection));
        }
        if seen.status == Some(200) && checksum != self.expected {
            return Err(Unsent::Failed(Failure::Broken(format!(
                "{} bytes of {}, or another checksum",
                checksum.bytes, self.expected.bytes
            ))));
        }
        Ok(())
    }

    fn record(&self, name: String, started: u64) -> Record {
        let State {
            idle: _,
            mut totals,
            took,
            seen,
        } = self.with(std::mem::take);
        totals.latencies(took);
        let outcome = totals.outcome();
        let failed = totals.sent - totals.ok;
        Record {
            name,
            kind: "load",
            started,
            first_byte: seen.first_byte,
            last_byte: seen.last_byte,
            ended: unix_ms(),
            status: seen.status,
            grpc_status: None,
            bytes: seen.bytes,
            whole: outcome == Outcome::Ok,
            outcome,
            error: (failed > 0).then(|| format!("{failed} requests of {} failed", totals.sent)),
            load: Some(totals),
        }
    }
}

/// Why there is no whole answer.
enum Unsent {
    /// The connection had been closed; here is the request.
    Back(Box<Request<Body>>),
    Failed(Failure),
}
