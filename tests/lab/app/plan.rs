//! A plan: what the client sends, to where and when.
//!
//! ```json
//! {
//!   "target": "http://echo.lab.svc.cluster.local", "host": null,
//!   "requests": [
//!     {"name": "a", "ask": {"kind": "slow", "seconds": 20, "headers": "first", "bytes": 1000}},
//!     {"name": "b", "after": 1.5, "http": "2", "deadline": 90, "ask": {"kind": "chunked", "chunks": 20, "every": 1}},
//!     {"name": "c", "ask": {"kind": "big", "bytes": 12000000, "rate": 200000}},
//!     {"name": "d", "ask": {"kind": "upload", "bytes": 500000, "rate": 25000}},
//!     {"name": "e", "ask": {"kind": "stream", "seconds": 45, "every": 1}},
//!     {"name": "f", "ask": {"kind": "grpc", "seconds": 45, "every": 1}},
//!     {"name": "g", "ask": {"kind": "websocket", "seconds": 60, "every": 1}},
//!     {"name": "h", "ask": {"kind": "load", "rps": 200, "seconds": 30, "delay": 0.05, "bytes": 100}},
//!     {"name": "i", "target": "http://10.1.0.7:8080", "ask": {"kind": "get", "method": "POST", "path": "/fail-liveness", "status": 200}}
//!   ]
//! }
//! ```
//!
//! Times are seconds and may have a fraction, rates bytes a second. All requests run beside each other, each on a
//! connection of its own, `after` seconds from the plan's start. `http` is "1.1" or "2" (prior knowledge); `stream`
//! and `grpc` use 2 unless told otherwise, `grpc` only 2, `websocket` and `load` only 1.1.

use std::time::Duration;

use hyper::Uri;
use serde::{Deserialize, Deserializer};

use crate::serve::ticks;
use crate::wire::{BYTES_MAX, CHUNK, TICK};

/// The most requests of a plan.
const REQUESTS_MAX: usize = 1000;
/// The most requests of a load.
const LOAD_MAX: u64 = 1_000_000;
/// What a request may take beyond what it should, where it names no deadline.
const MARGIN: Duration = Duration::from_secs(60);
/// The longest time in a plan: a day.
const TIME_MAX: Duration = tidegate::config::duration::LIMIT;

/// Why a plan cannot be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("not a plan: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{0} requests are too many; split the plan, at most {REQUESTS_MAX} each")]
    TooMany(usize),
    #[error("request {name:?}: {why}")]
    Request { name: String, why: String },
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) requests: Vec<Request>,
}

/// One request, or one load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub(crate) name: String,
    /// From the plan's start until it is sent.
    pub(crate) after: Duration,
    pub(crate) target: Target,
    pub(crate) http: Http,
    /// From its start; of a load, for each of its requests.
    pub(crate) deadline: Duration,
    pub(crate) ask: Ask,
}

/// Where to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Host and port to connect to.
    pub(crate) connect: String,
    /// What the Host header or `:authority` says.
    pub(crate) authority: String,
}

/// The protocol of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) enum Http {
    #[serde(rename = "1.1")]
    One,
    #[serde(rename = "2")]
    Two,
}

/// When an answer's head comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Headers {
    First,
    Last,
}

