//! The thread for what must never wait behind a review: probes, metrics, and the certificate's files.

use std::io;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::metrics::Metrics;
use super::server::{self, Shared};
use crate::certs::{Look, Store};
use crate::telemetry::Rfc3339;

/// How long answers on the health port get to leave.
const LAST_ANSWERS: Duration = Duration::from_millis(250);
/// What the thread may take longer, on a busy node.
const SLACK: Duration = Duration::from_millis(250);

/// The running thread.
pub(super) struct Thread {
    ended: oneshot::Receiver<()>,
}

impl Thread {
    pub(super) fn start(
        listener: TcpListener,
        shared: Shared,
        mut store: Store,
        look_every: Duration,
    ) -> io::Result<Thread> {
        let (tell, ended) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        thread::Builder::new()
            .name("health".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    let metrics = shared.metrics.clone();
                    tokio::select! {
                        _ = server::health(listener, shared, LAST_ANSWERS) => {}
                        () = look_again(&mut store, &metrics, look_every) => {}
                    }
                });
                drop(runtime);
                let _ = tell.send(());
            })?;
        Ok(Thread { ended })
    }

    /// Waits for the thread, once it has been told to end.
    pub(super) async fn ended(self) {
        let _ = timeout(LAST_ANSWERS + SLACK, self.ended).await;
    }
}

async fn look_again(store: &mut Store, metrics: &Metrics, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut complaint = None;
    loop {
        ticks.tick().await;
        look(store, metrics, SystemTime::now(), &mut complaint);
    }
}

/// Looks at the certificate's files once. What is wrong with them is logged once, and again when it
/// changes: `complaint` remembers it.
pub(super) fn look(
    store: &mut Store,
    metrics: &Metrics,
    now: SystemTime,
    complaint: &mut Option<String>,
) {
    let problem = match store.look(now) {
        Look::Same => {
            let serving = store.serving();
            let serving = serving.borrow();
            serving.as_ref().ok().and_then(|pair| pair.check(now).err())
        }
        Look::Loaded => {
            metrics.reloaded.inc();
            if let Ok(pair) = &*store.serving().borrow() {
                metrics.expires(pair.not_after());
                let expires = Rfc3339(pair.not_after());
                tracing::info!(%expires, "serving a new certificate");
            }
            None
        }
        Look::Failed(error) => {
            metrics.reload_failed.inc();
            Some(error)
        }
    };
    let problem = problem.map(|error| error.to_string());
    if let Some(problem) = &problem
        && complaint.as_ref() != Some(problem)
    {
        tracing::warn!("{problem}");
    }
    *complaint = problem;
}
