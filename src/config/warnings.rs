//! Settings that contradict each other: worth a line in the log, not worth a pod.

use std::time::Duration;

use super::duration::format;
use super::settings::{
    ANNOUNCE_DELAY, CONFIRM, GRACE, MARGIN, MAX_DRAIN, MIN_DRAIN, QUIET, QUIET_MAX, RESTART_HOLD,
};
use super::{Config, Timing};

/// How long queue-proxy waits after its SIGTERM, whatever is in flight: `drainSleepDuration` in
/// Knative's queue-proxy, which no setting changes.
const QUEUE_PROXY_QUIET: Duration = Duration::from_secs(30);

/// What in the settings cannot come true, a line each, with the cure.
pub fn warnings(config: &Config) -> Vec<String> {
    let timing = &config.timing;
    [
        min_drain_beyond_deadline(timing),
        longer(
            (ANNOUNCE_DELAY.name, timing.announce_delay),
            (MIN_DRAIN.name, timing.min_drain),
            "the drain takes the longer of the two",
        ),
        longer(
            (QUIET.name, timing.quiet),
            (QUIET_MAX.name, timing.quiet_max),
            "new requests stop counting before the pod can have been quiet for so long",
        ),
        longer(
            (CONFIRM.name, timing.confirm),
            (RESTART_HOLD.name, timing.restart_hold),
            "a hook may be answered as a restart's before the pod's deletion is known",
        ),
        short_grace(timing),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn longer(
    (name, value): (&str, Duration),
    (limit_name, limit): (&str, Duration),
    consequence: &str,
) -> Option<String> {
    (value > limit).then(|| {
        format!(
            "{name} {} is longer than {limit_name} {}: {consequence}",
            format(value),
            format(limit)
        )
    })
}

fn min_drain_beyond_deadline(timing: &Timing) -> Option<String> {
    let longest = timing.longest_drain();
    (timing.min_drain > longest).then(|| {
        let (why, cure) = match timing.max_drain {
            Some(cap) if cap == longest => (MAX_DRAIN.name.to_owned(), MAX_DRAIN.name),
            _ => (
                format!(
                    "{} {} less {} {}",
                    GRACE.name,
                    format(timing.grace),
                    MARGIN.name,
                    format(timing.margin)
                ),
                "terminationGracePeriodSeconds",
            ),
        };
        format!(
            "{name} {} lies beyond the deadline of {} ({why}): every drain ends at the deadline; \
             raise {cure} or lower {name}",
            format(timing.min_drain),
            format(longest),
            name = MIN_DRAIN.name,
        )
    })
}

fn short_grace(timing: &Timing) -> Option<String> {
    (timing.grace < QUEUE_PROXY_QUIET).then(|| {
        format!(
            "{} {} is less than {quiet}: queue-proxy's quiet period alone takes {quiet}; raise \
             terminationGracePeriodSeconds",
            GRACE.name,
            format(timing.grace),
            quiet = format(QUEUE_PROXY_QUIET),
        )
    })
}
