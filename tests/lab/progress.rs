//! Tells a person how far the lab has come.

use tokio::time::Instant;

/// Prints each step with the seconds it took.
pub(crate) struct Progress {
    started: Instant,
    last: Instant,
}

impl Progress {
    pub(crate) fn start() -> Progress {
        let now = Instant::now();
        Progress {
            started: now,
            last: now,
        }
    }

    /// Says that a step is done.
    pub(crate) fn done(&mut self, what: &str) {
        let now = Instant::now();
        println!(
            "{:6.1} s  {what} ({:.1} s)",
            (now - self.started).as_secs_f64(),
            (now - self.last).as_secs_f64()
        );
        self.last = now;
    }
}
