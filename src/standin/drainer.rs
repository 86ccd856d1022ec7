//! The quiet timer of queue-proxy: knative/pkg's `Drainer`.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Blocks a drain until no request has arrived for the quiet period.
#[derive(Clone, Debug)]
pub(crate) struct Drainer {
    quiet: Duration,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Serving,
    /// Drained at this instant, unless a request moves it.
    Draining(Instant),
    Drained,
}

impl Drainer {
    pub(crate) fn new(quiet: Duration) -> Drainer {
        Drainer {
            quiet,
            state: watch::Sender::new(State::Serving),
        }
    }

    /// Begins a drain or joins the one under way; returns when it is over or reset.
    pub(crate) async fn drain(&self) {
        let mut state = self.state.subscribe();
        self.state.send_if_modified(|state| {
            let begin = *state == State::Serving;
            if begin {
                *state = State::Draining(Instant::now() + self.quiet);
            }
            begin
        });
        loop {
            let State::Draining(until) = *state.borrow_and_update() else {
                return;
            };
            tokio::select! {
                // The sender lives in `self`, so the wait cannot fail.
                _ = state.changed() => {}
                () = tokio::time::sleep_until(until) => {
                    self.state.send_if_modified(|state| {
                        let over = *state == State::Draining(until);
                        if over {
                            *state = State::Drained;
                        }
                        over
                    });
                }
            }
        }
    }

    /// Lets every drain return and serves on.
    pub(crate) fn reset(&self) {
        self.state.send_replace(State::Serving);
    }

    /// A request that is not a probe: the quiet period begins anew.
    pub(crate) fn arrival(&self) {
        self.state.send_if_modified(|state| {
            let draining = matches!(state, State::Draining(_));
            if draining {
                *state = State::Draining(Instant::now() + self.quiet);
            }
            draining
        });
    }

    pub(crate) fn draining(&self) -> bool {
        *self.state.borrow() != State::Serving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn arrivals_move_the_end_and_all_waiters_see_it() {
        let drainer = Drainer::new(QUIET);
        drainer.arrival();
        assert!(!drainer.draining());
        let start = Instant::now();
        let arrive = async {
            tokio::time::sleep(Duration::from_secs(15)).await;
            drainer.arrival();
            assert!(drainer.draining());
        };
        tokio::join!(drainer.drain(), drainer.drain(), arrive);
        assert_eq!(start.elapsed().as_secs(), 45);
        drainer.drain().await;
        assert_eq!(start.elapsed().as_secs(), 45, "drained stays drained");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reset_lets_go_and_the_next_drain_is_a_new_one() {
        let drainer = Drainer::new(QUIET);
        let start = Instant::now();
        let reset = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drainer.reset();
        };
        tokio::join!(drainer.drain(), reset);
        assert_eq!(start.elapsed().as_secs(), 1);
        assert!(!drainer.draining());
        drainer.drain().await;
        assert_eq!(start.elapsed().as_secs(), 31);
    }
}
