//! The hook server's thread: accepts, bounds, and finishes without cutting anybody.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::hooks::conn::{self, Origin};
use crate::hooks::routes::App;
use crate::hooks::{Board, Limits, Notice};
use crate::metrics::Metrics;
use crate::net;

/// What the thread may take longer than it was told to, on a busy node.
const SLACK: Duration = Duration::from_millis(100);

/// What the thread gives itself where nobody said how long it may take.
const UNATTENDED: Duration = Duration::from_secs(1);

/// The running hook server. Dropped without [`Server::finish`], it finishes by itself, and nobody
/// waits for it.
#[derive(Debug)]
pub struct Server {
    finish: watch::Sender<Option<Duration>>,
    finished: oneshot::Receiver<bool>,
}

impl Server {
    pub(super) fn start(
        listener: std::net::TcpListener,
        limits: Limits,
        notices: mpsc::Sender<Notice>,
        board: watch::Receiver<Board>,
        metrics: Arc<Metrics>,
    ) -> io::Result<Server> {
        let (finish, finishing) = watch::channel(None);
        let (tell, finished) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let app = Arc::new(App {
            limits,
            notices,
            board,
            metrics,
            finish: finishing,
            next_hook: AtomicU64::new(0),
        });
        thread::Builder::new()
            .name("hooks".to_owned())
            .spawn(move || {
                let all_left = runtime.block_on(run(listener, app));
                // Whoever is not done by now is cut here, before anybody is told.
                drop(runtime);
                let _ = tell.send(all_left);
            })?;
        Ok(Server { finish, finished })
    }

    /// Stops accepting, answers every hold that is still open, closes idle connections, and lets
    /// answers leave; gives up after `within`. Returns whether everything had left by then.
    pub async fn finish(self, within: Duration) -> bool {
        self.finish.send_replace(Some(within));
        matches!(timeout(within + SLACK, self.finished).await, Ok(Ok(true)))
    }
}

async fn run(listener: TcpListener, app: Arc<App>) -> bool {
    let slots = Slots::new(&app.limits);
    let mut connections = JoinSet::new();
    let mut starved = false;
    loop {
        tokio::select! {
            () = app.finishing() => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            (tcp, peer) = net::accept(&listener, app.limits.accept_backoff, &mut starved) => {
                slots.admit(tcp, peer, &app, &mut connections);
            }
        }
    }
    net::drain_backlog(listener, |tcp, peer| {
        slots.admit(tcp, peer, &app, &mut connections);
    })
    .await;
    let within = app.finish.borrow().unwrap_or(UNATTENDED);
    let left = async { while connections.join_next().await.is_some() {} };
    timeout(within, left).await.is_ok()
}

/// The places for connections.
struct Slots {
    anybody: Arc<Semaphore>,
    pod: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

impl Slots {
    fn new(limits: &Limits) -> Slots {
        Slots {
            anybody: Arc::new(Semaphore::new(limits.connections)),
            pod: Arc::new(Semaphore::new(limits.reserve)),
            refusals: Arc::new(Semaphore::new(limits.refusals)),
        }
    }

    /// Serves a connection where there is a place for it, else says so.
    fn admit(&self, tcp: TcpStream, peer: SocketAddr, app: &Arc<App>, set: &mut JoinSet<()>) {
        let origin = Origin::of(peer, tcp.local_addr().ok());
        let place = take(&self.anybody).or_else(|| match origin {
            Origin::Pod => take(&self.pod),
            Origin::Network => None,
        });
        if let Some(place) = place {
            let app = app.clone();
            set.spawn(async move {
                conn::serve(tcp, origin, app).await;
                drop(place);
            });
            return;
        }
        app.metrics.connections_refused.inc();
        if let Some(place) = take(&self.refusals) {
            let limits = app.limits;
            set.spawn(async move {
                conn::refuse(tcp, limits).await;
                drop(place);
            });
        }
    }
}

fn take(slots: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    slots.clone().try_acquire_owned().ok()
}
