//! The fixed limits of a drain, each with its reason. What the grace period leaves is
//! [`Timing::longest_drain`](crate::config::Timing::longest_drain).

use std::time::Duration;

/// How long zero must last before it counts, where the source shows the present.
pub const SETTLE: Duration = Duration::from_millis(200);

/// The same where queue-proxy alone can tell: its report is renewed once a second, so zero must
/// outlast one whole report.
pub const SETTLE_QUEUE: Duration = Duration::from_millis(1_200);

/// How far queue-proxy's report may lag: a window of one second, renewed once a second.
pub const QUEUE_LAG: Duration = Duration::from_secs(2);

/// Looks that must find zero once the door is closed: the first may have begun before it was.
pub const DOOR_LOOKS: u8 = 2;

/// How long closing the door may fail before the drain goes on without it. An open door costs a
/// late request a 502; waiting for it for ever would cost the pod its grace period.
pub const DOOR_MAX: Duration = Duration::from_secs(5);

/// How soon what decides the end is looked at again where the gate has counted zero: last byte to
/// answered hooks is then a handful of looks.
pub const EXACT_LOOK: Duration = Duration::from_millis(5);

/// Looks at Envoy, after the gate has counted zero, before that counts: the first may have begun
/// before.
pub const GATE_LOOKS: u8 = 2;

/// How long before the deadline the door is closed though requests are still in flight: what comes
/// later would reach a workload that has been released, and a refusal costs less than its 502.
pub const DOOR_LEAD: Duration = Duration::from_secs(1);

/// From a forced release of the workload to that of the proxy.
pub const PROXY_AFTER: Duration = Duration::from_secs(1);

/// How long a native sidecar that got SIGTERM waits to learn whether the workload lives.
pub const SIGTERM_LOOK: Duration = Duration::from_millis(500);

/// From the trigger, or its own opening if that is later: how long queue-proxy's hook waits to learn
/// whether streams are open that queue-proxy would cut. Envoy answers in milliseconds; on a node that is
/// short of CPU it took more than half a second.
pub const STREAMS_LOOK: Duration = Duration::from_secs(2);

/// The longest wait for `POST /drain` of the agent before the proxy's hold is released without it.
pub const AGENT_MAX: Duration = Duration::from_millis(500);

/// The longest wait of a native sidecar for its own SIGTERM once the workload has gone. The kubelet sees
/// that within a second or two, on a busy node later.
pub const KUBELET_MAX: Duration = Duration::from_secs(30);

/// The longest pause between two polls of `/released` by a waiter that lives: it asks again 100 ms after an
/// answer, which the hook port holds back for 350 ms.
pub const POLL_PAUSE: Duration = Duration::from_secs(2);

/// The longest wait, after the proxy's release, for its waiter to see it and for Envoy to quit.
pub const PROXY_MAX: Duration = Duration::from_secs(2);

/// What is kept of the grace period for the report.
pub const LAST_WORD: Duration = Duration::from_millis(250);
