//! The grace period: long enough for the revision's longest request and queue-proxy's quiet period.

use std::time::Duration;

use serde_json::Value;

use super::read;
use super::settings::{QUEUE_PROXY, Settings};
use crate::config::duration;
use crate::config::settings::GRACE;

/// What Kubernetes gives a pod that does not say.
const KUBERNETES_DEFAULT: u64 = 30;
/// queue-proxy's fixed wait after SIGTERM: `drainSleepDuration`, pkg/queue/sharedmain/main.go.
const QUEUE_PROXY_QUIET: u64 = 30;
/// The revision's timeoutSeconds, in queue-proxy's environment.
const TIMEOUT: &str = "REVISION_TIMEOUT_SECONDS";

/// A pod's grace period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grace {
    /// In seconds, after injection.
    pub(super) seconds: u64,
    /// Whether it had to be raised.
    raised: bool,
}

impl Grace {
    /// What the sidecar is told: no more than a setting may be.
    pub(super) fn told(self) -> Duration {
        Duration::from_secs(self.seconds).min(duration::LIMIT)
    }
}

/// The grace period that the pod will have: its own, or what the revision's timeout or the annotation
/// asks for, if that is longer.
pub(super) fn of(pod: &Value, settings: &Settings<'_>, warnings: &mut Vec<String>) -> Grace {
    let own = pod["spec"]["terminationGracePeriodSeconds"]
        .as_u64()
        .unwrap_or(KUBERNETES_DEFAULT);
    let asked = settings
        .asked(&GRACE)
        .and_then(|text| duration::parse(text.trim()).ok())
        .map_or(0, whole_seconds);
    let timeout = read::container(pod, QUEUE_PROXY)
        .and_then(|queue| read::env(queue, TIMEOUT))
        .and_then(|text| text.parse::<u64>().ok());
    let margin = whole_seconds(settings.margin());
    let needed = timeout.map_or(0, |timeout| {
        timeout
            .saturating_add(QUEUE_PROXY_QUIET)
            .saturating_add(margin)
    });
    let seconds = own.max(asked).max(needed);
    if seconds > own {
        let why = match timeout {
            Some(timeout) if needed >= asked => format!(
                "the revision's timeout of {timeout} s, queue-proxy's {QUEUE_PROXY_QUIET} s and a margin \
                 of {margin} s"
            ),
            _ => GRACE.annotation(),
        };
        warnings.push(format!(
            "terminationGracePeriodSeconds raised from {own} to {seconds}: {why}"
        ));
    }
    Grace {
        seconds,
        raised: seconds > own,
    }
}

/// Writes it where it was raised; what was not said and is enough stays unsaid.
pub(super) fn write(after: &mut Value, grace: Grace) {
    if grace.raised {
        after["spec"]["terminationGracePeriodSeconds"] = grace.seconds.into();
    }
}

fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}
