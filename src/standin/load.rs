//! Clients that count what is lost: a steady open-loop load, slow requests, idle keep-alives.
//!
//! Endpoints are modelled: for [`Config::endpoint_lag`] after the pod's deletion clients still send
//! to it, then no more. A connection that is refused cost nothing, since a mesh tries another
//! endpoint: it counts as `elsewhere`. Whatever fails after the request was sent is lost, and so is
//! a status other than 2xx and a short body. Not modelled: retries of requests that were sent.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use super::{Process, Scale, Scope};

/// Losses remembered one by one; more are only counted.
const LOSSES_MAX: usize = 10_000;
/// Requests of the open loop in flight at once; beyond that it waits.
const IN_FLIGHT_MAX: u64 = 1_000;
/// The longest that a request may take, in real time; then it is lost.
const REQUEST_MAX: Duration = Duration::from_secs(600);

/// How a load is started.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where to.
    pub target: SocketAddr,
    /// What to ask for.
    pub path: String,
    /// How many bytes the body must have.
    pub bytes: u64,
    /// Requests a second (a real one), each on a connection of its own.
    pub fresh_rate: f64,
    /// Kept connections, each one request after the other.
    pub kept: usize,
    /// Requests a second (a real one) on each kept connection.
    pub kept_rate: f64,
    /// From the deletion until clients stop sending to the pod (modelled).
    pub endpoint_lag: Duration,
    /// How fast the endpoints live.
    pub scale: Scale,
}

/// What became of the requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Sent to the pod; `ok` and `lost` when all are over.
    pub sent: u64,
    /// Answered 2xx with the whole body.
    pub ok: u64,
    /// Not so.
    pub lost: u64,
    /// Refused before anything was sent: another endpoint serves them.
    pub elsewhere: u64,
    /// The losses, at most 10,000 of them.
    pub losses: Vec<Loss>,
}

/// A lost request.
#[derive(Clone, Debug)]
pub struct Loss {
    /// When it was known.
    pub at: Instant,
    /// A status, or what broke.
    pub reason: String,
}

/// A running load.
#[derive(Debug)]
pub struct Handle {
    process: Process,
    tally: Shared,
    /// When clients stop sending, once known.
    converged: watch::Sender<Option<Instant>>,
    lag: Duration,
}

#[derive(Clone, Debug, Default)]
struct Shared(Arc<Mutex<Tally>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, outcome: Outcome) {
        let mut tally = self.lock();
        match outcome {
            Outcome::Ok => tally.ok += 1,
            Outcome::Elsewhere => {
                tally.elsewhere += 1;
                return;
            }
            Outcome::Lost(reason) => {
                tally.lost += 1;
                if tally.losses.len() < LOSSES_MAX {
                    tally.losses.push(Loss {
                        at: Instant::now(),
                        reason,
                    });
                }
            }
        }
        tally.sent += 1;
    }
}

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered 2xx with the whole body.
    Ok,
    /// Refused before anything was sent.
    Elsewhere,
    /// A status, or what broke.
    Lost(String),
}

/// Starts a load.
pub fn start(config: Config) -> Handle {
    let tally = Shared::default();
    let converged = watch::Sender::new(None);
    let lag = config.scale.real(config.endpoint_lag);
    let (counts, endpoints) = (tally.clone(), converged.subscribe());
    let process = Process::start("load", move |scope| run(scope, config, counts, endpoints));
    Handle {
        process,
        tally,
        converged,
        lag,
    }
}

impl Handle {
    /// The pod has been deleted: after the lag of the endpoints nothing more is sent to it.
    pub fn deleted(&self) {
        self.converged.send_replace(Some(Instant::now() + self.lag));
    }

    /// What is known so far.
    pub fn tally(&self) -> Tally {
        self.tally.lock().clone()
    }

    /// Sends nothing more, waits for what is in flight and says what became of all.
    pub async fn stop(self) -> Tally {
        self.converged.send_replace(Some(Instant::now()));
        self.process.exited().await;
        self.tally()
    }
}

