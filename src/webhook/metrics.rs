//! What Prometheus sees of the webhook: registered once, every handle resolved before it is used.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::review::Outcome;
use crate::metrics::{self, Format, Labels};

/// Upper bounds in seconds: a review takes a tenth of a millisecond, and none over five seconds.
const BUCKETS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0,
];

/// Why a request got no review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejected {
    /// 404.
    Path,
    /// 405.
    Verb,
    /// 415.
    ContentType,
    /// 413.
    TooLarge,
    /// 400.
    Malformed,
    /// 408.
    Slow,
    /// 503.
    Busy,
}

impl Rejected {
    const ALL: [Rejected; 7] = [
        Rejected::Path,
        Rejected::Verb,
        Rejected::ContentType,
        Rejected::TooLarge,
        Rejected::Malformed,
        Rejected::Slow,
        Rejected::Busy,
    ];

    fn name(self) -> &'static str {
        match self {
            Rejected::Path => "path",
            Rejected::Verb => "verb",
            Rejected::ContentType => "content-type",
            Rejected::TooLarge => "too-large",
            Rejected::Malformed => "malformed",
            Rejected::Slow => "slow",
            Rejected::Busy => "busy",
        }
    }
}

/// All metrics of `tidegate webhook`.
#[derive(Debug)]
pub(super) struct Metrics {
    registry: Registry,
    reviews: [Counter; Outcome::ALL.len()],
    rejected: [Counter; Rejected::ALL.len()],
    seconds: Histogram,
    expiry: Family<Labels<0>, Gauge<f64, AtomicU64>>,
    /// Looks at the certificate's files that found a new pair.
    pub(super) reloaded: Counter,
    /// Looks at the certificate's files that found nothing to serve.
    pub(super) reload_failed: Counter,
    /// TLS handshakes that failed.
    pub(super) handshakes_failed: Counter,
    /// Connections closed because too many were open.
    pub(super) connections_refused: Counter,
}

impl Metrics {
    /// Registers everything.
    pub(super) fn new() -> Metrics {
        let mut registry = Registry::with_prefix("tidegate");
        metrics::add_build_info(&mut registry);
        let r = registry.sub_registry_with_prefix("webhook");

        let reviews: Family<Labels<1>, Counter> =
            metrics::add(r, "reviews", "Reviews answered, by how they ended");
        let rejected: Family<Labels<1>, Counter> = metrics::add(
            r,
            "requests_rejected",
            "Requests that got no review, and why",
        );
        let seconds = Histogram::new(BUCKETS);
        r.register(
            "review_seconds",
            "From a review's head to its answer",
            seconds.clone(),
        );
        let reloads: Family<Labels<1>, Counter> = metrics::add(
            r,
            "certificate_reloads",
            "Looks at the certificate's files that found a change, or failed",
        );
        let reload = |result| reloads.get_or_create_owned(&[("result", result)]);
        Metrics {
            reviews: Outcome::ALL.map(|o| reviews.get_or_create_owned(&[("result", o.name())])),
            rejected: Rejected::ALL.map(|w| rejected.get_or_create_owned(&[("why", w.name())])),
            seconds,
            expiry: metrics::add(
                r,
                "certificate_expiry_timestamp_seconds",
                "When the certificate expires, since 1970; absent without one",
            ),
            reloaded: reload("ok"),
            reload_failed: reload("error"),
            handshakes_failed: metrics::add(r, "handshakes_failed", "TLS handshakes that failed"),
            connections_refused: metrics::add(
                r,
                "connections_refused",
                "Connections closed because too many were open",
            ),
            registry,
        }
    }

    /// Counts a review.
    pub(super) fn reviewed(&self, outcome: Outcome, took: Duration) {
        self.reviews[outcome as usize].inc();
        self.seconds.observe(took.as_secs_f64());
    }

    /// Counts a request that got no review.
    pub(super) fn rejected(&self, why: Rejected) {
        self.rejected[why as usize].inc();
    }

    /// Notes when the certificate expires.
    pub(super) fn expires(&self, at: SystemTime) {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.expiry.get_or_create(&[]).set(since.as_secs_f64());
    }

    /// The whole exposition.
    pub(super) fn encode(&self, format: Format) -> String {
        metrics::encode(&self.registry, format)
    }
}
