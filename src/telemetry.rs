//! Log lines on standard output: JSON or text, with a time, and never in the way of a drain.
//!
//! A subscriber formats a line and puts it into a bounded queue; a thread of its own writes. A reader
//! that stops reading, or has gone, costs lines and nothing else.

mod clock;
mod queue;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tracing::Dispatch;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::Registry;

pub use clock::Rfc3339;
use queue::Queue;

use crate::config::LogFormat;

/// How long the last lines may take at the end of the process.
const FLUSH: Duration = Duration::from_millis(500);

/// Why logging cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The filter does not parse.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// A subscriber has been installed before.
    #[error("logging has been set up twice in this process")]
    Twice,
    /// The writing thread cannot be started.
    #[error("no thread for the log: {0}; raise the container's pids limit")]
    Thread(#[from] io::Error),
}

/// A filter that does not parse.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{directive:?} is no log level; use off, error, warn, info, debug or trace, or levels by target \
     like warn,tidegate=debug"
)]
pub struct FilterError {
    directive: String,
}

/// Parses what `log-level` may be: a level, or a list such as `info,tidegate=debug`.
pub fn filter(level: &str) -> Result<Targets, FilterError> {
    let mut targets = Targets::new();
    for directive in level.split(',').map(str::trim) {
        let refused = || FilterError {
            directive: directive.to_owned(),
        };
        // Not Targets' own parser: it takes a bare word that is no level for a target to log in full,
        // so that a typing error would silence everything else.
        let (target, level) = match directive.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, directive),
        };
        let level: LevelFilter = match level {
            "" => return Err(refused()),
            level => level.parse().map_err(|_| refused())?,
        };
        targets = match target {
            Some("") => return Err(refused()),
            Some(target) => targets.with_target(target, level),
            None => targets.with_default(level),
        };
    }
    Ok(targets)
}

/// Writes what is still queued when it is dropped, for at most half a second. Keep it until the process
/// ends; `std::process::exit` would skip it.
#[must_use = "dropping it ends logging"]
#[derive(Debug)]
pub struct Guard {
    queue: Arc<Queue>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.queue.close(FLUSH);
    }
}

/// Logs to standard output from now on.
///
/// JSON: one object a line, with `timestamp` (RFC 3339, UTC, milliseconds), `level`, `message` and the
/// event's fields beside them. Text: the same for people. Lines are dropped, and their number is
/// logged, where standard output does not take them.
pub fn init(format: LogFormat, level: &str) -> Result<Guard, Error> {
    let targets = filter(level)?;
    let (queue, guard) = start(format, io::stdout())?;
    tracing::dispatcher::set_global_default(dispatch(format, targets, move || queue.clone()))
        .map_err(|_| Error::Twice)?;
    Ok(guard)
}

/// Starts the thread that writes the queue to `out`.
fn start(
    format: LogFormat,
    mut out: impl io::Write + Send + 'static,
) -> io::Result<(queue::Sender, Guard)> {
    let queue = Arc::new(Queue::default());
    let receiver = Arc::clone(&queue);
    std::thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || {
            while let Some(taken) = receiver.take() {
                // A write that fails loses its line. The next is tried: the reader of a pipe does not
                // come back, but a full disk may.
                if taken.lost > 0 {
                    let _ = out.write_all(lost_line(format, taken.lost).as_bytes());
                }
                let _ = out.write_all(&taken.line).and_then(|()| out.flush());
                receiver.written();
            }
        })?;
    Ok((queue::Sender(Arc::clone(&queue)), Guard { queue }))
}

/// Written by hand, since it tells of what did not go through the subscriber.
fn lost_line(format: LogFormat, lost: u64) -> String {
    let now = Rfc3339(SystemTime::now());
    let message = "standard output was too slow; log lines were dropped";
    match format {
        LogFormat::Json => format!(
            "{{\"timestamp\":\"{now}\",\"level\":\"WARN\",\"message\":\"{message}\",\"lost\":{lost}}}\n"
        ),
        LogFormat::Text => format!("{now}  WARN {message} lost={lost}\n"),
    }
}

struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{}", Rfc3339(SystemTime::now()))
    }
}

fn dispatch<W>(format: LogFormat, targets: Targets, writer: W) -> Dispatch
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer()
        .with_writer(writer)
        .with_timer(Clock)
        .with_target(false)
        // It would go to standard error by eprintln!, which panics where that is closed.
        .log_internal_errors(false);
    let layer: Box<dyn Layer<Registry> + Send + Sync> = match format {
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
        LogFormat::Text => layer.with_ansi(false).boxed(),
    };
    Dispatch::new(tracing_subscriber::registry().with(layer).with(targets))
}