async fn run(
    scope: Scope,
    config: Config,
    tally: Shared,
    mut endpoints: watch::Receiver<Option<Instant>>,
) -> u8 {
    let mut kept = JoinSet::new();
    if config.kept_rate > 0.0 {
        for _ in 0..config.kept {
            kept.spawn(keep(config.clone(), tally.clone(), endpoints.clone()));
        }
    }
    let in_flight = super::gauge::Gauge::new();
    if config.fresh_rate > 0.0 {
        let mut ticks = ticks(config.fresh_rate);
        while tick(&mut ticks, &mut endpoints).await {
            if in_flight.value() >= IN_FLIGHT_MAX {
                continue;
            }
            let (config, tally, open) = (config.clone(), tally.clone(), in_flight.enter());
            scope.spawn(async move {
                tally.record(get(config.target, &config.path, config.bytes).await);
                drop(open);
            });
        }
    }
    while kept.join_next().await.is_some() {}
    in_flight.zero().await;
    0
}

fn ticks(rate: f64) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(Duration::from_secs_f64(1.0 / rate.clamp(0.01, 1e5)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Waits for the next tick; `false` once the endpoints have converged.
async fn tick(
    ticks: &mut tokio::time::Interval,
    endpoints: &mut watch::Receiver<Option<Instant>>,
) -> bool {
    loop {
        let until = *endpoints.borrow_and_update();
        let converged = async {
            match until {
                Some(until) => tokio::time::sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = converged => return false,
            changed = endpoints.changed() => if changed.is_err() { return false },
            _ = ticks.tick() => return true,
        }
    }
}

/// One kept connection: opened anew when the server has closed it.
async fn keep(config: Config, tally: Shared, mut endpoints: watch::Receiver<Option<Instant>>) {
    let mut connection: Option<Connection> = None;
    let mut ticks = ticks(config.kept_rate);
    while tick(&mut ticks, &mut endpoints).await {
        let open = match connection.take().filter(Connection::usable) {
            Some(open) => Some(open),
            None => Connection::open(config.target).await.ok(),
        };
        let Some(mut open) = open else {
            tally.record(Outcome::Elsewhere);
            continue;
        };
        tally.record(open.get(config.target, &config.path, config.bytes).await);
        connection = Some(open);
    }
}

/// One request on a connection of its own.
pub async fn get(target: SocketAddr, path: &str, bytes: u64) -> Outcome {
    match Connection::open(target).await {
        Ok(mut connection) => connection.get(target, path, bytes).await,
        Err(_) => Outcome::Elsewhere,
    }
}

/// One request that must end, and then an idle connection: waits until the server closes it.
pub async fn idle(target: SocketAddr) -> Outcome {
    let Ok(mut connection) = Connection::open(target).await else {
        return Outcome::Elsewhere;
    };
    let outcome = connection.get(target, "/?bytes=1", 1).await;
    // How the task behind the connection ended says no more than that it did.
    while connection.task.join_next().await.is_some() {}
    outcome
}

struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    /// Drives the connection; cut when this is dropped.
    task: JoinSet<()>,
}

impl Connection {
    async fn open(target: SocketAddr) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(target).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(std::io::Error::other)?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            let _ = connection.await;
        });
        Ok(Connection { sender, task })
    }

    fn usable(&self) -> bool {
        !self.sender.is_closed()
    }

    async fn get(&mut self, target: SocketAddr, path: &str, bytes: u64) -> Outcome {
        match tokio::time::timeout(REQUEST_MAX, self.try_get(target, path, bytes)).await {
            Ok(outcome) => outcome,
            Err(_) => Outcome::Lost("timeout".to_owned()),
        }
    }

    async fn try_get(&mut self, target: SocketAddr, path: &str, bytes: u64) -> Outcome {
        let request = Request::get(path)
            .header(header::HOST, target.to_string())
            .body(Empty::<Bytes>::new());
        let request = match request {
            Ok(request) => request,
            Err(error) => return Outcome::Lost(error.to_string()),
        };
        // Until the last answer is read to its end; an error is seen by the request itself.
        let _ = self.sender.ready().await;
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                return match error.take_message() {
                    // Closed while it was idle: not a byte was sent.
                    Some(_) => Outcome::Elsewhere,
                    None => Outcome::Lost(error.into_error().to_string()),
                };
            }
        };
        let status = response.status();
        let mut body = response.into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => read += frame.data_ref().map_or(0, |data| data.len() as u64),
                Err(error) => return Outcome::Lost(format!("{status}, then {error}")),
            }
        }
        if !status.is_success() {
            return Outcome::Lost(status.as_u16().to_string());
        }
        if read != bytes {
            return Outcome::Lost(format!("{status}, {read} of {bytes} bytes"));
        }
        Outcome::Ok
    }
}

#[cfg(test)]
mod tests;
