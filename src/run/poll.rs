//! Looks at each source as often as the state machine asks, one task a source, so that an Envoy
//! that hangs delays no look at the sockets.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::driver::Input;
use crate::config::Config;
use crate::drain::{Event, Polling};
use crate::envoy::admin::Admin;
use crate::fetch::QueueMetrics;
use crate::inflight::sockets::{self, Buffers, Ports};

/// Starts the three pollers. They end with `tasks`, or with the other end of `inputs`.
pub(super) fn spawn(
    config: &Config,
    pace: &watch::Receiver<Polling>,
    inputs: &mpsc::Sender<Input>,
    tasks: &mut JoinSet<()>,
) {
    let admin = Admin::new(config.envoy_admin.clone());
    let queue = QueueMetrics::new(config.queue_metrics.clone());
    let ports = Ports::new(&config.workload_ports);
    let (envoy_pace, queue_pace, sockets_pace) = (pace.clone(), pace.clone(), pace.clone());
    let (to_envoy, to_queue, to_sockets) = (inputs.clone(), inputs.clone(), inputs.clone());
    tasks.spawn(async move {
        let mut pace = Pace::new(envoy_pace, |pace| pace.envoy);
        while pace.next().await {
            let look = Event::Envoy(admin.clusters().await);
            if to_envoy.send(Input::Event(look)).await.is_err() {
                return;
            }
        }
    });
    tasks.spawn(async move {
        let mut pace = Pace::new(queue_pace, |pace| pace.queue);
        while pace.next().await {
            let look = Event::Queue(queue.read().await);
            if to_queue.send(Input::Event(look)).await.is_err() {
                return;
            }
        }
    });
    tasks.spawn(async move {
        let mut pace = Pace::new(sockets_pace, |pace| pace.sockets);
        let mut buffers = Buffers::default();
        while pace.next().await {
            // procfs answers from memory; it does not block.
            let look = Event::Sockets(sockets::read(&ports, &mut buffers));
            if to_sockets.send(Input::Event(look)).await.is_err() {
                return;
            }
        }
    });
}

/// When a source is to be looked at.
struct Pace {
    pace: watch::Receiver<Polling>,
    of: fn(&Polling) -> Option<Duration>,
    looked: Option<tokio::time::Instant>,
}

impl Pace {
    fn new(pace: watch::Receiver<Polling>, of: fn(&Polling) -> Option<Duration>) -> Pace {
        Pace {
            pace,
            of,
            looked: None,
        }
    }

    /// Waits until the next look is due; `false`: there will be none.
    async fn next(&mut self) -> bool {
        loop {
            let every = (self.of)(&self.pace.borrow_and_update());
            let due = match (every, self.looked) {
                (None, _) => {
                    self.looked = None;
                    if self.pace.changed().await.is_err() {
                        return false;
                    }
                    continue;
                }
                (Some(_), None) => break,
                (Some(every), Some(looked)) => looked + every,
            };
            tokio::select! {
                () = tokio::time::sleep_until(due) => break,
                changed = self.pace.changed() => {
                    if changed.is_err() {
                        return false;
                    }
                }
            }
        }
        self.looked = Some(tokio::time::Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn pace(every: Option<u64>) -> Polling {
        Polling {
            envoy: every.map(Duration::from_millis),
            ..Polling::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn looks_at_once_then_at_the_pace_and_takes_a_faster_one_at_once() {
        let (sender, receiver) = watch::channel(pace(Some(250)));
        let mut pace_of_envoy = Pace::new(receiver, |pace| pace.envoy);
        let start = Instant::now();
        assert!(pace_of_envoy.next().await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(pace_of_envoy.next().await);
        assert_eq!(start.elapsed(), Duration::from_millis(250));
        let (next, ()) = tokio::join!(pace_of_envoy.next(), async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            sender.send_replace(pace(Some(50)));
        });
        assert!(next);
        assert_eq!(start.elapsed(), Duration::from_millis(300));
        sender.send_replace(pace(None));
        drop(sender);
        assert!(!pace_of_envoy.next().await);
    }
}
