//! How long to wait before a failed call is made again.

use std::time::Duration;

/// The first delay.
pub const FIRST: Duration = Duration::from_millis(50);

/// The longest delay.
pub const LONGEST: Duration = Duration::from_secs(1);

/// Delays without end: 50 ms, doubling, then 1 s each. Who retries decides how long it matters.
#[derive(Clone, Debug)]
pub struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff { next: FIRST }
    }
}

impl Backoff {
    /// The next delay.
    pub fn delay(&mut self) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(LONGEST);
        delay
    }
}

impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.delay())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_second_and_stays() {
        let delays: Vec<_> = Backoff::default().take(8).collect();
        let expected = [50, 100, 200, 400, 800, 1000, 1000, 1000];
        assert_eq!(delays, expected.map(Duration::from_millis));
    }
}
