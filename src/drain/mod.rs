//! One drain, from the trigger to the exit: a pure state machine and what surrounds it.

pub mod budget;
pub mod event;
mod gated;
mod holds;
pub mod ledger;
pub mod machine;
mod phases;
pub mod record;
pub mod schedule;

pub use event::{Action, Call, CallResult, Event};
pub use machine::{Machine, Now, Settings};
pub use schedule::Polling;

/// Where a drain stands. Phases only advance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// The pod serves. A hook without a trigger is a container restart.
    Serving,
    /// The pod is going; nothing is refused yet, readiness says 503.
    Announcing,
    /// Envoy drains inbound politely; waiting until nothing is in flight.
    Draining,
    /// Envoy refuses new inbound connections; waiting for zero again.
    ClosingDoor,
    /// Waiting until the kernel's send queues are empty.
    Flushing,
    /// The workload's hooks are answered; waiting until it is gone.
    ReleasingWorkload,
    /// istio-proxy is ended.
    ReleasingProxy,
    /// All is over.
    Done,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Phase; 8] = [
        Phase::Serving,
        Phase::Announcing,
        Phase::Draining,
        Phase::ClosingDoor,
        Phase::Flushing,
        Phase::ReleasingWorkload,
        Phase::ReleasingProxy,
        Phase::Done,
    ];

    /// The phase's name in logs, metrics, `/status` and reports.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Serving => "serving",
            Phase::Announcing => "announcing",
            Phase::Draining => "draining",
            Phase::ClosingDoor => "closing-door",
            Phase::Flushing => "flushing",
            Phase::ReleasingWorkload => "releasing-workload",
            Phase::ReleasingProxy => "releasing-proxy",
            Phase::Done => "done",
        }
    }
}

/// What told Tidegate that the pod is going. Nothing that the network can send is a trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// Our own preStop hook, `tidegate drain`.
    PreStop,
    /// SIGTERM.
    Sigterm,
}

impl Trigger {
    /// The trigger's name in logs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Trigger::PreStop => "pre-stop",
            Trigger::Sigterm => "sigterm",
        }
    }
}

/// What ended a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing was in flight and all was flushed.
    Drained,
    /// The deadline came first.
    Deadline,
    /// The kubelet ended the grace period: SIGTERM to a native sidecar while the workload lived.
    GraceOver,
}

impl Outcome {
    /// The outcome's name in logs, metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Drained => "drained",
            Outcome::Deadline => "deadline",
            Outcome::GraceOver => "grace-over",
        }
    }
}

/// A hook held open, numbered by the server in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HookId(pub u64);
