//! What became of a request: one JSON line.
//!
//! | field | |
//! |---|---|
//! | `name`, `kind` | of the plan |
//! | `started`, `ended` | Unix milliseconds (CLOCK_REALTIME): before connecting, and when it was over |
//! | `first_byte`, `last_byte` | when the answer's head came, and the last of its body that did; `null`: never |
//! | `status` | the HTTP status, 101 of a WebSocket; `null`: none came |
//! | `grpc_status` | only where one came |
//! | `bytes` | of the answer's body; of an upload, those that the app has confirmed; of a WebSocket, echoed |
//! | `whole` | all there: length and checksum; trailers; closing handshake with code 1000 |
//! | `outcome` | `ok`, `lost`, `cut`, `refused`: see [`Outcome`] |
//! | `error` | what broke, for people; `null`: nothing |
//! | `load` | only of a load: see [`Totals`] |

use serde::Serialize;

use crate::wire::unix_ms;

/// A failure of a load that is told one by one; more are only counted.
const FAILURES_MAX: usize = 1_000;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// The status that was expected, and everything whole.
    Ok,
    /// No connection: nothing was sent.
    Refused,
    /// The status that was expected, but what followed ended early.
    Cut,
    /// No status, or one that nobody asked for, a 5xx say; gRPC's in the place of an answer, too.
    Lost,
}

/// Why an exchange ended early.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("{0}")]
    Broken(String),
    #[error("not over within its deadline of {0:?}")]
    Deadline(std::time::Duration),
}

impl Failure {
    /// What broke, with its causes.
    pub(crate) fn broken(error: &dyn std::error::Error) -> Failure {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        Failure::Broken(text)
    }
}

/// What is seen of an exchange while it goes on; stays when that is given up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) first_byte: Option<u64>,
    pub(crate) last_byte: Option<u64>,
    pub(crate) status: Option<u16>,
    pub(crate) grpc_status: Option<u32>,
    /// The answer is nothing but a gRPC status.
    pub(crate) grpc_status_only: bool,
    pub(crate) bytes: u64,
}

impl Seen {
    /// The answer's head has come.
    pub(crate) fn head(&mut self, status: u16) {
        let now = unix_ms();
        self.status = Some(status);
        self.first_byte = Some(now);
        self.last_byte = Some(now);
    }

    /// More of the answer has come.
    pub(crate) fn more(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.last_byte = Some(unix_ms());
    }

    /// What became of it: `wanted` is the status that was expected.
    pub(crate) fn outcome(&self, wanted: u16, result: &Result<(), Failure>) -> Outcome {
        match (self.status, result) {
            (None, Err(Failure::Connect(_))) => Outcome::Refused,
            (Some(status), Ok(())) if status == wanted => Outcome::Ok,
            (Some(status), Err(_)) if status == wanted && !self.grpc_status_only => Outcome::Cut,
            _ => Outcome::Lost,
        }
    }
}

/// One line of output.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) kind: &'static str,
    pub(crate) started: u64,
    pub(crate) first_byte: Option<u64>,
    pub(crate) last_byte: Option<u64>,
    pub(crate) ended: u64,
    pub(crate) status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grpc_status: Option<u32>,
    pub(crate) bytes: u64,
    pub(crate) whole: bool,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<Totals>,
}

impl Record {
    /// The line of a single request.
    pub(crate) fn of(
        name: String,
        kind: &'static str,
        started: u64,
        seen: &Seen,
        wanted: u16,
        result: &Result<(), Failure>,
    ) -> Record {
        let outcome = seen.outcome(wanted, result);
        let error = match result {
            Err(failure) => Some(failure.to_string()),
            Ok(()) => seen
                .status
                .filter(|status| *status != wanted)
                .map(|status| format!("status {status}, not {wanted}")),
        };
        Record {
            name,
            kind,
            started,
            first_byte: seen.first_byte,
            last_byte: seen.last_byte,
            ended: unix_ms(),
            status: seen.status,
            grpc_status: seen.grpc_status,
            bytes: seen.bytes,
            whole: outcome == Outcome::Ok,
            outcome,
            error,
            load: None,
        }
    }

    /// The line itself, with its end.
    pub(crate) fn line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// What became of a load's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// `ok`, `lost`, `cut` and `refused` together.
    pub(crate) sent: u64,
    pub(crate) ok: u64,
    pub(crate) lost: u64,
    pub(crate) cut: u64,
    pub(crate) refused: u64,
    /// Not sent, since too many were in flight.
    pub(crate) skipped: u64,
    /// Connections that were opened.
    pub(crate) connections: u64,
    /// Requests that found their kept connection closed before a byte was sent, and took another.
    pub(crate) moved: u64,
    /// From the start to the last byte of those that were ok.
    pub(crate) p50_ms: u64,
    pub(crate) p99_ms: u64,
    pub(crate) max_ms: u64,
    /// What failed, the first thousand.
    pub(crate) failures: Vec<LoadFailure>,
}

/// A request of a load that was not ok.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct LoadFailure {
    pub(crate) started: u64,
    pub(crate) ended: u64,
    pub(crate) status: Option<u16>,
    pub(crate) outcome: Outcome,
    pub(crate) error: Option<String>,
}

impl Totals {
    pub(crate) fn count(&mut self, one: Record) {
        self.sent += 1;
        match one.outcome {
            Outcome::Ok => {
                self.ok += 1;
                return;
            }
            Outcome::Refused => self.refused += 1,
            Outcome::Cut => self.cut += 1,
            Outcome::Lost => self.lost += 1,
        }
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(LoadFailure {
                started: one.started,
                ended: one.ended,
                status: one.status,
                outcome: one.outcome,
                error: one.error,
            });
        }
    }

    /// The worst that became of any.
    pub(crate) fn outcome(&self) -> Outcome {
        match self {
            Totals { lost: 1.., .. } => Outcome::Lost,
            Totals { cut: 1.., .. } => Outcome::Cut,
            Totals { refused: 1.., .. } => Outcome::Refused,
            _ => Outcome::Ok,
        }
    }

    /// Notes how long those that were ok took.
    pub(crate) fn latencies(&mut self, mut took: Vec<u64>) {
        took.sort_unstable();
        // Nearest rank; none is 0.
        let rank = |percent: usize| {
            let at = (took.len() * percent).div_ceil(100).saturating_sub(1);
            took.get(at).copied().unwrap_or_default()
        };
        (self.p50_ms, self.p99_ms, self.max_ms) = (rank(50), rank(99), rank(100));
    }
}