impl Headers {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Headers::First => "first",
            Headers::Last => "last",
        }
    }
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Ask {
    Slow {
        #[serde(deserialize_with = "time")]
        seconds: Duration,
        #[serde(default = "last")]
        headers: Headers,
        #[serde(default = "thousand")]
        bytes: u64,
    },
    Chunked {
        chunks: u64,
        #[serde(default = "second", deserialize_with = "time")]
        every: Duration,
    },
    Big {
        #[serde(default = "twelve_million")]
        bytes: u64,
        /// How fast it is read, in bytes a second.
        #[serde(default)]
        rate: Option<u64>,
    },
    Upload {
        bytes: u64,
        /// How fast it is sent, in bytes a second.
        #[serde(default)]
        rate: Option<u64>,
    },
    Stream {
        #[serde(deserialize_with = "time")]
        seconds: Duration,
        #[serde(default = "second", deserialize_with = "time")]
        every: Duration,
    },
    Grpc {
        #[serde(deserialize_with = "time")]
        seconds: Duration,
        #[serde(default = "second", deserialize_with = "time")]
        every: Duration,
    },
    WebSocket {
        #[serde(deserialize_with = "time")]
        seconds: Duration,
        #[serde(default = "second", deserialize_with = "time")]
        every: Duration,
    },
    Get {
        path: String,
        #[serde(default = "get")]
        method: String,
        #[serde(default = "ok")]
        status: u16,
    },
    Load {
        rps: f64,
        #[serde(deserialize_with = "time")]
        seconds: Duration,
        /// How long the app takes for each.
        #[serde(default, deserialize_with = "time")]
        delay: Duration,
        #[serde(default = "thousand")]
        bytes: u64,
    },
}

impl Ask {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Ask::Slow { .. } => "slow",
            Ask::Chunked { .. } => "chunked",
            Ask::Big { .. } => "big",
            Ask::Upload { .. } => "upload",
            Ask::Stream { .. } => "stream",
            Ask::Grpc { .. } => "grpc",
            Ask::WebSocket { .. } => "websocket",
            Ask::Get { .. } => "get",
            Ask::Load { .. } => "load",
        }
    }

    /// How long it takes when all is well.
    fn expected(&self) -> Duration {
        let at = |bytes: u64, rate: Option<u64>| {
            rate.map_or(Duration::ZERO, |rate| {
                Duration::from_secs(bytes.div_ceil(rate.max(1)))
            })
        };
        match *self {
            Ask::Slow { seconds, .. }
            | Ask::Stream { seconds, .. }
            | Ask::Grpc { seconds, .. }
            | Ask::WebSocket { seconds, .. } => seconds,
            Ask::Chunked { chunks, every } => {
                every.saturating_mul(u32::try_from(chunks).unwrap_or(u32::MAX))
            }
            Ask::Big { bytes, rate } | Ask::Upload { bytes, rate } => at(bytes, rate),
            Ask::Get { .. } => Duration::ZERO,
            Ask::Load { delay, .. } => delay,
        }
    }

    /// The protocol where none is named, or why the named one will not do.
    fn http(&self, named: Option<Http>) -> Result<Http, &'static str> {
        match (self, named) {
            (Ask::Grpc { .. }, Some(Http::One)) => Err("gRPC needs \"http\": \"2\""),
            (Ask::WebSocket { .. } | Ask::Load { .. }, Some(Http::Two)) => {
                Err("this kind speaks only \"http\": \"1.1\"")
            }
            (Ask::Grpc { .. } | Ask::Stream { .. }, None) => Ok(Http::Two),
            (_, named) => Ok(named.unwrap_or(Http::One)),
        }
    }

    /// Why it makes no sense.
    fn check(&self) -> Result<(), String> {
        let bytes = |bytes: u64, rate: Option<u64>| match rate {
            Some(0) => {
                Err("a rate of 0 never ends; leave it out for as fast as it goes".to_owned())
            }
            _ if bytes > BYTES_MAX => {
                Err(format!("{bytes} bytes are too many; at most {BYTES_MAX}"))
            }
            _ => Ok(()),
        };
        match self {
            Ask::Slow { bytes: length, .. } => bytes(*length, None),
            Ask::Chunked { chunks, .. } => bytes(chunks.saturating_mul(CHUNK), None),
            Ask::Big {
                bytes: length,
                rate,
            }
            | Ask::Upload {
                bytes: length,
                rate,
            } => bytes(*length, *rate),
            Ask::Stream { seconds, every }
            | Ask::Grpc { seconds, every }
            | Ask::WebSocket { seconds, every } => {
                bytes(ticks(*seconds, *every)?.saturating_mul(TICK), None)
            }
            Ask::Get { path, .. } if !path.starts_with('/') => {
                Err("path must begin with /".to_owned())
            }
            Ask::Get { .. } => Ok(()),
            Ask::Load {
                rps,
                seconds,
                bytes: length,
                ..
            } => {
                let count = load_count(*rps, *seconds);
                if !(1..=LOAD_MAX).contains(&count) {
                    return Err(format!(
                        "{rps} a second for {seconds:?} is no load; use 1 to {LOAD_MAX} requests in all"
                    ));
                }
                bytes(*length, None)
            }
        }
    }
}

