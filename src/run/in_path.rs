//! The gate, as a drain sees it.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::driver::Input;
use super::poll::Pace;
use crate::certs::Files;
use crate::config::{self, Config};
use crate::drain::{Event, Polling};
use crate::gate::counter::Kind;
use crate::gate::engine::Stage;
use crate::gate::{self, GateConfig, Limits, Mode, Route, Tls};
use crate::inflight::GateRequests;

/// How often the gate's certificate is looked at; the kubelet renews what it mounts within a minute or
/// two.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(30);

/// Between two looks that the gate itself asked for: many short requests may turn it idle thousands of
/// times a second.
const PAUSE: Duration = Duration::from_millis(2);

/// What a drain asks of the gate. Nothing here blocks.
pub trait Gate: Send + Sync {
    /// What is in flight.
    fn look(&self) -> GateRequests;

    /// Ends at a moment when nothing is in flight.
    fn idle(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Closes it if nothing is in flight at that moment; whether it is closed.
    fn close_if_idle(&self) -> bool;

    /// The drain has come to this stage.
    fn stage(&self, stage: Stage);
}

impl Gate for gate::Gate {
    fn look(&self) -> GateRequests {
        let counter = self.counter();
        GateRequests {
            active: counter.in_flight(),
            streams: counter.active(Kind::Stream) + counter.active(Kind::Tunnel),
            total: counter.total(),
        }
    }

    fn idle(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let counter = self.counter();
        Box::pin(async move { counter.idle().await })
    }

    fn close_if_idle(&self) -> bool {
        self.counter().close_if_idle()
    }

    fn stage(&self, stage: Stage) {
        gate::Gate::stage(self, stage);
    }
}

/// The gate that the configuration asks for.
pub(super) fn gate_config(config: &Config) -> Option<GateConfig> {
    let mode = match config.gate {
        config::Gate::Off => return None,
        config::Gate::Http => Mode::Http,
        config::Gate::Tcp => Mode::Tcp,
    };
    let route = |port: &config::GatePort| Route {
        listen: port.listen,
        upstream: SocketAddr::from((Ipv4Addr::LOCALHOST, port.upstream)),
    };
    Some(GateConfig {
        mode,
        routes: config.gate_ports.iter().map(route).collect(),
        tls: config.gate_tls.as_ref().map(|folder| Tls {
            files: Files {
                cert: folder.join("tls.crt"),
                key: folder.join("tls.key"),
            },
            look_every: CERTIFICATE_LOOK,
        }),
        limits: Limits::default(),
        announce: config.timing.announce_delay,
    })
}

/// Looks at the gate at the pace asked for, and whenever it turns idle.
pub(super) fn watch_idle(
    gate: Arc<dyn Gate>,
    pace: watch::Receiver<Polling>,
    inputs: mpsc::Sender<Input>,
    tasks: &mut JoinSet<()>,
) {
    tasks.spawn(async move {
        let mut pace = Pace::new(pace, |pace| pace.gate);
        let mut more = pace.next().await;
        while more {
            let look = gate.look();
            if inputs.send(Input::Event(Event::Gate(look))).await.is_err() {
                return;
            }
            let turns_idle = async {
                if look.active == 0 {
                    std::future::pending::<()>().await;
                }
                sleep(PAUSE).await;
                gate.idle().await;
            };
            more = tokio::select! {
                more = pace.next() => more,
                () = turns_idle => true,
            };
        }
    });
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    /// A gate whose count the test sets.
    struct Counted(watch::Sender<u64>);

    impl Gate for Counted {
        fn look(&self) -> GateRequests {
            GateRequests {
                active: *self.0.borrow(),
                ..GateRequests::default()
            }
        }

        fn idle(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            let mut count = self.0.subscribe();
            Box::pin(async move {
                let _ = count.wait_for(|active| *active == 0).await;
            })
        }

        fn close_if_idle(&self) -> bool {
            *self.0.borrow() == 0
        }

        fn stage(&self, _: Stage) {}
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_last_request_is_told_at_once() {
        let gate = Arc::new(Counted(watch::channel(1).0));
        let every = Duration::from_secs(10);
        let (_pace, paced) = watch::channel(Polling {
            gate: Some(every),
            ..Polling::default()
        });
        let (told, mut inputs) = mpsc::channel(4);
        let mut tasks = JoinSet::new();
        watch_idle(gate.clone(), paced, told, &mut tasks);
        let start = Instant::now();
        let mut next = async || match inputs.recv().await {
            Some(Input::Event(Event::Gate(look))) => (look.active, start.elapsed()),
            _ => panic!("another input"),
        };
        assert_eq!(next().await, (1, Duration::ZERO));
        sleep(Duration::from_secs(1)).await;
        gate.0.send_replace(0);
        assert_eq!(next().await, (0, Duration::from_secs(1)));
        // Then by the pace: it is idle all the time.
        assert_eq!(next().await.1, every);
    }
}
