//! A count of what is open, moved by guards, that can be waited on.

use tokio::sync::watch;

/// How many guards live.
#[derive(Clone, Debug)]
pub(crate) struct Gauge(watch::Sender<u64>);

/// One of them; dropping it counts down.
#[derive(Debug)]
pub(crate) struct Open(watch::Sender<u64>);

impl Gauge {
    pub(crate) fn new() -> Gauge {
        Gauge(watch::Sender::new(0))
    }

    pub(crate) fn enter(&self) -> Open {
        self.0.send_modify(|count| *count += 1);
        Open(self.0.clone())
    }

    pub(crate) fn value(&self) -> u64 {
        *self.0.borrow()
    }

    pub(crate) async fn zero(&self) {
        // The sender lives in `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
