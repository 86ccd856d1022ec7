//! What the drain's state machine is told and what it asks for.

use super::{HookId, Outcome, Phase, Trigger};
use crate::gate::engine::Stage;
use crate::inflight::{
    EnvoyRequests, EnvoyUpgrades, GateRequests, QueueRequests, Reading, Sockets, Source,
};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A hook asks to be held.
    HookOpened {
        /// Its number.
        hook: HookId,
        /// Whether it is queue-proxy's own.
        queue_proxy: bool,
    },
    /// A waiter hung up.
    HookClosed {
        /// Its number.
        hook: HookId,
    },
    /// The pod is going.
    Trigger(Trigger),
    /// A look at Envoy.
    Envoy(Reading<EnvoyRequests>),
    /// A look at Envoy's upgraded connections.
    Upgrades(Reading<EnvoyUpgrades>),
    /// A look at queue-proxy.
    Queue(Reading<QueueRequests>),
    /// A look at the sockets.
    Sockets(Reading<Sockets>),
    /// A look at the gate.
    Gate(GateRequests),
    /// [`Action::CloseGate`] was carried out.
    GateClosed {
        /// Whether it is closed; else something was in flight.
        closed: bool,
    },
    /// Whether there is a mesh in this pod: an Envoy or an agent that answers.
    Mesh {
        /// `false` only where both refuse.
        present: bool,
    },
    /// A call that an action asked for has ended.
    Called {
        /// Which.
        call: Call,
        /// How.
        result: CallResult,
    },
    /// `/released` was polled by istio-proxy's preStop; `true`: and answered 200.
    ReleasedPolled {
        /// Whether the answer was 200.
        released: bool,
    },
    /// Time has passed.
    Tick,
}

impl Event {
    /// Of a look at a source: which, and how many it holds (of the sockets: open connections), `None`
    /// where that is unknown.
    pub fn look(&self) -> Option<(Source, Option<u64>)> {
        Some(match self {
            Event::Envoy(reading) => (Source::Envoy, reading.known().map(|it| it.active)),
            Event::Queue(reading) => (Source::QueueProxy, reading.known().map(|it| it.active)),
            Event::Sockets(reading) => {
                let open = reading.known().map(|it| it.established.into());
                (Source::Sockets, open)
            }
            Event::Gate(requests) => (Source::Gate, Some(requests.active)),
            _ => return None,
        })
    }
}

/// A call to Envoy or its agent. The driver retries it with backoff until it succeeds, until it
/// cannot, or until the machine says that it no longer matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// Drain inbound politely, in the way the version of Envoy needs.
    DrainInbound,
    /// Refuse new inbound connections.
    CloseDoor,
    /// `POST /drain` to the agent: its SIGTERM then ends it at once.
    DrainAgent,
    /// `POST /quitquitquit` to Envoy, at once.
    QuitEnvoy,
    /// The same, once the agent refuses connections: it has got its SIGTERM.
    QuitEnvoyAfterAgent,
}

impl Call {
    /// All calls, in order.
    pub const ALL: [Call; 5] = [
        Call::DrainInbound,
        Call::CloseDoor,
        Call::DrainAgent,
        Call::QuitEnvoy,
        Call::QuitEnvoyAfterAgent,
    ];

    /// The call's name in logs, metrics and reports.
    pub fn name(self) -> &'static str {
        match self {
            Call::DrainInbound => "drain-inbound",
            Call::CloseDoor => "close-door",
            Call::DrainAgent => "drain-agent",
            Call::QuitEnvoy => "quit-envoy",
            Call::QuitEnvoyAfterAgent => "quit-envoy-after-agent",
        }
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallResult {
    /// Done.
    Done,
    /// The other side does not know the call.
    Unsupported,
    /// Nobody listens any more.
    Gone,
    /// It failed, and will not be tried again.
    Failed,
}

impl CallResult {
    /// All results, in order.
    pub const ALL: [CallResult; 4] = [
        CallResult::Done,
        CallResult::Unsupported,
        CallResult::Gone,
        CallResult::Failed,
    ];

    /// The result's name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            CallResult::Done => "done",
            CallResult::Unsupported => "unsupported",
            CallResult::Gone => "gone",
            CallResult::Failed => "failed",
        }
    }
}

/// What the driver is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Answer one hook.
    Answer(HookId),
    /// A phase has begun. From [`Phase::Announcing`] on `/readyz` answers 503.
    Entered(Phase),
    /// Begin a call.
    Begin(Call),
    /// Stop trying a call.
    Abandon(Call),
    /// Bring the gate to this stage.
    Gate(Stage),
    /// Close the gate if nothing is in flight in it, at once, and say so by
    /// [`Event::GateClosed`].
    CloseGate,
    /// The workload is released: `in_flight` requests are cut by it (0 when drained).
    WorkloadReleased {
        /// What ended the drain.
        outcome: Outcome,
        /// How many requests were in flight, as far as is known.
        in_flight: u64,
    },
    /// `/released` answers 200 from now on.
    ReleaseProxy,
    /// `/released` answers 503 again: istio-proxy's restart has had its answer, or the pod is going.
    HoldProxy,
    /// Write the report and exit 0.
    Exit,
}
