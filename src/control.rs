//! The two commands that the kubelet runs inside our own container, `tidegate drain` and
//! `tidegate probe`: one request to `tidegate run` over loopback, and an exit code.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::exit;

#[cfg(test)]
mod tests;

/// The exit code of a probe that failed; the kubelet knows only zero and other.
const PROBE_FAILED: u8 = 1;
/// No answer of the hooks that matters here is longer.
const ANSWER_MAX: usize = 4096;

/// What `tidegate probe` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// `/readyz`: fails once a drain has begun.
    Ready,
    /// `/livez`: fails only where nobody answers.
    Live,
}

/// How long a command tries.
#[derive(Clone, Copy, Debug)]
struct Patience {
    /// From the start, for all attempts.
    overall: Duration,
    /// How long an attempt that was turned away is followed by another one: `tidegate run` may be
    /// starting still.
    retry: Duration,
    /// Between two attempts.
    pause: Duration,
}

const DRAIN: Patience = Patience {
    overall: Duration::from_secs(3),
    retry: Duration::from_secs(2),
    pause: Duration::from_millis(100),
};

const PROBE: Patience = Patience {
    overall: Duration::from_secs(1),
    retry: Duration::ZERO,
    pause: Duration::ZERO,
};

#[derive(Debug, Error)]
enum AskError {
    #[error(
        "cannot reach tidegate run on 127.0.0.1:{port}: {source}; \
         give it and this command the same tidegate.dev/hook-port (TIDEGATE_HOOK_PORT)"
    )]
    Unreachable { port: u16, source: io::Error },
    #[error(
        "tidegate run on 127.0.0.1:{port} gave no whole answer within {limit:?}; \
         look at its log and its CPU limit"
    )]
    Timeout { port: u16, limit: Duration },
    #[error(
        "what listens on 127.0.0.1:{port} does not speak HTTP, so it is not tidegate run; \
         set tidegate.dev/hook-port (TIDEGATE_HOOK_PORT) to the port that is"
    )]
    Garbage { port: u16 },
    #[error("127.0.0.1:{port} answered {status}: {body}")]
    Status {
        port: u16,
        status: u16,
        body: String,
    },
}

impl AskError {
    /// Whether another attempt may fare better: nobody listens yet, or all slots are taken.
    fn is_passing(&self) -> bool {
        match self {
            AskError::Unreachable { source, .. } => {
                source.kind() == io::ErrorKind::ConnectionRefused
            }
            AskError::Status { status, .. } => *status == 503,
            AskError::Timeout { .. } | AskError::Garbage { .. } => false,
        }
    }
}

/// Tells `tidegate run` that the pod is going. Returns the exit code; the reason of a failure goes
/// to stderr, where the kubelet finds it for its FailedPreStopHook event.
pub fn drain(port: u16) -> u8 {
    match run(ask(port, "POST /drain", DRAIN)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tidegate drain: {error}");
            exit::UNAVAILABLE
        }
    }
}

/// Asks `tidegate run` whether it is ready or alive. Returns the exit code, 0 or 1; the reason of
/// a failure (the phase, where it is a drain) goes to stderr.
pub fn probe(port: u16, what: Probe) -> u8 {
    let request = match what {
        Probe::Ready => "GET /readyz",
        Probe::Live => "GET /livez",
    };
    match run(ask(port, request, PROBE)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("tidegate probe: {error}");
            PROBE_FAILED
        }
    }
}

fn run(asked: impl Future<Output = Result<(), AskError>>) -> Result<(), String> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| format!("cannot start: {e}"))?
        .block_on(asked)
        .map_err(|e| e.to_string())
}

/// Sends `request` ("VERB PATH") until it is answered with 200 or patience ends.
async fn ask(port: u16, request: &str, patience: Patience) -> Result<(), AskError> {
    let began = Instant::now();
    loop {
        let left = patience.overall.saturating_sub(began.elapsed());
        let error = match timeout(left, attempt(port, request)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => AskError::Timeout {
                port,
                limit: patience.overall,
            },
        };
        if !error.is_passing() || began.elapsed() + patience.pause >= patience.retry {
            return Err(error);
        }
        sleep(patience.pause).await;
    }
}

async fn attempt(port: u16, request: &str) -> Result<(), AskError> {
    let unreachable = |source| AskError::Unreachable { port, source };
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .map_err(unreachable)?;
    let head = format!(
        "{request} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    );
    stream
        .write_all(head.as_bytes())
        .await
        .map_err(unreachable)?;
    let mut answer = Vec::new();
    stream
        .take(ANSWER_MAX as u64)
        .read_to_end(&mut answer)
        .await
        .map_err(unreachable)?;
    match status(&answer) {
        Some(200) => Ok(()),
        Some(status) => Err(AskError::Status {
            port,
            status,
            body: body(&answer),
        }),
        None => Err(AskError::Garbage { port }),
    }
}

/// The status of an HTTP/1 answer.
fn status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|b| *b == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line
        .strip_prefix("HTTP/1.1 ")
        .or_else(|| line.strip_prefix("HTTP/1.0 "))?;
    let digits = rest.get(..3)?;
    let ended = rest[3..].is_empty() || rest[3..].starts_with(' ');
    (ended && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// The first line of an answer's body.
fn body(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    body.lines().next().unwrap_or_default().to_owned()
}