/// How many requests a load has; 0 for a rate that is none.
pub(crate) fn load_count(rps: f64, time: Duration) -> u64 {
    // The cast saturates, and takes NaN for 0.
    (rps * time.as_secs_f64()).round() as u64
}

impl Plan {
    /// Reads a plan. `target` is for requests that have none in it.
    pub(crate) fn parse(json: &[u8], target: Option<&str>) -> Result<Plan, Error> {
        let Written {
            target: own,
            host,
            requests,
        } = serde_json::from_slice(json)?;
        if requests.len() > REQUESTS_MAX {
            return Err(Error::TooMany(requests.len()));
        }
        let target = own.as_deref().or(target);
        let requests = requests.into_iter().map(|request| {
            let name = request.name.clone();
            Request::of(request, target, host.as_deref())
                .map_err(|why| Error::Request { name, why })
        });
        Ok(Plan {
            requests: requests.collect::<Result<_, _>>()?,
        })
    }
}

impl Request {
    fn of(
        written: WrittenRequest,
        target: Option<&str>,
        host: Option<&str>,
    ) -> Result<Self, String> {
        let WrittenRequest {
            name,
            after,
            target: own_target,
            host: own_host,
            http,
            deadline,
            ask,
        } = written;
        ask.check()?;
        let target = own_target.as_deref().or(target);
        let target = target.ok_or("no target; give the plan one, or --target")?;
        Ok(Request {
            name,
            after,
            target: Target::parse(target, own_host.as_deref().or(host))?,
            http: ask.http(http)?,
            deadline: deadline.unwrap_or_else(|| ask.expected().saturating_add(MARGIN)),
            ask,
        })
    }
}

impl Target {
    /// Reads `http://HOST[:PORT]`; `host` replaces it in what is said, not in where to connect.
    fn parse(url: &str, host: Option<&str>) -> Result<Target, String> {
        let refused = || format!("target {url:?} is not http://HOST[:PORT]");
        let uri: Uri = url.parse().map_err(|_| refused())?;
        let authority = uri.authority().ok_or_else(refused)?;
        if uri.scheme_str() != Some("http") || !matches!(uri.path(), "" | "/") {
            return Err(refused());
        }
        Ok(Target {
            connect: format!(
                "{}:{}",
                authority.host(),
                authority.port_u16().unwrap_or(80)
            ),
            authority: host.unwrap_or(authority.as_str()).to_owned(),
        })
    }
}

// ===== as it is written =====

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    target: Option<String>,
    host: Option<String>,
    requests: Vec<WrittenRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRequest {
    name: String,
    #[serde(default, deserialize_with = "time")]
    after: Duration,
    target: Option<String>,
    host: Option<String>,
    http: Option<Http>,
    #[serde(default, deserialize_with = "maybe_time")]
    deadline: Option<Duration>,
    ask: Ask,
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time <= TIME_MAX => Ok(time),
        _ => Err(serde::de::Error::custom(format_args!(
            "{seconds} is not a number of seconds between 0 and a day"
        ))),
    }
}

fn maybe_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    time(deserializer).map(Some)
}

fn last() -> Headers {
    Headers::Last
}

fn second() -> Duration {
    Duration::from_secs(1)
}

fn thousand() -> u64 {
    1_000
}

fn twelve_million() -> u64 {
    12_000_000
}

fn get() -> String {
    "GET".to_owned()
}

fn ok() -> u16 {
    200
}
