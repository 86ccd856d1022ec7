//! Looks at each source as often as the state machine asks, one task a source, so that an Envoy
//! that hangs delays no look at the sockets.

use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::driver::Input;
use crate::config::Config;
use crate::drain::{Event, Polling};
use crate::envoy::admin::Admin;
use crate::fetch::QueueMetrics;
use crate::inflight::sockets::{self, Buffers, Ports};

/// The longest time for which the sockets are not read because somebody listens: a closed connection of
/// a server that does not reuse its address looks like that for a minute.
const SPARED_MAX: Duration = Duration::from_secs(1);

/// Starts the pollers. They end with `tasks`, or with the other end of `inputs`.
pub(super) fn spawn(
    config: &Config,
    pace: &watch::Receiver<Polling>,
    inputs: &mpsc::Sender<Input>,
    tasks: &mut JoinSet<()>,
) {
    let admin = Admin::new(config.envoy_admin.clone());
    let queue = QueueMetrics::new(config.queue_metrics.clone());
    let ports = Ports::new(&config.workload_ports);
    let upgrades = admin.clone();
    let (envoy_pace, upgrades_pace) = (pace.clone(), pace.clone());
    let (queue_pace, sockets_pace) = (pace.clone(), pace.clone());
    let (to_envoy, to_upgrades) = (inputs.clone(), inputs.clone());
    let (to_queue, to_sockets) = (inputs.clone(), inputs.clone());
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
        let mut pace = Pace::new(upgrades_pace, |pace| pace.upgrades);
        while pace.next().await {
            let look = Event::Upgrades(upgrades.upgrades().await);
            if to_upgrades.send(Input::Event(look)).await.is_err() {
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
        let mut read: Option<Instant> = None;
        while pace.next().await {
            let fresh = read.is_some_and(|at| at.elapsed() < SPARED_MAX);
            if fresh && pace.latest().until_gone && listens(&ports.workload) {
                continue;
            }
            read = Some(Instant::now());
            // procfs answers from memory; it does not block.
            let look = Event::Sockets(sockets::read(&ports, &mut buffers));
            if to_sockets.send(Input::Event(look)).await.is_err() {
                return;
            }
        }
    });
}

/// Whether somebody listens on one of these ports. The kernel's tables say more, and cost more: they are
/// read by walking the whole machine's, some milliseconds of CPU each time. Where this cannot tell, it
/// says no.
fn listens(ports: &[u16]) -> bool {
    ports.iter().any(|port| {
        let taken = || {
            let socket = TcpSocket::new_v4()?;
            // Connections that are over, or still open, do not matter so.
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::UNSPECIFIED, *port).into())
        };
        taken().is_err_and(|error| error.kind() == ErrorKind::AddrInUse)
    })
}

/// When a source is to be looked at.
pub(super) struct Pace {
    pace: watch::Receiver<Polling>,
    of: fn(&Polling) -> Option<Duration>,
    looked: Option<Instant>,
}

impl Pace {
    pub(super) fn new(
        pace: watch::Receiver<Polling>,
        of: fn(&Polling) -> Option<Duration>,
    ) -> Pace {
        Pace {
            pace,
            of,
            looked: None,
        }
    }

    /// What was last asked for.
    fn latest(&self) -> Polling {
        *self.pace.borrow()
    }

    /// Waits until the next look is due; `false`: there will be none. Dropped, it has lost nothing.
    pub(super) async fn next(&mut self) -> bool {
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
        self.looked = Some(Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    fn pace(every: Option<u64>) -> Polling {
        Polling {
            envoy: every.map(Duration::from_millis),
            ..Polling::default()
        }
    }

    #[tokio::test]
    async fn a_port_is_taken_while_somebody_listens_and_no_longer() {
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(address).await else {
                // A machine without IPv6.
                continue;
            };
            let addr = listener.local_addr().unwrap();
            let client = TcpStream::connect(("127.0.0.1", addr.port()))
                .await
                .unwrap();
            let (server, _) = listener.accept().await.unwrap();
            assert!(listens(&[1, addr.port()]), "{address}");
            drop(listener);
            // A connection is none.
            assert!(!listens(&[addr.port()]), "{address}");
            drop((server, client));
            assert!(!listens(&[addr.port()]), "{address}");
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
