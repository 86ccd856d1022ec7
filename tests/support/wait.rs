//! Waits with a deadline each.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

/// Between two looks of [`until`].
const LOOK: Duration = Duration::from_millis(5);

/// Awaits `future`; panics, saying `what` was awaited, after `limit`.
#[track_caller]
pub(crate) fn within<F: Future>(
    limit: Duration,
    what: &str,
    future: F,
) -> impl Future<Output = F::Output> {
    let caller = std::panic::Location::caller();
    async move {
        timeout(limit, future)
            .await
            .unwrap_or_else(|_| panic!("{caller}: {what}: not within {limit:?}"))
    }
}

/// Looks until `condition` holds; panics after `limit`.
#[track_caller]
pub(crate) fn until(
    limit: Duration,
    what: &str,
    mut condition: impl FnMut() -> bool,
) -> impl Future<Output = ()> {
    let caller = std::panic::Location::caller();
    async move {
        let deadline = Instant::now() + limit;
        while !condition() {
            assert!(
                Instant::now() < deadline,
                "{caller}: {what}: not within {limit:?}"
            );
            sleep(LOOK).await;
        }
    }
}
